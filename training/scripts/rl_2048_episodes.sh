#!/usr/bin/env bash
# GiGPO on whole episodes of 2048. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" 2048 episodes "$@"
