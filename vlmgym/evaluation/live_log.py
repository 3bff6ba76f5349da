"""Live logging of finished episodes to TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import os
import socket
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol
from uuid import uuid4

from rich.console import Console

from vlmgym.errors import UsageError, importing, one_line
from vlmgym.runs.files import replace_file, writing
from vlmgym.runs.record import EpisodeRecord
from vlmgym.runs.run import RunFolder
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval


class Logger(Protocol):
    """Destination for logged metrics."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the metrics of a step."""

    def close(self, *, failed: bool) -> None:
        """Flush and close."""


class LiveLog:
    """Logs finished episodes with running statistics of their game.

    The logged step is the number of results so far, over all games. A logger that fails is reported and dropped; it
    never ends the run.
    """

    def __init__(self, loggers: Mapping[str, Logger], earlier: Iterable[EpisodeRecord], console: Console) -> None:
        """Continue the steps and statistics of earlier sessions; `earlier` is consumed only if there is a logger."""
        self._loggers, self._console = dict(loggers), console
        self._games: dict[str, _RunningGame] = {}
        self._step = 0
        for episode in earlier if loggers else ():
            if episode.score is not None:
                self._add(episode)

    def __enter__(self) -> LiveLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._try(lambda logger: logger.close(failed=kind is not None), close=False)

    def episode(self, episode: EpisodeRecord) -> None:
        """Log an episode."""
        if self._loggers:
            numbers = self._add(episode)
            self._try(lambda logger: logger.log(self._step, numbers))

    def _try(self, action: Callable[[Logger], None], *, close: bool = True) -> None:
        """Call `action` with each logger; report and drop those that fail, so that their errors do not end the run."""
        for name, logger in [*self._loggers.items()]:
            try:
                action(logger)
            except Exception as problem:
                del self._loggers[name]
                reason = one_line(f"{type(problem).__name__}: {problem}")
                message = f"logging to {name} failed and is disabled ({reason})"
                self._console.print(message, soft_wrap=True)
                with suppress(Exception):  # closing may fail for the same reason
                    if close:
                        logger.close(failed=True)

    def _add(self, episode: EpisodeRecord) -> dict[str, float]:
        self._step += episode.score is not None
        game = self._games.setdefault(episode.game.id, _RunningGame())
        game.add(episode)
        return {f"{episode.game.id}/{name}": value for name, value in game.numbers().items()}


class _RunningGame:
    """Running statistics of a game."""

    def __init__(self) -> None:
        self.scores = array("d")
        self.outcomes = Counter(dict.fromkeys(Outcome, 0))
        self.statuses: Counter[str] = Counter()
        self.stages: set[str | None] = set()
        self.tokens: Counter[str] = Counter()
        self.one_turn_each = True

    def add(self, episode: EpisodeRecord) -> None:
        self.statuses[episode.status] += 1
        for turn in episode.turns:
            self.outcomes[turn.outcome] += 1
            for name in ("prompt_tokens", "completion_tokens", "cost"):
                if (count := getattr(turn, name)) is not None:
                    self.tokens[name] += count
        if episode.score is not None:
            self.scores.append(episode.score)
            self.stages.add(episode.stage)
            self.one_turn_each &= episode.is_single_turn

    def numbers(self) -> dict[str, float]:
        numbers: dict[str, float] = {"episodes": len(self.scores)}
        if self.scores:
            numbers |= {"score": self.scores[-1], "score_mean": sum(self.scores) / len(self.scores)}
        interval = confidence_interval(self.scores, unit_interval=self.one_turn_each) if len(self.stages) == 1 else None
        if interval is not None:
            numbers["score_ci_low"], numbers["score_ci_high"] = interval
        numbers |= {f"turns_{outcome.value}": count for outcome, count in self.outcomes.items()}
        numbers |= {f"status_{status.replace(' ', '_')}": count for status, count in self.statuses.items()}
        return numbers | self.tokens


class TensorBoardLogger:
    """Writes event files."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Open a new event file."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._scalar = Event, scalar_pb
        # TensorBoard reads files in name order.
        path = folder / f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        with writing(path):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = RecordWriter(path.open("xb", buffering=0))
            self._add(file_version="brain.Event:2")
            # TensorBoard renders text as Markdown.
            self._add(step=0, summary=text_pb("config", f"```json\n{json.dumps(config, indent=1)}\n```"))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Write a scalar for each metric."""
        for name, value in numbers.items():
            self._add(step=step, summary=self._scalar(name, value))

    def close(self, *, failed: bool) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, **event: Any) -> None:
        self._writer.write(self._event(wall_time=time.time(), **event).SerializeToString())


class WandbLogger:
    """Logs to a Weights & Biases run."""

    def __init__(self, project: str, folder: Path, config: Mapping[str, Any]) -> None:
        self._run = begin_wandb(project, folder, folder / "wandb_id", config)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log the metrics of a step."""
        self._run.log({"step": step, **numbers})

    def close(self, *, failed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(failed))


def open_live_log(
    tensorboard: bool, wandb: str | None, folder: RunFolder, earlier: Iterable[EpisodeRecord], console: Console
) -> LiveLog:
    """Open the live log of a run whose `run.json` exists; `earlier` are the records of its earlier sessions."""
    loggers: dict[str, Logger] = {}
    if tensorboard or wandb is not None:
        config = json.loads(folder.run.read_text(encoding="utf-8"))
    if tensorboard:
        loggers["TensorBoard"] = TensorBoardLogger(folder.folder / "tensorboard", config)
    if wandb is not None:
        loggers["Weights & Biases"] = WandbLogger(wandb, folder.folder, config)
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
