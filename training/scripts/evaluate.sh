#!/usr/bin/env bash
# Evaluate a trained model and its baseline on the same seeds with vLLM, one after the other, and compare them:
#
#     bash training/scripts/evaluate.sh TRAINED BASELINE [EPISODES] [OPTIONS]
#     bash training/scripts/evaluate.sh checkpoints/2048 Qwen/Qwen2.5-VL-7B-Instruct 100
#     bash training/scripts/evaluate.sh checkpoints/2048 Qwen/Qwen2.5-VL-7B-Instruct 100 --max-turns 50 --temperature 0
#
# TRAINED and BASELINE are Hugging Face folders or Hub names. Both play what TRAINED was trained on, as its vlmgym.json
# says; without that file, OPTIONS of vlmgym eval must name a game. Works on GPUs and CPUs.
#
# OUT          folder of both runs, the comparison and the logs of the servers (a new folder in logs)
# PORT         port of the server (a free one)
# SERVE        options of serve_vllm.sh, such as "--tensor-parallel-size 2"
# WAIT         seconds to wait for a server to start, including downloads (3600)
set -euo pipefail
root=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)
fail() {
    echo "evaluate.sh: $1" >&2
    exit 2
}

case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
esac
[ $# -ge 2 ] || fail "usage: evaluate.sh TRAINED BASELINE [EPISODES] [OPTIONS OF vlmgym eval]"
trained=$1 baseline=$2 episodes=10
shift 2
if [[ ${1:-} =~ ^-?[0-9]+$ ]]; then
    episodes=$1
    shift
fi
[[ $episodes =~ ^[1-9][0-9]*$ ]] || fail "EPISODES must be a number of at least 1, got $episodes"
for variable in PORT WAIT; do
    [[ ${!variable:-1} =~ ^[1-9][0-9]*$ ]] || fail "$variable must be a number of at least 1, got ${!variable}"
done
[ ! -e "$trained/model/config.json" ] || trained=$trained/model # a checkpoint of local training
[ ! -e "$trained/actor" ] || fail "$trained has sharded weights: convert it with export.sh first"
for model in "$trained" "$baseline"; do
    [ -e "$model/config.json" ] || [[ ! -e $model && $model =~ ^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$ ]] ||
        fail "$model is neither a model folder with config.json nor a Hub name"
done
games=()
[ ! -e "$trained/vlmgym.json" ] || games=(--as-trained "$trained")
[ $# -gt 0 ] || [ -e "$trained/vlmgym.json" ] || fail "$trained has no vlmgym.json: name a game after EPISODES"
out=${OUT:-logs/evaluate-$(date +%Y%m%d-%H%M%S)}
[ ! -e "$out" ] || fail "$out already exists: set OUT to a new folder"
[ -e "$root/.venv/.vlmgym-setup" ] || bash "$root/setup.sh"
[ -e "$root/.venv-train/.vlmgym-setup" ] || bash "$root/setup.sh" --train
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
python=$root/.venv/bin/python
port=${PORT:-$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}

server='' client=''
stop() {
    trap '' INT TERM
    for process in $client $server; do
        kill "$process" 2>/dev/null || true
        wait "$process" || true
    done
    server='' client=''
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

run() { # in the background, because bash handles signals at once only during `wait`
    "$@" &
    client=$!
    wait "$client"
    client=''
}

ready() {
    "$python" - "http://127.0.0.1:$port/health" <<'PYTHON'
import sys, urllib.request
try:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1], timeout=5)
except OSError:
    sys.exit(1)
PYTHON
}

evaluate() {
    local name=$1 model=$2
    shift 2
    echo "starting vLLM with $model; log: $out/$name.log"
    # The sampling settings of generation_config.json were not used in training.
    # shellcheck disable=SC2086
    HOST=127.0.0.1 PORT=$port NAME=$name bash "$root/training/scripts/serve_vllm.sh" "$model" --generation-config vllm ${SERVE:-} \
        >"$out/$name.log" 2>&1 &
    server=$!
    local limit=$((SECONDS + ${WAIT:-3600}))
    until ready; do
        if ! kill -0 "$server" 2>/dev/null || [ $SECONDS -ge $limit ]; then
            tail -n 20 "$out/$name.log" >&2
            echo "evaluate.sh: vLLM did not start; see $out/$name.log" >&2
            exit 1
        fi
        run sleep 1
    done
    run "$python" -m vlmgym eval ${games[@]+"${games[@]}"} --episodes "$episodes" --policy openai \
        --base-url "http://127.0.0.1:$port/v1" --model "$name" --output-dir "$out/$name" "$@"
    stop
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

mkdir -p "$out"
evaluate trained "$trained" "$@"
evaluate baseline "$baseline" "$@"
run "$python" -m vlmgym compare "$out/trained" "$out/baseline" --labels trained baseline --output-dir "$out/compare"
