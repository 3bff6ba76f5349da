#!/usr/bin/env bash
# Supervised fine-tuning (cold start) on exported episodes with LLaMA-Factory, before reinforcement learning:
#
#     .venv/bin/vlmgym eval 2048 --policy oracle --episodes 200 --output-dir logs/oracle
#     .venv/bin/vlmgym export logs/oracle --format sharegpt --output-dir data/oracle_2048
#     bash training/scripts/sft.sh data/oracle_2048 checkpoints/sft_2048
#     MODEL=$PWD/checkpoints/sft_2048 bash training/scripts/rl_2048.sh
#
# MODEL        folder or Hub name of a Qwen-VL (Qwen/Qwen2.5-VL-7B-Instruct)
# LLAMAFACTORY command of LLaMA-Factory (llamafactory-cli), from a separate environment with its own library versions
#
# Further arguments override settings of LLaMA-Factory: SETTING=VALUE, for instance num_train_epochs=3. A single GPU needs
# deepspeed=null, and finetuning_type=lora if a full model does not fit.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
fail() {
    echo "sft.sh: $1" >&2
    exit 2
}

case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
[ $# -ge 2 ] || fail "usage: sft.sh FOLDER_OF_VLMGYM_EXPORT NEW_FOLDER [SETTING=VALUE ...]"
data=$1 out=$2 model=${MODEL:-Qwen/Qwen2.5-VL-7B-Instruct} command=${LLAMAFACTORY:-llamafactory-cli}
shift 2
[ -e "$data/dataset_info.json" ] || fail "$data has no dataset_info.json: vlmgym export --format sharegpt writes one"
[ ! -e "$out" ] || fail "$out already exists: choose a new folder"
command -v "$command" >/dev/null || fail "$command not found: pip install llamafactory deepspeed in a separate environment, or set LLAMAFACTORY"
case $model in
*[Qq]wen3-[Vv][Ll]* | *[Qq]wen3_[Vv][Ll]*) template=qwen3_vl_nothink ;;
*) template=qwen2_vl ;; # also for Qwen2.5-VL
esac
name=$(sed -n 's/^ "\(.*\)": {$/\1/p' "$data/dataset_info.json")
[ -n "$name" ] || fail "$data/dataset_info.json was not written by vlmgym export"
FORCE_TORCHRUN=1 "$command" train "$root/training/sft/sft.yaml" "model_name_or_path=$model" "template=$template" \
    "dataset_dir=$data" "media_dir=$data" "dataset=$name" "output_dir=$out" \
    "deepspeed=$root/training/sft/zero3.json" "$@"
if [ -e "$out/config.json" ]; then # the form that transformers 4 reads, which EasyR1 needs
    [ -e "$root/.venv/.vlmgym-setup" ] || bash "$root/setup.sh"
    "$root/.venv/bin/python" -m vlmgym.training.transformers4 "$out"
fi
if [ -d "$out" ] && [ -e "$data/vlmgym.json" ]; then
    cp -- "$data/vlmgym.json" "$out/" # for vlmgym eval --as-trained
fi
