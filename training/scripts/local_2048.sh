#!/usr/bin/env bash
# Show what RL adds: train a tiny vision-language model on moves of 2048, on a CPU, from scratch, in five minutes.
#
#     bash training/scripts/local_2048.sh                                       # the preset demo
#     bash training/scripts/local_2048.sh --seed 7 --output-dir logs/seed7
#     bash training/scripts/local_2048.sh --preset tiny                         # whole games on 4x4
#     bash training/scripts/local_2048.sh --model Qwen/Qwen3-VL-4B-Instruct     # a real model on a 24 GB GPU
#
# All options: bash training/scripts/local_2048.sh --help
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
[ -e .venv-train/.vlmgym-setup ] || bash setup.sh --train
case " $* " in
    *" --preset"* | *" --model"* | *" --resume"*) ;;
    *) set -- --preset demo "$@" ;;
esac
exec .venv-train/bin/python -m vlmgym train "$@"
