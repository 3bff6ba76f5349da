"""Train a vision-language model on games with EasyR1.

    python -m vlmgym.training.easyr1 training/configs/base.yaml training/configs/2048.yaml trainer.n_gpus_per_node=4
    python -m vlmgym.training.easyr1 training/configs/base.yaml training/configs/2048.yaml --check

Arguments are YAML files and individual settings; later files override earlier ones. --check only reports
problems.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from vlmgym.errors import UsageError
from vlmgym.terminal import reporting_errors
from vlmgym.training.easyr1 import stand_in_for_vllm


def main(args: list[str]) -> None:
    """Train, or only check with --check; raise `UsageError` if the configuration has problems."""
    if not args or {"-h", "--help"} & set(args):
        print(__doc__)
        return
    if unknown := [arg for arg in args if arg.startswith("-") and arg != "--check"]:
        raise UsageError(f"unknown option {unknown[0]}: use --check, --help, or settings NAME=VALUE")
    settings = [arg for arg in args if arg != "--check"]
    if find_spec("verl") is None:
        raise UsageError("EasyR1 is not installed: run bash setup.sh --easyr1 with access to GitHub")
    stand_in_for_vllm()  # lets --check run without vLLM, and report that it is missing
    from vlmgym.training.easyr1.config import preflight, read_config

    config = read_config(settings)
    problems, facts = preflight(config)
    for fact in facts:
        print(fact)
    if problems:
        raise UsageError("the configuration has problems:\n" + "\n".join(f"- {problem}" for problem in problems))
    if settings != args:
        print("no problems found")
        return

    from vlmgym.training.easyr1.trainer import build_trainer, start_ray
    from vlmgym.training.easyr1.worker import VlmgymWorker

    start_ray()
    trainer = build_trainer(config, VlmgymWorker)
    trainer.init_workers()
    trainer.fit()


if __name__ == "__main__":
    with reporting_errors():
        main(sys.argv[1:])
