"""Options of the evaluation scripts and `vlmgym eval`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from vlmgym.checks import check_int
from vlmgym.errors import UsageError
from vlmgym.rollout.limits import Budget, check_limits
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.options import GameOptions
from vlmgym.workers.limits import Backend, check_num_workers


@dataclass(frozen=True, kw_only=True)
class EvalConfig(PromptConfig, GameOptions):
    """Play games with a policy, and write records, curves, videos and a report page."""

    policy: str | None = None
    """random, random-legal, oracle, openai, vllm, transformers, replay, human, MODULE:FUNCTION or FILE.py:FUNCTION.
    Default: set by the script, or random. Each policy has its own options: --policy openai --help."""
    episodes: int = 10
    """Episodes per game, with seeds seed, seed + 1, ..."""
    all_rows: bool = False
    """Play every row of the dataset once, instead of --episodes."""
    max_turns: int = 100
    """Turn limit of an episode; illegal and unparsable responses count."""
    seed: int = 0
    """Seed of the first episode."""
    workers: int | None = None
    """Worker processes, at most 8 per core and one per episode; 0 plays in the main process. Default: one per core."""
    backend: Backend = "process"
    """Run workers as processes on this machine, or on the Ray cluster at RAY_ADDRESS."""
    concurrency: int = 64
    """Maximum number of concurrent episodes."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Weights and shaping of the reward; they do not affect the score."""
    budget: Annotated[Budget, tyro.conf.arg(name="")] = field(default_factory=Budget)
    output_dir: Path | None = None
    """Output folder. Default: logs/ and videos/ next to a script, or a new folder in logs/ for vlmgym eval."""
    resume: Path | None = None
    """Folder of an earlier run: play its episodes without a result. All other options must be the same."""
    videos: int = 10
    """Number of videos per game, of the first episodes."""
    report: bool = True
    """Write report.html."""
    tensorboard: bool = False
    """Log finished episodes to TensorBoard, in tensorboard/ in the output folder."""
    wandb: str | None = None
    """Weights & Biases project to log finished episodes to."""
    fps: int = 4
    """Turns per second in the videos, 1 to 60."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self.episodes, self.max_turns, self.seed, self.concurrency)
        check_num_workers("workers", self.workers, self.backend)
        if self.all_rows and self.episodes != EvalConfig.episodes:
            raise UsageError("--all-rows sets the number of episodes: remove --episodes")
        check_int("videos", self.videos, 0)
        if not 1 <= self.fps <= 60:
            raise UsageError(f"fps must be between 1 and 60, got {self.fps}")
        if (
            self.resume is not None
            and self.output_dir is not None
            and self.resume.resolve() != self.output_dir.resolve()
        ):
            raise UsageError("a resumed run continues in its own folder: remove --output-dir")
