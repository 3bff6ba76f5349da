"""Evaluations with the games and settings that a checkpoint was trained on (`--as-trained`)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.in_training.runs import read
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum, CurriculumFile, Progress
from vlmgym.evaluation import RunFolder, read_run
from vlmgym.rollout.trained import TRAINED, TrainedRecord
from vlmgym.sandbox.core.prompt import PromptConfig

Run = Callable[[str], Path]
POLICY = ("--policy", "transformers", "--device", "cpu")
QUIET = ("--workers", "0", "--videos", "0", "--no-report", "--episodes", "2")


def evaluate(checkpoint: Path, out: Path, *options: str) -> Any:
    main(["eval", "--as-trained", str(checkpoint), *QUIET, "--output-dir", str(out), *options])
    return read_run(RunFolder(out))


def test_evaluation_plays_what_a_checkpoint_was_trained_on(finished: Run, tmp_path: Path) -> None:
    run = finished("grpo, episodes")
    played = evaluate(run / "checkpoints" / "step_000002", tmp_path / "eval", *POLICY)
    trained = read(run / "rollouts" / "run.json")
    config = played.config
    assert [game.model_dump() for game in config.games] == trained["games"]
    assert (config.max_turns, config.prompts) == (2, PromptConfig(history=1, history_images=1))
    assert config.reward.model_dump() == trained["reward"]
    options = config.policy.options
    assert (options["temperature"], options["top_p"], options["max_tokens"]) == (1.0, 1.0, 16)
    assert Path(options["model"]) == run / "checkpoints" / "step_000002" / "model"
    assert [episode.seed for episode in played.episodes] == [1_000_000, 1_000_001]
    assert all(episode.turns[0].completion_tokens <= 16 for episode in played.episodes)


def test_options_override_the_checkpoint_except_those_of_games(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = finished("grpo, episodes") / "model"
    played = evaluate(model, tmp_path / "eval", "--policy", "oracle", "--max-turns", "3", "--seed", "5")
    assert (played.config.max_turns, [episode.seed for episode in played.episodes]) == (3, [5, 6])
    for options, words in (
        (["--size", "64"], "sets the difficulty of the games"),
        (["--games", "swap"], "--as-trained names the games"),
    ):
        with pytest.raises(SystemExit):
            evaluate(model, tmp_path / "other", *options)
        assert words in capsys.readouterr().err


def test_curriculum_is_played_at_the_stage_reached(finished: Run, tmp_path: Path) -> None:
    checkpoint = finished("curriculum") / "checkpoints" / "step_000003"
    curriculum = Curriculum.from_file(CurriculumFile.model_validate_json(json.dumps(record(checkpoint).curriculum)))
    progress = Progress.model_validate_json((checkpoint / "progress.json").read_text())
    reached = [entry.stages[state.stage] for entry, state in zip(curriculum.entries, progress.entries)]
    assert any(state.stage for state in progress.entries), "no stage has changed, so nothing is tested"
    assert record(checkpoint).stages == tuple(stage.name for stage in reached)
    at_stage = evaluate(checkpoint, tmp_path / "stage", "--policy", "random")
    assert [game.game() for game in at_stage.config.games] == [stage.game for stage in reached]
    assert at_stage.config.prompts == PromptConfig(chat=True, history=1, history_images=1)
    twice = record(checkpoint).model_copy(update={"games": (record(checkpoint).games[0],) * 2})
    played = twice.reached_games()
    assert isinstance(played, Curriculum)
    assert played.games == curriculum.games


def test_checkpoints_without_a_valid_file_are_rejected(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(finished("blank") / "model", broken)
    data = read(broken / TRAINED)
    (broken / TRAINED).write_text(json.dumps({**data, "max_turns": 0}))
    for checkpoint, words in ((tmp_path, "cannot read"), (broken, "max_turns")):
        with pytest.raises(SystemExit) as raised:
            evaluate(checkpoint, tmp_path / "out", "--policy", "random")
        assert (raised.value.code, words in capsys.readouterr().err) == (2, True)
    assert not (tmp_path / "out").exists()


def record(checkpoint: Path) -> TrainedRecord:
    return TrainedRecord.read(checkpoint)
