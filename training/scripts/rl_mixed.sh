#!/usr/bin/env bash
# GRPO on 2048, Shisen-Sho and Swap together. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" mixed "$@"
