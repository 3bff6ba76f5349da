#!/usr/bin/env bash
# GRPO on caption, the keywords of an image. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" caption "$@"
