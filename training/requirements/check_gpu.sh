#!/usr/bin/env bash
# Check the packages of GPU machines (gpu.txt) on a machine without one, after changing them:
#
#     bash training/requirements/check_gpu.sh ../vlmgym-gpu
#
# Runs setup.sh, as if there were a GPU, in a clone of the last commit in a new folder (15 GB), which installs them and
# imports every module that training imports, then the tests of EasyR1.
set -euo pipefail
folder=${1:?usage: check_gpu.sh NEW_FOLDER}
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
git clone --quiet "$root" "$folder"
cd -- "$folder"
mkdir .bin && printf '#!/bin/sh\n' >.bin/nvidia-smi && chmod +x .bin/nvidia-smi
env -u VIRTUAL_ENV -u CONDA_PREFIX PATH="$PWD/.bin:$PATH" bash setup.sh --dev --train
.venv-train/bin/python -m pytest -W default tests/easyr1_cpu
