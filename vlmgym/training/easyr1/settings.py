"""Settings of a run, as far as they can be read without EasyR1: YAML files, and the section `vlmgym`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from yaml import YAMLError

from vlmgym.curriculum import Curriculum, CurriculumFile, EntryFile
from vlmgym.curriculum.file import with_data
from vlmgym.errors import UsageError, describe_validation_error, first_line
from vlmgym.policies.checkpoint import error_text, resolve_checkpoint
from vlmgym.rollout.states import StateConfig
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.training.states import MultiTurnConfig

HUB_SECONDS = 10.0
"""Timeout for requests to the Hub, in seconds."""
BROKEN = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that transformers raises for missing or invalid model files."""


class _Part(BaseModel):
    # YAML parses the curriculum name 2048 as a number.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)


class Validation(_Part):
    """Validation on whole episodes of each game at its last stage, with validation seeds; temperature 0 is greedy."""

    episodes: int = Field(16, ge=0)
    max_turns: int = Field(50, ge=1)
    temperature: float = Field(0.0, ge=0)


class Section(_Part):
    """The `vlmgym:` section of a configuration.

    Attributes:
        games: Games with difficulty and stages, as in a curriculum file.
        curriculum: Curriculum file or name, instead of `games`.
        overrides: Data settings of all tasks: `data`, `split`, `columns`, `urls` and so on (docs/data.md).
        play: Maximum number of turns (1 for single responses) and contents of prompts.
        states: Distribution of initial states.
        reward: Reward weights and shaping.
        validation: Validation episodes.
        step_weight: Weight of GiGPO's step-level advantage (omega); 0 for episode-level advantages only.
        importance_cap: Cap of truncated importance sampling (2 is common); null for none.
        response_ratio_limit: Limit of the probability ratio of trainer and vLLM, or its inverse, of a whole response;
            responses beyond it are not trained on. null for none.
        rollout_workers: Number of rollout workers; 0 plays in the trainer process.
    """

    games: tuple[EntryFile, ...] = ()
    curriculum: str | None = None
    overrides: dict[str, Any] = {}
    play: MultiTurnConfig = MultiTurnConfig()
    states: StateConfig = StateConfig()
    reward: RewardConfig = RewardConfig()
    validation: Validation = Validation()
    step_weight: float = Field(1.0, ge=0)
    importance_cap: float | None = Field(None, gt=0)
    response_ratio_limit: float | None = Field(None, gt=1)
    rollout_workers: int = Field(8, ge=0, le=1024)

    @model_validator(mode="after")
    def _one_source(self) -> Section:
        if bool(self.games) == (self.curriculum is not None):
            raise ValueError("games or curriculum must be set, but not both")
        return self

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Section:
        """Read the section of a configuration; raise `UsageError` if a field is invalid."""
        try:
            return cls.model_validate(OmegaConf.to_container(data) if isinstance(data, DictConfig) else data)
        except ValidationError as error:
            raise UsageError(f"vlmgym: {describe_validation_error(error)}") from None

    def make_curriculum(self) -> Curriculum:
        """Build the curriculum; raise `UsageError` if a game or file does not exist, or prompts do not fit a game."""
        if self.curriculum is not None:
            curriculum = Curriculum.read(Path(self.curriculum), self.overrides)
        else:
            file = with_data(CurriculumFile(entries=self.games), self.overrides)
            curriculum = Curriculum.from_file(file, "vlmgym.games")
        for game in curriculum.games:
            self.play.check(game)
        return curriculum


def merge_settings(base: Any, args: Sequence[str]) -> Any:
    """Merge YAML files, then settings such as `a.b=value`, over a configuration with a section `vlmgym`.

    Raises:
        UsageError: A file cannot be read, or a setting is invalid.
    """
    for arg in sorted(args, key=lambda arg: "=" in arg):
        try:
            above = OmegaConf.from_dotlist([arg]) if "=" in arg else OmegaConf.load(arg)
            for name, other in (("games", "curriculum"), ("curriculum", "games")):
                if OmegaConf.select(above, f"vlmgym.{name}") is not None:  # games replace a curriculum, and vice versa
                    base.vlmgym.pop(other, None)
            base = OmegaConf.merge(base, above)
        except OSError as error:
            raise UsageError(f"cannot read {arg}: {error.strerror}") from None
        except (YAMLError, OmegaConfBaseException, TypeError, ValueError) as error:
            raise UsageError(f"{arg}: {first_line(error)}") from None
    return base


def check_model(model: str | None) -> None:
    """Raise `UsageError` unless a model exists.

    Called before transformers, which would retry the Hub for each file of a missing model.
    """
    if not model:
        raise UsageError("worker.actor.model.model_path must name a model: set MODEL")
    name = resolve_checkpoint(model, "easyr1")
    if Path(name).is_dir() or isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    try:
        HfApi().model_info(name, timeout=HUB_SECONDS)
    except OfflineModeIsEnabled:
        raise UsageError(f"the model {name} was not found locally, and HF_HUB_OFFLINE is set") from None
    except OSError as error:
        why = error_text(error) if isinstance(error, HfHubHTTPError) else "the Hub does not respond"
        raise UsageError(f"the model {name} was not found locally or on the Hub: {why}") from None
