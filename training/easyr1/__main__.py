"""Trains a vision-language model on games by EasyR1.

    python -m training.easyr1 training/configs/base.yaml training/configs/2048.yaml trainer.n_gpus_per_node=4
    python -m training.easyr1 training/configs/base.yaml training/configs/2048.yaml --check

Takes YAML files, each over the ones before it, and single settings. --check says what would not work, and trains
nothing.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from vlmgym.errors import UsageError
from vlmgym.options import reporting_errors


def main(args: list[str]) -> None:
    """Train, or check.

    Raises:
        UsageError: The configuration would not work.
    """
    if not args or {"-h", "--help"} & set(args):
        print(__doc__)
        return
    if find_spec("verl") is None:
        raise UsageError("EasyR1 is not installed here: run bash setup.sh --train and use .venv-train/bin/python")
    if "vllm" not in sys.modules and find_spec("vllm") is None:
        raise UsageError("EasyR1 needs vLLM: run bash setup.sh --train on a machine with a GPU")
    from training.easyr1.check import check_run
    from training.easyr1.config import read_config

    config = read_config([arg for arg in args if arg != "--check"])
    checked = check_run(config)
    for fact in checked.facts:
        print(fact)
    if checked.problems:
        raise UsageError("this would not work:\n" + "\n".join(f"- {problem}" for problem in checked.problems))
    if "--check" in args:
        print("nothing speaks against this run")
        return

    from training.easyr1.launch import build_trainer, start_ray
    from training.easyr1.worker import VlmgymWorker

    start_ray()
    trainer = build_trainer(config, VlmgymWorker)
    trainer.init_workers()
    trainer.fit()


if __name__ == "__main__":
    with reporting_errors():
        main(sys.argv[1:])
