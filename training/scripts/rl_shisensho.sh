#!/usr/bin/env bash
# GRPO on single pairs of Shisen-Sho. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" shisensho "$@"
