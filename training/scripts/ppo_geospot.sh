#!/usr/bin/env bash
# PPO on geospot, stage by stage. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" geospot ppo "$@"
