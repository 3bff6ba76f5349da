#!/usr/bin/env bash
# G0 of the G1 paper: reinforcement learning without a cold start. docs/g1.md describes it.
#
#     bash training/scripts/g0.sh 2048 --dry-run    # print what would run
#     bash training/scripts/g0.sh 2048 --check      # report problems in seconds, without training
#     bash training/scripts/g0.sh 2048
#
# The first argument is a game: 2048, shisensho, shisensho_cifar10, swap, or all (2048, Shisen-Sho and Swap together).
# OUT is checkpoints/vlmgym/g0_GAME. Other variables and settings are as in easyr1.sh:
set -euo pipefail
easyr1=$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh
case ${1:-} in
-h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exec bash "$easyr1" --help ;;
2048 | shisensho | shisensho_cifar10 | swap | all) ;;
*) echo "g0.sh: the first argument must be a game: 2048, shisensho, shisensho_cifar10, swap or all" >&2 && exit 2 ;;
esac
game=$1 dry=no args=()
for argument in "${@:2}"; do
    if [ "$argument" = --dry-run ]; then dry=yes; else args+=("$argument"); fi
done
config=$game out=${OUT:-checkpoints/vlmgym/g0_$game}
if [ "$game" = all ]; then config=mixed; fi
command=(bash "$easyr1" "$config" g0 "trainer.experiment_name=g0_$game" ${args[@]+"${args[@]}"})
if [ $dry = yes ]; then
    printf 'OUT=%q' "$out" && printf ' %q' "${command[@]}" && echo && exit
fi
OUT=$out exec "${command[@]}"
