#!/usr/bin/env bash
# Serve a Hugging Face folder or Hub name with vLLM and print how to evaluate it:
#
#     bash training/scripts/serve_vllm.sh checkpoints/2048
#     PORT=8001 NAME=mine bash training/scripts/serve_vllm.sh checkpoints/2048 --tensor-parallel-size 2
#
# PORT         port of the server (8000)
# NAME         name of the model in requests (trained)
# HOST         address to listen on (127.0.0.1)
#
# Further arguments are options of vLLM. On a CPU, the KV cache takes a quarter of the free memory, from 1 to 16 GiB;
# VLLM_CPU_KVCACHE_SPACE sets another size.
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
if [ $# -eq 0 ] || ! { [ -e "$1/config.json" ] || [[ ! -e $1 && $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$ ]]; }; then
    echo "serve_vllm.sh: the first argument must be a model folder with config.json, or a Hub name; export.sh creates a folder from a checkpoint" >&2
    exit 2
fi
if ! [[ ${PORT:-8000} =~ ^[1-9][0-9]*$ ]]; then
    echo "serve_vllm.sh: PORT must be a number, got $PORT" >&2
    exit 2
fi
model=$1
shift
[ -e "$root/.venv-train/.vlmgym-setup" ] || bash "$root/setup.sh" --train
port=${PORT:-8000} name=${NAME:-trained}
case $(cat "$root/.venv-train/.vlmgym-setup") in
*" cpu" | *" cpu "*) # by default vLLM asks for 92% of all memory, and compiles for longer than an evaluation takes
    free=$(awk '/^MemAvailable/ {print int($2 / 2^22)}' /proc/meminfo)
    free=$((free < 1 ? 1 : free > 16 ? 16 : free))
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-$free}
    set -- --enforce-eager "$@"
    ;;
esac
echo "Once the server is ready, evaluate it with:"
echo "    .venv/bin/python vlmgym/test/eval_2048.py --policy openai --base-url http://127.0.0.1:$port/v1 --model $name"
exec "$root/.venv-train/bin/python" -m vllm.entrypoints.openai.api_server --model "$model" --served-model-name "$name" \
    --host "${HOST:-127.0.0.1}" --port "$port" "$@"
