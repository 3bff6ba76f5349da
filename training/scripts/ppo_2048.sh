#!/usr/bin/env bash
# PPO on single moves of 2048. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" 2048 ppo "$@"
