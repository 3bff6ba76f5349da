#!/usr/bin/env bash
# Convert an EasyR1 checkpoint to a Hugging Face folder:
#
#     bash training/scripts/export.sh checkpoints/vlmgym/2048/global_step_300 checkpoints/2048
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
[ -e "$root/.venv-easyr1/.vlmgym-setup" ] || bash "$root/setup.sh" --easyr1
exec "$root/.venv-easyr1/bin/python" -m vlmgym.training.easyr1.export "$@"
