"""The options that all evaluation scripts and `vlmgym eval` share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.rollout.limits import Budget, check_limits
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.options import GameOptions
from vlmgym.workers.process import Backend, check_num_workers


@dataclass(frozen=True, kw_only=True)
class EvalConfig(GameOptions):
    """Play episodes of games with a policy; leave records, curves, videos and a page to look at."""

    policy: str | None = None
    """random, random-legal, oracle, openai, vllm, transformers, replay, human, MODULE:FUNCTION or FILE.py:FUNCTION.
    Default: the script's own, or random. Each has options of its own: --policy openai --help."""
    episodes: int = 10
    """Episodes of each game; their seeds are seed, seed + 1, ..."""
    all_rows: bool = False
    """Ask about every row of the data once: as many episodes as there are rows, instead of --episodes."""
    max_turns: int = 100
    """Limit of turns of an episode; an illegal or unparsable response uses one up."""
    seed: int = 0
    """First seed."""
    workers: int | None = None
    """Worker processes, at most 8 per core and one per episode; 0 plays in this process. Default: one per core."""
    backend: Backend = "process"
    """Where the worker processes are: on this machine, or on those of the Ray cluster that RAY_ADDRESS names."""
    concurrency: int = 64
    """Episodes played at once, at most."""
    history: int = 0
    """Earlier turns that a prompt repeats."""
    history_images: int = 0
    """Of how many of these turns the images are shown again."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Weights and shaping of the reward; the score is always the game's own."""
    budget: Annotated[Budget, tyro.conf.arg(name="")] = field(default_factory=Budget)
    output_dir: Path | None = None
    """Folder for everything that is written. Default: a script writes to logs/ and videos/ beside itself, the command
    vlmgym eval to a new folder under logs/ of the current folder."""
    resume: Path | None = None
    """Folder of an earlier run: play what is missing there or has no result. All other options as they were."""
    videos: int = 10
    """Episodes of each game that get a video, the first ones; 0: none."""
    report: bool = True
    """Write report.html."""
    tensorboard: bool = False
    """Log every finished episode to TensorBoard, in tensorboard/ of the run's folder."""
    wandb: str | None = None
    """Project of Weights & Biases to log every finished episode to."""
    fps: int = 4
    """Turns a second in the videos, 1 to 60."""

    def __post_init__(self) -> None:
        check_limits(self.episodes, self.max_turns, self.seed, self.concurrency, self.history, self.history_images)
        check_num_workers("workers", self.workers, self.backend)
        if self.all_rows and self.episodes != EvalConfig.episodes:
            raise UsageError("--all-rows says how many episodes there are: leave out either it or --episodes")
        check_int("videos", self.videos, 0)
        if not 1 <= self.fps <= 60:
            raise UsageError(f"fps is 1 to 60, not {self.fps}")
        if (
            self.resume is not None
            and self.output_dir is not None
            and self.resume.resolve() != self.output_dir.resolve()
        ):
            raise UsageError("a resumed run goes on in its own folder: leave out --output-dir, or name the same one")
