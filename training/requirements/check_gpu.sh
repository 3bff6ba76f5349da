#!/usr/bin/env bash
# After changing the packages for GPU machines (*_gpu.txt), check them on a machine without a GPU:
#
#     bash training/requirements/check_gpu.sh ../vlmgym-gpu
#
# Clones the last commit into a new folder (30 GB) and runs setup.sh there as if there were a GPU. This installs the
# packages and imports every module that training imports. Then runs the tests in tests/easyr1_cpu, and trains tiny
# models with EasyR1's own worker and vLLM (tests/easyr1_gpu).
set -euo pipefail
folder=${1:?usage: check_gpu.sh NEW_FOLDER}
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
git clone --quiet "$root" "$folder"
cd -- "$folder"
mkdir .bin && printf '#!/bin/sh\n' >.bin/nvidia-smi && chmod +x .bin/nvidia-smi
env -u VIRTUAL_ENV -u CONDA_PREFIX PATH="$PWD/.bin:$PATH" bash setup.sh --dev --train --easyr1
.venv-easyr1/bin/python -m pytest -W default tests/easyr1_cpu tests/easyr1_gpu
