#!/usr/bin/env bash
# Sets vlmgym up: a Python environment at .venv beside this file, with the package and what it needs to play and evaluate.
# Run it again at any time: it does only what is missing. Works with the bash 3.2 of macOS, too.

[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started by another shell, as `sh setup.sh`
set -euo pipefail

here=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
venv="$here/.venv"
log="$here/setup.log"
extra=core

usage() {
    cat <<'END'
usage: bash setup.sh [--dev]

Installs vlmgym (editable) with its core dependencies into .venv beside this file. If a virtualenv, or a conda
environment other than base, is active, it installs there and links .venv to it.

  --dev    also install what tests and checks need (pytest, mypy, ruff ...)
  --help   show this text

PYTHON=/path/to/python bash setup.sh makes .venv with that interpreter (Python 3.10 or newer).
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

new_enough() { # version
    [ "${1%%.*}" -gt 3 ] || { [ "${1%%.*}" -eq 3 ] && [ "${1#*.}" -ge 10 ]; }
}

# Sets `python` to the interpreter that makes .venv: $PYTHON, or else `python3`, or else the newest other one that will do.
choose_python() {
    local candidate version makes too_old='' without_venv='' untested=''
    if [ -n "${PYTHON:-}" ]; then
        read -r version makes <<<"$(probe "$PYTHON")"
        [ -n "$version" ] || fail 1 "PYTHON=$PYTHON is not a Python that runs."
        new_enough "$version" || fail 1 "vlmgym needs Python 3.10 or newer, and PYTHON=$PYTHON is Python $version."
        [ "$makes" = venv ] || fail 1 "$(cannot_make_venv "$PYTHON" "$version")"
        python=$PYTHON
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.10 python; do
        read -r version makes <<<"$(probe "$candidate")"
        if [ -z "$version" ]; then
            continue
        elif ! new_enough "$version"; then
            too_old=${too_old:-$version}
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
    fail 1 "vlmgym needs Python 3.10 or newer, and here is ${too_old:+only Python }${too_old:-none}: install one, or name it as PYTHON=/path/to/python."
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

# Makes .venv unless it is there and works; a link to another environment stays.
make_venv() {
    if [ -L "$venv" ] && ! [ -e "$venv" ]; then
        say "Removing the link .venv -> $(readlink "$venv"), which leads nowhere"
        rm -- "$venv"
    fi
    if [ -n "$(probe "$venv/bin/python")" ]; then
        return
    fi
    if [ -L "$venv" ]; then
        fail 1 "$venv links to $(readlink "$venv"), which holds no Python that runs: remove the link and run setup.sh again."
    fi
    if [ -e "$venv" ] && ! [ -e "$venv/pyvenv.cfg" ] && [ -n "$(find "$venv" -type f 2>/dev/null | head -n 1)" ]; then
        fail 1 "$venv is in the way and is not a virtualenv: move it away and run setup.sh again."
    fi
    local python
    choose_python
    if [ -e "$venv" ]; then
        say "Making .venv again with $("$python" --version 2>&1), because it was not complete"
    else
        say "Making .venv with $("$python" --version 2>&1)"
    fi
    "$python" -m venv --clear "$venv" >>"$log" 2>&1 || fail 1 "$python could not make $venv; what it said is in $log."
}

# Installation ---------------------------------------------------------------------------------------------------------

# Whether a run of setup.sh has finished here since pyproject.toml changed, and nothing was removed since.
up_to_date() {
    local done_before
    done_before=$(cat "$stamp" 2>/dev/null) || return 1
    [ "$done_before" = "$fingerprint dev" ] || [ "$done_before" = "$fingerprint $extra" ] || return 1
    ! "$environment/bin/python" -m pip check 2>/dev/null | grep -q '^vlmgym '
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

install_failed() {
    local reason
    if grep -qiE 'No space left on device' "$log"; then
        reason="the disk is full"
    elif grep -qiE 'connection|timed? ?out|resolve|unreachable|proxy|SSLError|HTTP error|No matching distribution' "$log"; then
        reason="a download failed: check the network and pip's index settings, then run setup.sh again"
    else
        reason="pip could not install vlmgym"
    fi
    fail 1 "$reason (all that pip said is in $log)."
}

# ----------------------------------------------------------------------------------------------------------------------

for option in "$@"; do
    case $option in
        --dev) extra=dev ;;
        --help | -h)
            usage
            exit 0
            ;;
        *) fail 2 "there is no option '$option'; the options are --dev and --help." ;;
    esac
done

{ : >"$log"; } 2>/dev/null || fail 1 "$here cannot be written to."
trap 'fail 130 "interrupted; run it again to go on."' INT

environment=$(active_environment)
if [ -z "$environment" ] || same_folder "$venv" "$environment"; then
    make_venv
    environment=$venv
    if [ -L "$venv" ]; then
        say "Using the environment that .venv links to: $(readlink "$venv")"
    fi
else
    say "Using the active environment $environment"
fi

read -r version _ <<<"$(probe "$environment/bin/python")"
[ -n "$version" ] || fail 1 "the environment $environment has no Python: install Python 3.10 or newer into it (conda install python=3.12)."
new_enough "$version" || fail 1 "vlmgym needs Python 3.10 or newer, and the environment $environment has Python $version: make and activate a newer one, or deactivate or remove this one."
link_venv "$environment"

stamp="$environment/.vlmgym-setup"
fingerprint="$(cksum <"$here/pyproject.toml") $here"
if up_to_date; then
    say "Everything is installed already."
else
    rm -f -- "$stamp"
    "$environment/bin/python" -m pip --version >>"$log" 2>&1 || "$environment/bin/python" -m ensurepip >>"$log" 2>&1 ||
        fail 1 "the environment $environment has no pip: install it (conda install pip) and run setup.sh again."
    say "Installing vlmgym and its $([ "$extra" = dev ] && echo "core and dev" || echo core) dependencies (log: $log)"
    pip_install 'pip>=21.3' || install_failed # older ones cannot install pyproject.toml editable
    if [ "$extra" = dev ]; then
        pip_install --editable '.[dev]' || install_failed
    else
        pip_install --editable . || install_failed
    fi
    say "$fingerprint $extra" >"$stamp"
    say "Done."
fi

say
say "Play 2048:      .venv/bin/python vlmgym/test/eval_2048.py"
if [ "$extra" = dev ]; then
    say "Run the tests:  .venv/bin/python -m pytest"
fi
