"""The folder of a training run, with its options, base model, rollouts, checkpoints and results."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python

from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import resolve_checkpoint
from vlmgym.rollout.states import sample_state
from vlmgym.runs.files import check_output_folder, free_path, json_bytes, replace_file, replace_folder, writing
from vlmgym.runs.record import GameRecord, PolicyRecord, changes
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.training.config import DEFAULT_GAMES, PER_COMMAND, TrainConfig, read_config
from vlmgym.training.engine.checkpoint import STATE
from vlmgym.training.records import RESULT, write_rollout_records
from vlmgym.training.states import START_ERRORS, EpisodeRollout, expert_response
from vlmgym.training.tiny_vlm import make_tiny_vlm

TOKENIZER_STATES = 300
"""Number of states whose prompts and responses train the tokenizer of a tiny model."""
_TOKENIZER_SEED = 2**40
OPERATIONAL = ("steps", "checkpoint_interval", "keep_checkpoints", "save_merged", "record_interval", "wandb")
"""Options that may change when a run is resumed."""
RESOURCES = (
    *("model.device", "model.threads", "model.gradient_checkpointing", "update.micro_batch_size"),
    *("rollout.batch_size", "processes"),
)
"""Memory and speed options, which may also change when a run is resumed. They affect only floating-point rounding,
which can change sampled tokens, especially on another kind of device."""
GAME_OPTIONS = ("games", "curriculum", "perception", "reasoning", "overrides", "size")
"""Options that select games. When a run is resumed, the games are compared instead of these options."""


class TrainingRun:
    """The folder of a training run."""

    def __init__(self, folder: Path) -> None:
        """Set the paths of all files without creating any."""
        self.folder = folder = folder.absolute()
        self.config = folder / "config.json"
        self.tiny = folder / "tiny"
        self.sft = folder / "sft"
        self.sft_curve = folder / "sft_curve.jsonl"
        self.control_curve = folder / "control_curve.jsonl"
        self.control = folder / "evaluation" / "control"
        self.control_result = folder / "control.json"
        self.comparison = folder / "comparison.png"
        self.checkpoints = folder / "checkpoints"
        self.rollouts = folder / "rollouts"
        self.before = folder / "evaluation" / "before"
        self.after = folder / "evaluation" / "after"
        self.before_result = folder / "before.json"
        self.model = folder / "model"
        self.result = folder / RESULT
        self.wandb = folder / "wandb_id"
        self.checkpoint: Path | None = None
        """Checkpoint given by --resume; None to use the last one."""

    @classmethod
    def new(cls, config: TrainConfig) -> TrainingRun:
        """Choose the folder of a new run; raise `UsageError` if it has other files, or a run with results."""
        run = cls(config.output_dir or _new_folder(config))
        check_output_folder(run.folder, run.config.name)
        if run.config.exists():
            run._read()
        if any(path.exists() for path in (run.sft, run.before_result, run.checkpoints)):
            raise UsageError(f"{run.folder} contains a training run: --resume it, or choose another --output-dir")
        return run

    def begin(self, config: TrainConfig) -> None:
        """Write the settings of a new run, and remove what a run without results has left in the folder."""
        with writing(self.folder):
            self.wandb.unlink(missing_ok=True)
            if self.tiny.exists():
                shutil.rmtree(self.tiny)
        self.write_config(config)

    def write_config(self, config: TrainConfig) -> None:
        """Write the settings, and the games of all curriculum stages, from which the run can resume."""
        replace_file(self.config, json_bytes(resolve_config(config)))

    @classmethod
    def reopen(
        cls, resume: Path, args: Sequence[str], kind: type[TrainConfig] = TrainConfig
    ) -> tuple[TrainingRun, TrainConfig]:
        """Reopen a run, given its folder or one of its checkpoints; options in `args` override its settings.

        Raises `UsageError` if the run is missing, or if something that affects results has changed: an option, or the
        contents of a preset, curriculum or game file.
        """
        step = re.fullmatch(r"step_(\d+)", resume.name)
        named = step is not None and resume.absolute().parent.name == "checkpoints"
        folder = resume.absolute().parents[1] if named else resume
        run = cls(folder)
        if step is not None and named:
            run.checkpoint = run.checkpoints / f"step_{int(step[1]):06d}"
            if not (run.checkpoint / STATE).is_file():
                names = ", ".join(sorted(path.name for path in run.checkpoints.glob("step_*"))) or "none"
                raise UsageError(f"{resume} is not a checkpoint; the checkpoints of this run are: {names}")
        before = run._read()
        config = read_config(args, before["settings"], kind)
        if config.output_dir is not None:
            raise UsageError("a resumed run stays in its folder: remove --output-dir")
        different = changes(_fixed(before), _fixed(resolve_config(config)))
        if listed := [str(change) for change in different if change.path not in RESOURCES]:
            raise UsageError(f"cannot resume {folder} with other options: {'; '.join(listed)}")
        return run, config

    def _read(self) -> dict[str, Any]:
        """Read the config; raise `UsageError` if the folder has none of a training run."""
        try:
            config = json.loads(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            config = None
        if not isinstance(config, dict) or not isinstance(config.get("settings"), dict):
            raise UsageError(f"{self.folder} contains no training run: cannot read {self.config.name}")
        return config

    def base_model(self, config: TrainConfig, curriculum: Curriculum) -> Path | str:
        """Return the checkpoint to start from, by default a tiny model; raise `UsageError` if it does not exist."""
        if config.model.model is not None:
            return resolve_checkpoint(config.model.model, "training")
        if not self.tiny.exists():
            texts = _tokenizer_texts(config, curriculum)
            with replace_folder(self.tiny) as part:
                make_tiny_vlm(config.tiny, part, texts, seed=config.seed)
        return self.tiny

    def record(self, step: int, episodes: Sequence[EpisodeRollout], policy: PolicyRecord, group_size: int) -> None:
        """Write the rollouts of a step; `step` counts from 0."""
        records = (episode.record(policy, group_size) for episode in episodes)
        write_rollout_records(self.rollouts, f"step_{step + 1:06d}", records)


def resolve_config(config: TrainConfig) -> dict[str, Any]:
    """Return settings, and the games of all curriculum stages, as JSON data."""
    curriculum = config.make_curriculum()
    return {
        "settings": to_jsonable_python(config),
        "games": [GameRecord.of(game).model_dump(mode="json") for game in curriculum.games],
        "curriculum": curriculum.to_data(),
    }


def _fixed(config: dict[str, Any]) -> dict[str, Any]:
    """Return what must not change when a run is resumed, except `RESOURCES`."""
    free = (*PER_COMMAND, *OPERATIONAL, *GAME_OPTIONS)
    settings = {name: value for name, value in config["settings"].items() if name not in free}
    return {**settings, "games": config.get("games"), "curriculum": config.get("curriculum")}


def _tokenizer_texts(config: TrainConfig, curriculum: Curriculum) -> Iterator[str]:
    """Yield prompts and responses of the games, as in demonstrations."""
    progress, accuracy = curriculum.begin(), config.sft.accuracy if config.sft.steps else 0.0
    for index in range(TOKENIZER_STATES):
        game = curriculum.pick(progress, _TOKENIZER_SEED, index).game
        rng = np.random.default_rng(index)
        try:
            snapshot = sample_state(game, _TOKENIZER_SEED, index, config.states, config.reward)
            with game_errors(game.id, snapshot.seed, None, UsageError):
                state: Any = game.from_json(snapshot.state)
                response = expert_response(game, state, config.sft.expert, accuracy, config.reward, rng)
                texts = [game.instructions(state), response]
        except START_ERRORS:
            continue
        yield from texts


def _new_folder(config: TrainConfig) -> Path:
    games = config.curriculum.stem if config.curriculum is not None else "+".join(config.games or DEFAULT_GAMES)
    return free_path(Path("logs") / f"{config.algorithm}-{games}-{datetime.now():%Y%m%d-%H%M%S}")
