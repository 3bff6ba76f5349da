"""Replaying recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import vlmgym
from vlmgym import UsageError
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.evaluation import EpisodeRecord, EvalConfig, RunFolder, evaluate, read_run
from vlmgym.policies import ModelPolicy, Prompt, Reply, make_policy, random_response
from vlmgym.policies.replay import ReplayOptions, ReplayPolicy

GAMES = [vlmgym.make_game(name, size=128) for name in ("2048", "swap")]


class Model(ModelPolicy):
    """A random policy that sets every field of its replies."""

    name = "model"

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        text = "nothing" if prompt.turn == 2 else random_response(prompt)
        return Reply(text, 100 + prompt.turn, prompt.seed, "stop", f"thought {prompt.turn}", 0.25, 1 + prompt.turn % 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record four episodes of each of two games."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    config = EvalConfig(episodes=4, max_turns=6, size=128, workers=0, videos=0, report=False, output_dir=folder)
    run_evaluation(["2048", "swap"], config)
    place = RunFolder(folder)
    records = evaluate(GAMES, Model(), 4, max_turns=6, workers=0, history=1)
    place.episodes.write_text("".join(record.model_dump_json() + "\n" for record in records), encoding="utf-8")
    return folder


def replay(run: Path) -> ReplayPolicy:
    return ReplayPolicy(ReplayOptions(record=run))


def without_policy(record: EpisodeRecord) -> EpisodeRecord:
    return record.model_copy(update={"policy": None, "started": ""})


def test_replay_reproduces_a_run(run: Path):
    recorded = read_run(run).episodes
    again = evaluate(GAMES, replay(run), 4, max_turns=6, workers=1, history=1)
    assert [without_policy(record) for record in again] == [without_policy(record) for record in recorded]
    assert {record.policy.name for record in again} == {"replay"}
    assert {record.policy.options["record"] for record in again} == {str(run)}


def test_missing_turn_is_an_error_without_score(run: Path):
    (longer,) = evaluate(GAMES[0], replay(run), 1, max_turns=9, seed=1, workers=0)
    assert (longer.status, longer.score, len(longer.turns)) == ("error", None, 6)
    assert longer.end_reason == f"{run} has no turn 7 of 2048-v0 with seed 1"
    known, other = evaluate(GAMES[0], replay(run), 2, max_turns=6, seed=3, workers=0)
    assert known.score is not None
    assert (other.status, other.turns) == ("error", ())
    assert other.end_reason == f"{run} has no turn 1 of 2048-v0 with seed 4"


def test_other_game_or_config(run: Path, lamps: Any):
    with pytest.raises(UsageError, match="rows was 4 and is 5"):
        evaluate(vlmgym.make_game("2048", size=128, rows=5), replay(run), 1, workers=0)
    with pytest.raises(UsageError, match=r"has episodes of 2048-v0, swap-v0, not of lamps-v0"):
        evaluate(lamps.Lamps(), replay(run), 1, workers=0)


def test_missing_record(tmp_path: Path):
    with pytest.raises(UsageError, match="the replay policy needs --record"):
        make_policy("replay")
    with pytest.raises(UsageError, match="is not a run"):
        replay(tmp_path)


def test_command_line_and_resume(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    args = ["eval", "2048", "--policy", "replay", "--record", str(run), "--max-turns", "6", "--size", "128"]
    args += ["--episodes", "3", "--workers", "0", "--videos", "0", "--no-report", "--history", "1"]
    main([*args, "--output-dir", str(tmp_path / "again")])
    recorded = [record for record in read_run(run).episodes if record.game.id == "2048-v0"][:3]
    again = read_run(tmp_path / "again")
    assert [record.turns for record in again.episodes] == [record.turns for record in recorded]
    main([*args, "--resume", str(tmp_path / "again")])
    with pytest.raises(SystemExit, match="2"):
        main([*args, "--resume", str(tmp_path / "again"), "--record", str(tmp_path / "other")])
    assert "is not a run" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="1"):
        main([*args, "--episodes", "6", "--output-dir", str(tmp_path / "more")])
    assert "2 episodes have no score" in " ".join(capsys.readouterr().err.split())
