"""`vlmgym.json` in a checkpoint: the games and settings that it was trained on, for `vlmgym eval --as-trained`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from vlmgym.curriculum import Curriculum, CurriculumFile
from vlmgym.errors import UsageError, describe_validation_error
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.runs.files import json_bytes, read_model, replace_file
from vlmgym.runs.record import GameRecord, RunRecord, check_data
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import RewardConfig

TRAINED = "vlmgym.json"
"""Name of the file in a checkpoint."""


class TrainedRecord(BaseModel):
    """Games and settings that a checkpoint was trained on.

    Attributes:
        record: Version of this format.
        trainer: Trainer and algorithm, such as `local grpo`.
        step: Number of training steps; 0 for fine-tuning on exported episodes, where it is unknown.
        games: Games with their configs, which include response format and prompt; with a curriculum, each game at the
            stage that training had reached.
        stages: Stage name of each game; None for games without stages.
        curriculum: Contents of the curriculum file, if any.
        reward: Weights and shaping of the reward.
        prompts: Contents of prompts.
        max_turns: Turn limit of an episode.
        temperature: Sampling temperature; None if the checkpoint was not trained on its own samples.
        top_p: Nucleus sampling threshold: total probability of the tokens sampled from; None as for `temperature`.
        max_tokens: Maximum response length in tokens; None as for `temperature`.
        chat_template: Chat template of the prompts, which the tokenizer of the checkpoint applies.
        enable_thinking: Argument of the chat template; None if it was not set.
        first_seed: First seed of validation episodes, which were not trained on.
        validation_questions: Number of validation questions, the smallest over the datasets; None if all questions
            were generated.
        blank: Whether training replaced all images with grey ones.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    record: Literal[1] = 1
    trainer: str
    step: int = Field(ge=0)
    games: tuple[GameRecord, ...] = Field(min_length=1)
    stages: tuple[str | None, ...]
    curriculum: dict[str, JsonValue] | None = None
    reward: RewardConfig
    prompts: PromptConfig
    max_turns: int = Field(ge=1)
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    chat_template: str | None = None
    enable_thinking: bool | None = None
    first_seed: int = Field(ge=0)
    validation_questions: int | None = Field(None, ge=1)
    blank: bool = False

    @classmethod
    def read(cls, checkpoint: Path) -> TrainedRecord:
        """Read the file in a checkpoint; raise `UsageError` if it is missing or invalid."""
        return read_model(checkpoint / TRAINED, cls, "name a checkpoint that vlmgym has trained or exported")

    @classmethod
    def of_run(cls, run: RunRecord) -> TrainedRecord:
        """Describe a model fine-tuned on the episodes of a run; games of a curriculum are given at their last stage."""
        games, stages = run.games, tuple[str | None, ...](None for _ in run.games)
        if run.curriculum is not None:
            entries = recorded_curriculum(run.curriculum.file).entries
            games = tuple(GameRecord.of(entry.stages[-1].game) for entry in entries)
            stages = tuple(entry.stages[-1].name for entry in entries)
        return cls(
            trainer="sft",
            step=0,
            games=games,
            stages=stages,
            curriculum=None if run.curriculum is None else run.curriculum.file,
            reward=run.reward,
            prompts=run.prompts,
            max_turns=run.max_turns,
            first_seed=max(FIRST_VALIDATION_SEED, run.seed + run.episodes),
        )

    def write(self, folder: Path) -> None:
        """Write the file atomically.

        Raises:
            OutputError: The file cannot be written.
        """
        replace_file(folder / TRAINED, json_bytes(self))

    def reached_games(self) -> list[Game[object, object]] | Curriculum:
        """Make the games at the stages that training had reached, or the whole curriculum if two are of one game."""
        if self.curriculum is not None and len({game.id for game in self.games}) < len(self.games):
            return recorded_curriculum(self.curriculum)
        return [game.game() for game in self.games]


def recorded_curriculum(contents: dict[str, JsonValue]) -> Curriculum:
    """Make the curriculum whose file a record contains; raise `UsageError` if it is invalid or names other data."""
    check_data(contents)
    try:
        file = CurriculumFile.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        raise UsageError(f"the recorded curriculum is invalid: {describe_validation_error(error)}") from None
    return Curriculum.from_file(file, "the recorded curriculum")
