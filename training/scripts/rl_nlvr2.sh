#!/usr/bin/env bash
# GRPO on statements about two scenes, or with DATA, two images. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" nlvr2 "$@"
