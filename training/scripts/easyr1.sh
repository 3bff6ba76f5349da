#!/usr/bin/env bash
# Train with EasyR1. The rl_*.sh and ppo_*.sh scripts name files of training/configs, which override base.yaml:
#
#     bash training/scripts/rl_2048.sh --check                  # report problems in seconds, without training
#     bash training/scripts/rl_2048.sh
#     MODEL=Qwen/Qwen2.5-VL-3B-Instruct GPUS=8 bash training/scripts/rl_2048.sh trainer.max_steps=100
#
# MODEL        folder or Hub name of a Qwen-VL (Qwen/Qwen2.5-VL-7B-Instruct)
# DATA         your own questions for a task: a table, a folder or a Hub id (docs/data.md); or a copy of CIFAR-10
# GPUS, NODES  GPUs per machine, and machines (4, 1)
# LORA=1       train LoRA adapters instead of all weights
# LOW_MEMORY=1 keep weights and optimizer states in bfloat16
# OUT          folder of checkpoints, rollouts and curves (checkpoints/vlmgym/NAME)
#
# Further arguments override settings: SETTING=VALUE, for instance data.seed=2 or worker.rollout.n=16.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)

fail() {
    echo "easyr1.sh: $1" >&2
    exit 2
}

for option in "$@"; do
    case $option in
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
        exit
        ;;
    esac
done
names=(base)
while [ $# -gt 0 ] && [[ $1 != *=* && $1 != -* ]]; do
    names+=("$1")
    shift
done
for variable in GPUS NODES; do
    [[ ${!variable:-1} =~ ^[1-9][0-9]*$ ]] || fail "$variable must be a number of at least 1, got ${!variable}"
done
for variable in LORA LOW_MEMORY; do
    [[ ${!variable:-0} =~ ^[01]$ ]] || fail "$variable must be 0 or 1, got ${!variable}"
done
[ "${LORA:-0}" = 0 ] || names+=(lora)
[ "${LOW_MEMORY:-0}" = 0 ] || names+=(low_memory)

settings=("trainer.n_gpus_per_node=${GPUS:-4}" "trainer.nnodes=${NODES:-1}")
[ -z "${MODEL:-}" ] || settings+=("worker.actor.model.model_path=$MODEL")
[ -z "${DATA:-}" ] || settings+=("vlmgym.overrides.data=$DATA")
[ -z "${OUT:-}" ] || settings+=("trainer.save_checkpoint_path=$OUT")
[ "${GPUS:-4}" != 1 ] || settings+=("worker.rollout.tensor_parallel_size=1")

files=()
for name in "${names[@]}"; do
    files+=("$root/training/configs/$name.yaml")
    [ -e "${files[${#files[@]} - 1]}" ] || fail "training/configs/$name.yaml does not exist"
done
[ -e "$root/.venv-easyr1/.vlmgym-setup" ] || bash "$root/setup.sh" --easyr1
exec "$root/.venv-easyr1/bin/python" -m vlmgym.training.easyr1 "${files[@]}" "${settings[@]}" "$@"
