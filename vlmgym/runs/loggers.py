"""Live logging packages: TensorBoard and Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from vlmgym.errors import UsageError, importing, one_line
from vlmgym.runs.files import replace_file


def check_loggers(*, tensorboard: bool = False, wandb: str | None = None) -> None:
    """Check that the packages of the loggers are installed."""
    for package, used in (("tensorboard", tensorboard), ("wandb", wandb is not None)):
        if used:
            with importing(f"--{package}", "log"):
                import_module(package)


def begin_wandb(project: str, folder: Path, id_file: Path, config: Mapping[str, Any]) -> Any:
    """Start a Weights & Biases run, or resume the run whose id is in `id_file`. Logged rows must have a `step`."""
    import wandb

    if not id_file.exists():
        replace_file(id_file, uuid4().hex.encode())
    try:
        run = wandb.init(
            project=project,
            dir=str(folder),
            name=folder.name,
            id=id_file.read_text(),
            resume="allow",
            config=dict(config),
        )
    except wandb.Error as error:
        raise UsageError(f"Weights & Biases rejects the run: {one_line(str(error))}") from None
    run.define_metric("*", step_metric="step")  # wandb's internal steps cannot be repeated after a crash
    return run
