#!/usr/bin/env bash
# G1 of the G1 paper: a cold start on correct perception and moves, then reinforcement learning; see docs/g1.md.
#
#     bash training/scripts/g1.sh 2048 --dry-run    # print what would run
#     bash training/scripts/g1.sh 2048 --check      # check the reinforcement learning in seconds, without training
#     bash training/scripts/g1.sh 2048
#
# The first argument is a game: 2048, shisensho, shisensho_cifar10, swap, or all (2048, Shisen-Sho and Swap together).
# Each stage writes its result to OUT. A later run continues with the first unfinished stage.
#
#     data  OUT/episodes, OUT/data   an expert's turns with legal moves, exact format and right <perception>
#     sft   OUT/sft                  the model after supervised fine-tuning with LLaMA-Factory (sft.sh)
#     rl    OUT/rl                   EasyR1's checkpoints and rollouts (easyr1.sh)
#
# OUT          checkpoints/vlmgym/g1_GAME
# STAGES       stages to run ("data sft rl")
# EPISODES     episodes per game (200)
# EXPERT       policy that plays these episodes, as options of vlmgym eval (--policy oracle)
# DATA         local copy of CIFAR-10 (downloaded from the Hub)
# LLAMAFACTORY command of LLaMA-Factory (llamafactory-cli)
#
# The stage rl also takes the variables and settings of easyr1.sh:
set -euo pipefail
scripts=$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=${scripts%/training/scripts}
fail() { echo "g1.sh: $1" >&2 && exit 2; }

config=${1:-}
case $config in
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exec bash "$scripts/easyr1.sh" --help ;;
2048 | shisensho | swap) play=("$config") ;;
shisensho_cifar10) play=(shisensho --config tiles=cifar10 split=train ${DATA:+"data=$DATA"}) ;;
all) play=(2048 shisensho swap) config=mixed ;;
*) fail "the first argument must be a game: 2048, shisensho, shisensho_cifar10, swap or all" ;;
esac
game=$1 dry=no check=no settings=()
[ -z "${DATA:-}" ] || [ "$game" = shisensho_cifar10 ] || fail "DATA only applies to shisensho_cifar10, got $game"
for argument in "${@:2}"; do
    case $argument in
    --dry-run) dry=yes ;;
    --check) check=yes ;;
    *) settings+=("$argument") ;;
    esac
done
stages=${STAGES:-data sft rl} episodes=${EPISODES:-200} llamafactory=${LLAMAFACTORY:-llamafactory-cli}
for stage in $stages; do
    case $stage in data | sft | rl) ;; *) fail "STAGES must be some of data, sft and rl, got $stage" ;; esac
done
[[ $episodes =~ ^[1-9][0-9]*$ ]] || fail "EPISODES must be a number of at least 1, got $episodes"
out=${OUT:-checkpoints/vlmgym/g1_$game}
case $out in /*) ;; *) out=$PWD/$out ;; esac

wanted() { [[ " $stages " = *" $1 "* ]]; }
run() { # command
    if [ $dry = no ]; then "$@"; else printf '%q ' "$@" && echo; fi
}
train() { # model, further arguments
    run env "MODEL=$1" "OUT=$out/rl" bash "$scripts/easyr1.sh" "$config" g0 g1 "trainer.experiment_name=g1_$game" \
        ${settings[@]+"${settings[@]}"} "${@:2}"
}

base=${MODEL:-Qwen/Qwen2.5-VL-7B-Instruct}
if [ $check = yes ]; then
    train "$base" --check
    exit
fi
if [ $dry = no ]; then # report problems before hours of play and fine-tuning
    ! wanted sft || [ ! -e "$out/sft" ] || [ -e "$out/sft/train_results.json" ] ||
        fail "$out/sft has no train_results.json, so it is unfinished: remove it to fine-tune again"
    ! wanted sft || [ -e "$out/sft" ] || command -v "$llamafactory" >/dev/null ||
        fail "$llamafactory not found: pip install llamafactory deepspeed in a separate environment, or set LLAMAFACTORY"
    ! wanted rl || train "$base" --check
    [ -e "$root/.venv/.vlmgym-setup" ] || bash "$root/setup.sh"
fi
if wanted data && ! [ -e "$out/data" ]; then
    place=--output-dir
    if [ -e "$out/episodes" ]; then place=--resume; fi
    # shellcheck disable=SC2206  # words are options
    expert=(${EXPERT:---policy oracle})
    run "$root/.venv/bin/vlmgym" eval "${play[@]}" "${expert[@]}" --episodes "$episodes" --videos 0 --no-report \
        $place "$out/episodes"
    # a total of 1 requires correct format and perception
    [ -e "$out/rescored" ] || run "$root/.venv/bin/vlmgym" rescore "$out/episodes" --output-dir "$out/rescored" \
        --reward.game-weight 0 --reward.format-weight 0.5 --reward.perception-weight 0.5 --reward.perception-mode exact
    run "$root/.venv/bin/vlmgym" export "$out/rescored" --format sharegpt --min-reward 1 --output-dir "$out/data"
fi
if wanted sft && ! [ -e "$out/sft/train_results.json" ]; then # LLaMA-Factory writes it at the end
    run env "MODEL=$base" "LLAMAFACTORY=$llamafactory" bash "$scripts/sft.sh" "$out/data" "$out/sft"
fi
if wanted rl; then train "$out/sft"; fi
