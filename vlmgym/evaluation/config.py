"""Options of the evaluation scripts and `vlmgym eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.rollout.settings import RunSettings
from vlmgym.sandbox.options import GameOptions
from vlmgym.workers.pool import Backend, ProcessPool, check_num_workers, num_workers_for

RunArgument = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
RunArguments = Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
"""Folders of runs on a command line."""


@dataclass(frozen=True, kw_only=True)
class SavedRunOptions:
    """Options of a command that reads saved runs: worker processes, and data that it may open."""

    workers: int | None = None
    """Worker processes; 0 works in the main process. None means one per core."""
    data: tuple[str, ...] = ()
    """Data named in the run that may be opened: a stranger's run could name any file or URL."""

    def __post_init__(self) -> None:
        check_num_workers("workers", self.workers)

    def pool(self, calls: int) -> ProcessPool:
        """Make a worker pool, with at most one worker per call."""
        return ProcessPool(num_workers_for(calls, self.workers))


@dataclass(frozen=True, kw_only=True)
class RunsOptions:
    """Options of a command that summarises several runs."""

    runs: RunArguments
    """Folders of runs, or folders that contain runs, such as the one that vlmgym eval --samples N writes."""
    data: tuple[str, ...] = ()
    """Data named in the runs that may be opened: a stranger's run could name any file or URL."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UsageError("name at least one run, or a folder that contains runs")


@dataclass(frozen=True, kw_only=True)
class EvalConfig(RunSettings, GameOptions):
    """Play games with a policy, and write records, curves, videos and a report page."""

    policy: str | None = None
    """random, random-legal, oracle, openai, vllm, transformers, replay, human, or MODULE:NAME or FILE.py:NAME of a
    function or a ModelPolicy.
    None means openai with --provider or --base-url, else random, or the function of a script.
    Each policy has its own options: --policy vllm --help."""
    samples: int = 1
    """Episodes per seed, each in a run of its own in the output folder, with another --sample-seed if that is set;
    see vlmgym repeats."""
    skins: bool = False
    """Play the same episodes in every skin (--skin), each in a run of its own in the output folder; print a table."""
    all_rows: bool = False
    """Play every row of the dataset once, instead of --episodes."""
    workers: int | None = None
    """Worker processes, at most one per episode; 0 plays in the main process.
    None means one per core, or 0 if a model plays games that are fast to play and render."""
    backend: Backend = "process"
    """Run workers as processes on this machine, or on the Ray cluster at RAY_ADDRESS."""
    output_dir: Path | None = None
    """Output folder. None means a new folder in logs/ or, for a script, logs/ and videos/ next to the script."""
    resume: Path | None = None
    """Folder of an earlier run: play the episodes that have no result yet.
    Options that affect episodes must be the same, but --episodes may be higher."""
    dry_run: bool = False
    """Only estimate requests, tokens, cost and duration; send and write nothing."""
    videos: int = 10
    """Number of episodes per game to write a video of, starting with the first."""
    report: bool = True
    """Write report.html."""
    tensorboard: bool = False
    """Log finished episodes to TensorBoard, in tensorboard/ in the output folder."""
    wandb: str | None = None
    """Weights & Biases project to log finished episodes to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_num_workers("workers", self.workers, self.backend)
        if self.all_rows and self.episodes != EvalConfig.episodes:
            raise UsageError("--all-rows sets the number of episodes: remove --episodes")
        check_int("videos", self.videos, 0)
        check_int("samples", self.samples, 1)
        if self.skins and (self.samples > 1 or self.skin != "flat"):
            raise UsageError("--skins plays every skin once: remove --samples and --skin")
        if (
            self.resume is not None
            and self.output_dir is not None
            and self.resume.resolve() != self.output_dir.resolve()
        ):
            raise UsageError("a resumed run continues in its own folder: remove --output-dir")
