#!/usr/bin/env bash
# GRPO on Shisen-Sho with handwritten digits. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" shisensho_pictures "$@"
