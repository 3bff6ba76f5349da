"""Live logging of finished episodes to TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from rich.console import Console

from vlmgym.errors import UsageError, importing, one_line
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.summary import GameTally
from vlmgym.runs.files import replace_file
from vlmgym.runs.record import EpisodeRecord
from vlmgym.runs.run import RunFolder
from vlmgym.sandbox.core.reward import Outcome


class TensorBoardLogger:
    """Writes event files."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(str(folder))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write a scalar for each metric."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        """Close the file."""
        self._writer.close()


class WandbLogger:
    """Logs to a Weights & Biases run."""

    def __init__(self, project: str, folder: RunFolder) -> None:
        config = json.loads(folder.run.read_text(encoding="utf-8"))
        self._run = begin_wandb(project, folder.folder, folder.folder / "wandb_id", config)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        self._run.log({"step": step, **numbers})

    def close(self, *, failed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(failed))


class LiveLog:
    """Logs finished episodes with running statistics of their game.

    The logged step is the number of results so far, over all games. A logger that fails is reported and dropped; it
    never ends the run.
    """

    def __init__(
        self, config: EvalConfig, folder: RunFolder, earlier: Iterable[EpisodeRecord], console: Console
    ) -> None:
        """Log as configured; `earlier` are the records of earlier sessions, consumed only if there is a logger."""
        self._loggers: dict[str, TensorBoardLogger | WandbLogger] = {}
        if config.tensorboard:
            self._loggers["TensorBoard"] = TensorBoardLogger(folder.folder / "tensorboard")
        if config.wandb is not None:
            self._loggers["Weights & Biases"] = WandbLogger(config.wandb, folder)
        self._games, self._console = defaultdict[str, GameTally](GameTally), console
        for episode in earlier if self._loggers else ():
            if episode.score is not None:
                self._games[episode.game.id].add(episode)

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._try(lambda logger: logger.close(failed=kind is not None))

    def episode(self, episode: EpisodeRecord) -> None:
        """Log an episode."""
        if self._loggers:
            game = episode.game.id
            self._games[game].add(episode)
            step = sum(len(tally.values["score"]) for tally in self._games.values())
            numbers = {f"{game}/{name}": value for name, value in _numbers(self._games[game]).items()}
            self._try(lambda logger: logger.log(step, numbers))

    def _try(self, action: Callable[[TensorBoardLogger | WandbLogger], None]) -> None:
        """Call `action` with each logger; report and drop those that fail."""
        for name, logger in [*self._loggers.items()]:
            try:
                action(logger)
            except Exception as problem:
                del self._loggers[name]
                reason = one_line(f"{type(problem).__name__}: {problem}")
                self._console.print(f"logging to {name} failed and is disabled ({reason})", soft_wrap=True)


def _numbers(tally: GameTally) -> dict[str, float]:
    scores, costs = tally.values["score"], tally.values["cost"]
    numbers: dict[str, float] = {"episodes": len(scores)}
    if scores:
        numbers |= {"score": scores[-1], "score_mean": math.fsum(scores) / len(scores)}
    if (interval := tally.interval()) is not None:
        numbers["score_ci_low"], numbers["score_ci_high"] = interval
    numbers |= {f"turns_{outcome.value}": tally.counts["outcomes"][outcome] for outcome in Outcome}
    numbers |= {f"status_{status}": count for status, count in tally.counts["unfinished"].items()}
    numbers |= {f"{kind}_tokens": count for kind, count in tally.counts["tokens"].items()}
    return numbers | ({"cost": math.fsum(costs)} if costs else {})


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
