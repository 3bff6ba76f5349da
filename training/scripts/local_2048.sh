#!/usr/bin/env bash
# A tiny vision-language model learns a move of 2048 on a CPU, from nothing to a checkpoint, in minutes:
#
#     bash training/scripts/local_2048.sh
#     bash training/scripts/local_2048.sh --algorithm ppo --output-dir logs/ppo
#     bash training/scripts/local_2048.sh --model Qwen/Qwen3-VL-4B-Instruct      # a real one, on a GPU of 24 GB
#
# All options: bash training/scripts/local_2048.sh --help
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[ -e .venv-train/.vlmgym-setup ] || bash setup.sh --train
exec .venv-train/bin/python -m training.local.train "$@"
