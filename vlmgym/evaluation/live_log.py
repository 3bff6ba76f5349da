"""Live logging of finished episodes to TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias
from uuid import uuid4

from rich.console import Console

from vlmgym.errors import UsageError, importing, one_line
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


Logger: TypeAlias = TensorBoardLogger | WandbLogger


class LiveLog:
    """Logs finished episodes with running statistics of their game.

    The logged step is the number of results so far, over all games. A logger that fails is reported and dropped; it
    never ends the run.
    """

    def __init__(self, loggers: Mapping[str, Logger], earlier: Iterable[EpisodeRecord], console: Console) -> None:
        """Continue the steps and statistics of earlier sessions; `earlier` is consumed only if there is a logger."""
        self._loggers, self._console = dict(loggers), console
        self._games: dict[str, GameTally] = {}
        for episode in earlier if loggers else ():
            if episode.score is not None:
                self._add(episode)

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._try(lambda logger: logger.close(failed=kind is not None))

    def episode(self, episode: EpisodeRecord) -> None:
        """Log an episode."""
        if self._loggers:
            tally = self._add(episode)
            step = sum(len(game.scores) for game in self._games.values())
            numbers = {f"{episode.game.id}/{name}": value for name, value in _numbers(tally).items()}
            self._try(lambda logger: logger.log(step, numbers))

    def _add(self, episode: EpisodeRecord) -> GameTally:
        tally = self._games.setdefault(episode.game.id, GameTally())
        tally.add(episode)
        return tally

    def _try(self, action: Callable[[Logger], None]) -> None:
        """Call `action` with each logger; report and drop those that fail."""
        for name, logger in [*self._loggers.items()]:
            try:
                action(logger)
            except Exception as problem:
                del self._loggers[name]
                reason = one_line(f"{type(problem).__name__}: {problem}")
                self._console.print(f"logging to {name} failed and is disabled ({reason})", soft_wrap=True)


def _numbers(tally: GameTally) -> dict[str, float]:
    numbers: dict[str, float] = {"episodes": len(tally.scores)}
    if tally.scores:
        numbers |= {"score": tally.scores[-1], "score_mean": math.fsum(tally.scores) / len(tally.scores)}
    if (interval := tally.interval()) is not None:
        numbers["score_ci_low"], numbers["score_ci_high"] = interval
    numbers |= {f"turns_{outcome.value}": tally.outcomes[outcome] for outcome in Outcome}
    numbers |= {f"status_{status}": count for status, count in tally.unfinished.items()}
    numbers |= {f"{kind}_tokens": count for kind, count in tally.tokens.items()}
    return numbers | ({"cost": math.fsum(tally.costs)} if tally.costs else {})


def open_live_log(
    tensorboard: bool, wandb: str | None, folder: RunFolder, earlier: Iterable[EpisodeRecord], console: Console
) -> LiveLog:
    """Open the live log of a run whose `run.json` exists; `earlier` are the records of its earlier sessions."""
    loggers: dict[str, Logger] = {}
    if tensorboard:
        loggers["TensorBoard"] = TensorBoardLogger(folder.folder / "tensorboard")
    if wandb is not None:
        loggers["Weights & Biases"] = WandbLogger(wandb, folder)
    return LiveLog(loggers, earlier, console)


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
