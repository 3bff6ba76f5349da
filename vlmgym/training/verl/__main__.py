"""Train a vision-language model on games with verl.

    python -m vlmgym.training.verl data.train_files=data/2048/train.parquet ...
    python -m vlmgym.training.verl data.train_files=data/2048/train.parquet ... --check

Arguments are options of verl's main_ppo. --check only reports problems.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from vlmgym.errors import UsageError, VlmgymError, first_line
from vlmgym.terminal import reporting_errors


def main(args: list[str]) -> None:
    """Train, or only check with --check; raise `UsageError` if verl rejects an option."""
    if not args or {"-h", "--help"} & set(args):
        print(__doc__)
        return
    if unknown := [arg for arg in args if arg.startswith("-") and arg != "--check"]:
        raise UsageError(f"unknown option {unknown[0]}: use --check, --help, or options of verl, NAME=VALUE")
    if find_spec("verl") is None or find_spec("verl.trainer.main_ppo") is None:  # EasyR1's package is also called verl
        raise UsageError("verl is not installed: docs/integrations/verl.md has the command")
    options = [arg for arg in args if arg != "--check"]
    config = read_config(options)
    if options != args:
        print("no problems found")
        return

    import ray
    from ray.exceptions import RayTaskError
    from verl.trainer.main_ppo import run_ppo

    from vlmgym.training.verl.trainer import TaskRunner

    try:
        run_ppo(config, ray.remote(TaskRunner))
    except RayTaskError as error:
        if isinstance(error.cause, VlmgymError):
            raise error.cause from None
        raise


def read_config(options: list[str]) -> Any:
    """Return verl's configuration with these options; raise `UsageError` if verl rejects one."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=options)
        auto_set_device(config)
        validate_config(config, need_reference_policy(config), need_critic(config))
    except (HydraException, OmegaConfBaseException, AssertionError, ValueError) as error:
        raise UsageError(first_line(error)) from None
    return config


if __name__ == "__main__":
    with reporting_errors():
        main(sys.argv[1:])
