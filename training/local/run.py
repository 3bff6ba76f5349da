"""The folder of a training run: options, the model it begins with, rollouts, checkpoints, result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from training.core.expert import expert_response
from training.core.rollouts import begin_rollout_records, write_rollout_records
from training.core.states import sample_state
from training.local.config import DEFAULT_GAMES, TrainConfig, read_config, without
from training.tiny_vlm import make_tiny_vlm
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import resolve_checkpoint
from vlmgym.records.episode import GameRecord, PolicyRecord
from vlmgym.records.output_folder import OutputFolder
from vlmgym.records.run import changes
from vlmgym.rollout.episode import EpisodeRollout

TEXTS = 300
"""Positions whose prompts and responses a tiny model's tokenizer is trained on."""
_TEXT_SEED = 2**40
MAY_CHANGE = (
    "resume",
    "output_dir",
    "preset",
    "steps",
    "checkpoint_interval",
    "keep",
    "merge",
    "rollouts_every",
    "wandb",
)
"""Options that a resumed run may have otherwise than before."""
RESOURCES = ("model.device", "model.threads", "model.checkpointing", "update.micro_batch", "rollout.batch")
"""Likewise: they decide about memory and time, and about numbers only by rounding, but that another kind of device
draws other tokens."""
NAMED = ("games", "curriculum", "perception", "reasoning", "overrides", "size", "strict")
"""Options that only say which games are played; what counts is the games themselves."""


class TrainingRun:
    """Where everything of a run is."""

    def __init__(self, folder: Path) -> None:
        """Name the files; nothing is touched yet."""
        self.output = OutputFolder(folder)
        self.folder = folder = self.output.folder
        self.options = folder / "options.json"
        self.decided = folder / "config.json"
        self.tiny = folder / "tiny"
        self.cold_start = folder / "cold_start"
        self.checkpoints = folder / "checkpoints"
        self.rollouts = folder / "rollouts"
        self.before = folder / "evaluation" / "before"
        self.after = folder / "evaluation" / "after"
        self.measured = folder / "before.json"
        self.model = folder / "model"
        self.result = folder / "result.json"
        self.wandb = folder / "wandb_id"
        self._made: list[Path] = []
        """What follows from the options alone and was made by this process."""
        self._given: list[str] = []
        """Options that the run is resumed with."""

    @classmethod
    def begin(cls, config: TrainConfig, args: Sequence[str]) -> TrainingRun:
        """Make the folder of a new run, with its options and all that follows from them.

        Raises:
            UsageError: It holds one already, or files of another origin, or a game is none.
            OutputError: It cannot be written.
        """
        decided = decided_by(config)
        run = cls(config.output_dir or _new_folder(config))
        run.check(config)
        if run.options in run.output.owned():
            raise UsageError(f"{run.folder} holds a training run: --resume it, or choose another --output-dir")
        run.output.write(run.decided, json.dumps(decided, indent=1).encode())
        run.output.write(run.options, json.dumps(list(args), indent=1).encode())
        return run

    def check(self, config: TrainConfig) -> None:
        """Refuse a folder if a file of another origin is where the run would write.

        Args:
            config: The options.

        Raises:
            UsageError: The message names the file or folder.
            OutputError: The folder cannot be read.
        """
        self.output.check_own()
        files = (self.options, self.decided, self.wandb, self.measured, self.result)
        self.output.check(*files, self.folder / "curve.jsonl", self.folder / "curve.png")
        for folder in (self.model, self.tiny) if config.model.model is None else (self.model,):
            self.output.check_all_of(folder)
            self.output.check(folder.with_name(f".{folder.name}.part"))
        for folder in (self.cold_start, self.checkpoints, self.rollouts, self.before, self.after):
            output = OutputFolder(folder)
            output.check_own()
            output.check(*folder.glob(".step_*.part"), *folder.glob("step_*.jsonl"))

    @classmethod
    def reopen(cls, folder: Path, args: Sequence[str]) -> tuple[TrainingRun, TrainConfig]:
        """Go on with a run: its options, with those of now after them.

        Raises:
            UsageError: There is no run, or something differs that decides what is learned, be it an option, or what a
                preset's, a curriculum's or a game's file says now.
        """
        run = cls(folder)
        try:
            before = json.loads(run.options.read_text(encoding="utf-8"))
            decided = json.loads(run.decided.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            names = f"{run.options.name} or {run.decided.name}"
            raise UsageError(f"{folder} holds no training run: {names} cannot be read") from None
        if not (isinstance(before, list) and all(isinstance(arg, str) for arg in before)):
            raise UsageError(f"{run.options} is not a list of options")
        config = read_config([*before, *args])
        found = changes(decided, decided_by(config))
        if different := [str(change) for change in found if change.path not in RESOURCES]:
            raise UsageError(f"{folder} was a run with other options, so it cannot be resumed: {'; '.join(different)}")
        run.check(config)
        run._given = without(args, "--resume")
        return run, config

    def withdraw(self) -> None:
        """Take back the options of a run of which nothing came, so that other options can be given in its folder."""
        if not any(path.exists() for path in (self.cold_start, self.measured, self.checkpoints)):
            self.output.remove(self.options, self.decided, self.wandb, *self._made)

    def remember(self) -> None:
        """Keep the options that the run was resumed with, so that it is resumed with them the next time, too.

        Raises:
            OutputError: They cannot be written.
        """
        if self._given:
            before: list[str] = json.loads(self.options.read_text(encoding="utf-8"))
            if before[-len(self._given) :] != self._given:
                self.output.write(self.options, json.dumps([*before, *self._given], indent=1).encode())

    def base_model(self, config: TrainConfig, curriculum: Curriculum) -> Path | str:
        """The checkpoint that training begins with; a tiny one is made if none is named.

        Raises:
            UsageError: What is named can be none.
        """
        if config.model.model is not None:
            return resolve_checkpoint(config.model.model, "training")
        if not self.tiny.exists():
            with self.output.building(self.tiny) as part:
                make_tiny_vlm("qwen3_vl", part, seed=config.seed, size=config.tiny, texts=_texts(config, curriculum))
            self._made.append(self.tiny)
        return self.tiny

    def begin_rollout_records(self, config: TrainConfig, curriculum: Curriculum, policy: PolicyRecord) -> None:
        """Say what the rollouts are of, so that `vlmgym report` can show them."""
        episodes = config.steps * config.rows * config.copies
        begin_rollout_records(self.rollouts, curriculum, policy, config.play, config.reward, episodes)

    def record(self, step: int, episodes: Sequence[EpisodeRollout], policy: PolicyRecord, copies: int) -> None:
        """Write the rollouts of a step, counted from 0."""
        indices = (episode.prompt_id * copies + episode.sample_idx for episode in episodes)
        records = (e.record(policy, seed=i, index=i).model_dump_json() for e, i in zip(episodes, indices))
        write_rollout_records(self.rollouts, f"step_{step + 1:06d}", records)


def decided_by(config: TrainConfig) -> dict[str, Any]:
    """All that decides what is learned, as JSON has it: each option, and the games at all stages of the curriculum.

    Raises:
        UsageError: A game is none.
    """
    curriculum = config.make_curriculum()
    plain: dict[str, Any] = to_jsonable_python(config)
    stages = None if curriculum.file is None else curriculum.file.model_dump(mode="json", exclude_none=True)
    return {
        **{name: value for name, value in plain.items() if name not in (*MAY_CHANGE, *NAMED)},
        "games": [GameRecord.of(game).model_dump(mode="json") for game in curriculum.games],
        "curriculum": stages,
    }


def _texts(config: TrainConfig, curriculum: Curriculum) -> Iterator[str]:
    """What the games say, and responses to it."""
    progress = curriculum.begin()
    for row in range(TEXTS):
        game = curriculum.pick(progress, _TEXT_SEED, row).game
        state: Any = game.from_json(sample_state(game, _TEXT_SEED, row, config.states, config.reward).state)
        yield game.instructions(state)
        yield expert_response(game, state, config.cold_start.teacher, 0.0, config.reward, np.random.default_rng(row))


def _new_folder(config: TrainConfig) -> Path:
    what = config.curriculum.stem if config.curriculum is not None else "+".join(config.games or DEFAULT_GAMES)
    name = f"{config.algorithm}-{what}-{datetime.now():%Y%m%d-%H%M%S}"
    for n in count(1):
        folder = Path("logs") / (name if n == 1 else f"{name}-{n}")
        if not folder.exists():
            return folder
    raise AssertionError("count() ends")
