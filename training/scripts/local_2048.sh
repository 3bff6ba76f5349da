#!/usr/bin/env bash
# Train a tiny vision-language model on moves of 2048, on a CPU, from scratch to a checkpoint in minutes:
#
#     bash training/scripts/local_2048.sh
#     bash training/scripts/local_2048.sh --algorithm ppo --output-dir logs/ppo
#     bash training/scripts/local_2048.sh --model Qwen/Qwen3-VL-4B-Instruct      # a real model on a 24 GB GPU
#
# All options: bash training/scripts/local_2048.sh --help
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[ -e .venv-train/.vlmgym-setup ] || bash setup.sh --train
exec .venv-train/bin/python -m vlmgym train "$@"
