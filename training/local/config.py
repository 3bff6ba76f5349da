"""The configuration of a training run; presets are files of command-line options."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.core.checks import check_numbers
from training.core.rollouts import PlayConfig, blank
from training.core.states import StateConfig
from training.local.actor import ModelConfig
from training.local.cold_start import ColdStartConfig
from training.local.grpo import GrpoConfig
from training.local.ppo import PpoConfig
from training.local.rollout import RolloutConfig
from training.local.update import UpdateConfig
from training.tiny_vlm import TinySize
from vlmgym.cli.console import parse_options
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.policies.base import identity
from vlmgym.rollout.turn import Transform
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.options import GameOptions

DEFAULT_GAMES = ("2048",)
"""What is played unless games or a curriculum are named."""
PRESETS = Path(__file__).parent / "presets"
"""A file of command-line options each."""


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What is measured before and after, on positions and episodes that are drawn apart from those of training."""

    states: int = 256
    """Positions that are answered once each; 0: none."""
    episodes: int = 16
    """Whole episodes of each game, which leave records, curves and a page; 0: none."""
    turns: int = 50
    """Limit of turns of such an episode."""
    temperature: float = 1.0
    """0 takes the likeliest tokens."""

    def __post_init__(self) -> None:
        if min(self.states, self.episodes) < 0 or self.turns < 1:
            raise UsageError("states and episodes of an evaluation are at least 0, and turns at least 1")
        check_numbers(self, at_least_0=("temperature",))


@dataclass(frozen=True, kw_only=True)
class TrainConfig(GameOptions):
    """Train a Qwen-VL on games by GRPO or PPO, in this process."""

    preset: str | None = None
    """Options to begin with: tiny (a CPU), 1x24gb, 1x80gb, or a file of options; those given beside it override.
    Default: tiny, or 1x24gb where a model is named."""
    algorithm: Literal["grpo", "ppo"] = "grpo"
    """How answers are learned from."""
    games: tuple[str, ...] | None = None
    """Games or tasks, drawn with equal weights. Default: 2048."""
    curriculum: Path | None = None
    """A curriculum instead: a TOML file, or a name such as geospot (docs/curricula.md)."""
    steps: int = 100
    """Steps of reinforcement learning."""
    answers: int = 64
    """Answers of a step, or episodes: PPO gives one to each position, GRPO --grpo.group."""
    seed: int = 0
    """Decides positions, tokens, minibatches, and the weights of a tiny model."""
    output_dir: Path | None = None
    """Folder for everything that is written. Default: a new one under logs/."""
    resume: Path | None = None
    """Folder of an earlier run: go on from its last checkpoint, with the options it had."""
    checkpoint_interval: int = 50
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints that are kept, the latest ones; the final model is kept besides."""
    merge: bool = False
    """With --lora, checkpoints hold the whole model with its adapters added, too; the model of the end always does."""
    rollouts_every: int = 1
    """Steps between those whose rollouts are recorded; 0: none."""
    wandb: str | None = None
    """Project of Weights & Biases to log to, if wandb is installed. TensorBoard files are always written."""
    blank: bool = False
    """Train on grey images: a control, which shows what can be learned without seeing."""
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = field(default_factory=ModelConfig)
    """The model."""
    tiny: TinySize = field(default_factory=TinySize)
    """Size of the tiny model that is made where no model is named."""
    play: PlayConfig = field(default_factory=PlayConfig)
    """Single answers or whole episodes."""
    states: StateConfig = field(default_factory=StateConfig)
    """Which positions, and which of them are held out."""
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Weights and shaping of the reward."""
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """How responses are written."""
    cold_start: ColdStartConfig = field(default_factory=ColdStartConfig)
    """Supervised learning before."""
    grpo: GrpoConfig = field(default_factory=GrpoConfig)
    """Of GRPO."""
    ppo: PpoConfig = field(default_factory=PpoConfig)
    """Of PPO."""
    update: UpdateConfig = field(default_factory=UpdateConfig)
    """How the model is changed."""
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    """What is measured before and after."""

    def __post_init__(self) -> None:
        for name in ("steps", "answers", "checkpoint_interval", "keep"):
            if getattr(self, name) < (0 if name == "steps" else 1):
                raise UsageError(f"{name} is at least {0 if name == 'steps' else 1}, not {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"a seed is at least 0 and less than 2^63, not {self.seed}")
        if self.rollouts_every < 0:
            raise UsageError(f"rollouts_every is at least 0, not {self.rollouts_every}")
        if self.answers % self.copies:
            raise UsageError(f"answers are a multiple of the group of {self.copies}, not {self.answers}")
        if self.updates_in_a_pass > self.answers:
            raise UsageError(
                f"{self.algorithm}.minibatches is at most the number of answers of a step, {self.answers}, not "
                f"{self.updates_in_a_pass}"
            )
        if self.algorithm == "ppo":
            for name, instead in (("entropy", "entropy"), ("clip_low", "clip"), ("clip_high", "clip")):
                if getattr(self.update, name) != getattr(UpdateConfig, name):
                    option = f"--update.{name.replace('_', '-')}"
                    raise UsageError(f"{option} is GRPO's: with PPO give --ppo.{instead} instead")
        if self.rollout.temperature == 0:
            raise UsageError("rollouts need a temperature above 0: without chance there is nothing to learn from")
        if self.games is not None and self.curriculum is not None:
            raise UsageError("a curriculum says which games are played: leave out --games beside --curriculum")

    @property
    def rows(self) -> int:
        """Positions of a step."""
        return self.answers // self.copies

    @property
    def copies(self) -> int:
        """Seats of each position."""
        return self.grpo.group if self.algorithm == "grpo" else 1

    @property
    def updates_in_a_pass(self) -> int:
        """Over the answers of a step."""
        return self.grpo.minibatches if self.algorithm == "grpo" else self.ppo.minibatches

    @property
    def look(self) -> Transform:
        """What becomes of each image before the model sees it."""
        return blank if self.blank else identity

    def make_curriculum(self) -> Curriculum:
        """The games, at their stages.

        Raises:
            UsageError: There is no such game or file, or difficulty is set beside a curriculum.
        """
        if self.curriculum is None:
            return Curriculum.of([self.make_game(game) for game in self.games or DEFAULT_GAMES])
        if self.any_given:
            raise UsageError(
                "a curriculum sets difficulty and config fields of its games: leave out --config and the like"
            )
        return Curriculum.read(self.curriculum)


def read_config(args: Sequence[str]) -> TrainConfig:
    """The configuration that a command line says, after the options of its preset, which it overrides, config fields
    too.

    Raises:
        UsageError: There is no such preset, a value is not accepted, or options contradict each other.
    """
    named = _glance(args)
    name = named.preset or ("tiny" if named.model is None else "1x24gb")
    preset = preset_options(name)
    if (PRESETS / f"{name}.args").is_file():  # a user's own file means what it says
        if named.curriculum is not None:
            preset = without(without(preset, "--config"), "--size")
        elif named.games not in (None, [*DEFAULT_GAMES]):
            preset = without(preset, "--config")  # config fields are 2048's
    config = parse_options(TrainConfig, [*preset, *args], prog="python -m training.local.train")
    sizes = [word for word in args if word.startswith("--tiny.")]
    if sizes and config.model.model is not None:
        raise UsageError(f"a model that is named has its size: leave out {sizes[0]} beside --model")
    _check_algorithm(config, args)
    of_preset = len(_glance(preset).config)
    given = {setting.partition("=")[0] for group in config.overrides[of_preset:] for setting in group}
    kept = [
        tuple(setting for setting in group if setting.partition("=")[0] not in given)
        for group in config.overrides[:of_preset]
    ]
    return replace(config, overrides=(*kept, *config.overrides[of_preset:]))


def _check_algorithm(config: TrainConfig, args: Sequence[str]) -> None:
    """Refuse options that the algorithm does not read; of a preset, which is for both, they are left alone."""
    given = [word.partition("=")[0] for word in args if word.startswith("--")]
    other = {"grpo": "ppo", "ppo": "grpo"}[config.algorithm]
    for option in given:
        if option.startswith(f"--{other}."):
            raise UsageError(f"{option} is {other.upper()}'s: leave it out, or give --algorithm {other}")
    if config.algorithm == "ppo" and "--update.lr" in given and config.ppo.lr is not None:
        raise UsageError(
            f"the learning rate of PPO is --ppo.lr, {config.ppo.lr:g}: give another, and leave out --update.lr"
        )


def _glance(args: Sequence[str]) -> argparse.Namespace:
    """What has to be known before options are parsed in earnest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset")
    parser.add_argument("--model")
    parser.add_argument("--curriculum")
    parser.add_argument("--games", nargs="*")
    parser.add_argument("--config", nargs="+", action="append", default=[])
    try:
        return parser.parse_known_args(args)[0]
    except argparse.ArgumentError:
        return argparse.Namespace(
            preset=None, model=None, curriculum=None, games=None, config=[]
        )  # an option without its value: tyro says so


def without(options: Sequence[str], name: str) -> list[str]:
    """Options without one of them and its values."""
    kept: list[str] = []
    dropping = False
    for word in options:
        dropping = word.partition("=")[0] == name or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
    return kept


def preset_options(preset: str) -> list[str]:
    """The options of a preset by its name, or of a file: one or several a line, # begins a comment.

    Raises:
        UsageError: There is none.
    """
    named = PRESETS / f"{preset}.args"
    path = named if named.is_file() else Path(preset)
    try:
        return shlex.split(path.read_text(encoding="utf-8"), comments=True)
    except (OSError, UnicodeDecodeError, ValueError):
        names = ", ".join(sorted(file.stem for file in PRESETS.glob("*.args")))
        raise UsageError(f"there is no preset {preset!r}; the presets are {names}, or a file of options") from None
