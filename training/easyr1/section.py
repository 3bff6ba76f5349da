"""The part of a configuration that is vlmgym's: which games are played, how, and what is rewarded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from training.core.rollouts import PlayConfig
from training.core.states import StateConfig
from vlmgym.curriculum import Curriculum, CurriculumFile, EntryFile
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.sandbox.core.reward import RewardConfig


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Validation(_Part):
    """Whole episodes on held-out seeds, at the last stage of each game.

    Attributes:
        episodes: Of each game; 0: none.
        turns: Limit of turns.
        temperature: 0 takes the likeliest tokens.
    """

    episodes: int = Field(16, ge=0)
    turns: int = Field(50, ge=1)
    temperature: float = Field(0.0, ge=0)


class Section(_Part):
    """What `vlmgym:` of a configuration says.

    Attributes:
        games: The games of the mixture with their difficulty and stages, in the words of a curriculum's file.
        curriculum: A curriculum's file instead, or the name of one that vlmgym brings along.
        play: Single answers (`max_turns: 1`) or whole episodes, and what prompts repeat of them.
        states: Where they begin.
        reward: Weights and shaping.
        validation: What is measured during training.
        step_weight: In episodes, the weight of the advantage of a turn among all turns from the same position, beside
            that of the episode (omega of GiGPO); 0: only that of the episode.
        players: Processes that play, draw and tokenize; 0: the trainer's own does.
    """

    games: tuple[EntryFile, ...] = ()
    curriculum: str | None = None
    play: PlayConfig = PlayConfig()
    states: StateConfig = StateConfig()
    reward: RewardConfig = RewardConfig()
    validation: Validation = Validation()
    step_weight: float = Field(1.0, ge=0)
    players: int = Field(8, ge=0, le=1024)

    @model_validator(mode="after")
    def _one_source(self) -> Section:
        if bool(self.games) == (self.curriculum is not None):
            raise ValueError("name either games or a curriculum")
        if self.play.max_turns < 1 or not 0 <= self.play.history_images <= self.play.history:
            raise ValueError("play.max_turns is at least 1, and play.history_images is between 0 and play.history")
        return self

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Section:
        """The section of a configuration.

        Raises:
            UsageError: A field is not accepted.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise UsageError(f"vlmgym: {describe_validation_error(error)}") from None

    def make_curriculum(self) -> Curriculum:
        """The games at their stages.

        Raises:
            UsageError: There is no such game, config field or file.
        """
        if self.curriculum is not None:
            return Curriculum.read(Path(self.curriculum))
        return Curriculum.from_file(CurriculumFile(entries=self.games), "vlmgym.games")
