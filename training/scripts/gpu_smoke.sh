#!/usr/bin/env bash
# Check training on this machine's GPUs in minutes, with random models; print what passed, and how much time and memory
# it took:
#
#     bash training/scripts/gpu_smoke.sh                    # all stages
#     bash training/scripts/gpu_smoke.sh --stages A B       # some of them
#     bash training/scripts/gpu_smoke.sh --cpu              # on a CPU, with tiny models
#
# A  local training in float32 and bfloat16, with GRPO and PPO; the first step is compared with a CPU
# B  the presets with random models of the sizes of Qwen3-VL-2B, Qwen3-VL-4B and Qwen2.5-VL-7B
# C  TRL, on single moves and on episodes
# D  EasyR1's worker with NCCL, without vLLM
# E  EasyR1 with vLLM on four GPUs: GRPO with tensor parallelism, LoRA, PPO and episodes
#
# D and E need bash setup.sh --easyr1 --dev; EASYR1_PYTHON names another environment.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
[ -e "$root/.venv-train/.vlmgym-setup" ] || bash "$root/setup.sh" --train
cd -- "$root"
exec .venv-train/bin/python -m tests.gpu_smoke "$@"
