#!/usr/bin/env bash
# GRPO on questions about a scene, or with DATA, an image. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" vqa "$@"
