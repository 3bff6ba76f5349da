#!/usr/bin/env bash
# GRPO on single moves of Swap. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" swap "$@"
