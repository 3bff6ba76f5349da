#!/usr/bin/env bash
# GRPO on Shisen-Sho with images of CIFAR-10. Variables and settings: easyr1.sh.
exec bash "$(dirname -- "${BASH_SOURCE[0]}")/easyr1.sh" shisensho_cifar10 "$@"
