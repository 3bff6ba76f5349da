"""Verification of saved runs by replaying their responses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation import EvalConfig, open_run
from vlmgym.evaluation.verify import VerifyConfig, verify, verify_run

Records = list[dict[str, Any]]
OPTIONS: dict[str, Any] = {"episodes": 3, "max_turns": 12, "workers": 0, "videos": 0, "report": False}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("played") / "run"
    run_evaluation(["2048", "swap"], EvalConfig(policy="random", output_dir=folder, history=1, **OPTIONS))
    return folder


@pytest.fixture
def run(played, tmp_path):
    return shutil.copytree(played, tmp_path / "run")


def edit(run: Path, change: Callable[[Records], object], file: str = "episodes.jsonl") -> list[str]:
    """Change the records of a run; return the problems that are found."""
    path = run / file
    text = path.read_text()
    records = [json.loads(line) for line in text.splitlines()] if file.endswith("l") else [json.loads(text)]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return verify_run(open_run(run), 0).problems


def test_an_honest_run_is_verified(run, capsys):
    main(["verify", str(run), "--workers", "0"])
    told = capsys.readouterr().out
    assert "6 episodes (72 turns) of 2048-v0, swap-v0" in told
    assert "Not verified: who wrote the responses" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("curriculum", [True, False])
def test_other_kinds_of_runs_are_verified(curriculum, tmp_path):
    games = [] if curriculum else ["vqa"]
    chosen = Path("three-games") if curriculum else None
    run_evaluation(games, EvalConfig(policy="oracle", output_dir=tmp_path / "run", **OPTIONS), curriculum=chosen)
    assert verify_run(open_run(tmp_path / "run"), 0).problems == []


def turn(records: Records, number: int = 4) -> dict[str, Any]:
    """Return a turn of the first episode of 2048."""
    found: dict[str, Any] = records[0]["turns"][number]
    return found


def raise_score(records: Records) -> None:
    turn(records)["reward"].update(game=400, total=400)
    records[0]["score"] = sum(one["reward"]["game"] for one in records[0]["turns"])


def drop_turn(records: Records) -> None:
    dropped = records[0]["turns"].pop()
    records[0].update(status="ended", end_reason="no legal moves")
    records[0]["score"] -= dropped["reward"]["game"]


def move_action(records: Records) -> None:
    turn(records)["response"] = "<answer>left</answer>" if turn(records)["action"] != 3 else "<answer>up</answer>"


TAMPERED: dict[str, tuple[Callable[[Records], object], str]] = {
    "response": (move_action, "turns.4"),
    "score": (raise_score, "turns.4.reward"),
    "state": (lambda records: turn(records)["state"]["board"].reverse(), "turns.4.state"),
    "action": (lambda records: turn(records).update(action=(turn(records)["action"] + 1) % 4), "turns.4.action"),
    "prompt": (lambda records: turn(records).update(prompt="Play well."), "turns.4.prompt"),
    "info": (lambda records: turn(records)["info"].update(moved=1), "turns.4.info"),
    "perception": (lambda records: turn(records)["reward"].update(perception=1.0), "turns.4.reward.perception"),
    "final state": (lambda records: records[0]["final_state"]["board"].reverse(), "final_state"),
    "metrics": (lambda records: records[0]["metrics"].update({"largest tile": "2048"}), "metrics"),
    "end": (drop_turn, "had not ended"),
    "seed": (lambda records: records[0].update(seed=77), "seed 77 with index 0"),
    "turn limit": (lambda records: records[0].update(max_turns=99, status="ended"), "max_turns differs"),
    "easier config": (lambda records: records[0]["game"]["config"].update(rows=5), "run.json does not have"),
    "policy": (lambda records: records[0]["policy"].update(name="openai"), "policy differs"),
    "episode dropped": (lambda records: records.pop(0), "1 of 3 episodes of 2048-v0 have no result"),
    "second try": (lambda records: records.append(records[0]), "was replaced"),
    "error": (lambda records: records[0].update(status="error", score=None), "1 of 3 episodes of 2048-v0"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampering_is_found(run, kind):
    change, message = TAMPERED[kind]
    problems = edit(run, change)
    assert any(message in problem for problem in problems), problems


def test_a_summary_that_does_not_follow_is_found(run):
    problems = edit(run, lambda records: records[0]["games"]["swap-v0"].update(score_mean=5.0), "summary.json")
    assert len(problems) == 1
    assert "games.swap-v0.score_mean is 5.0, but the episodes give" in problems[0]


def test_a_difficulty_that_is_not_played_is_found(run):
    assert any("difficulty" in one for one in edit(run, lambda r: r[0]["difficulty"].update(reasoning=5), "run.json"))


def test_a_game_that_is_listed_twice_is_found(run):
    def repeat(records):
        game = records[0]["games"][0]
        records[0].update(games=[*records[0]["games"], {**game, "config": {**game["config"], "rows": 5}}])

    assert "run.json has a game twice" in edit(run, repeat, "run.json")


@pytest.mark.parametrize("started", ["<!--", "2026-01-31", "2026-01-31T12:00:00", "2026-01-31/12:00:00+00:00"])
def test_times_are_in_the_format_of_records(run, started):
    with pytest.raises(UsageError, match="started: must be a time such as"):
        edit(run, lambda records: records[0].update(started=started), "run.json")


def test_an_interrupted_run_is_not_verified(run):
    (run / "summary.json").unlink()
    with pytest.raises(VlmgymError, match="1 difference"):
        verify(VerifyConfig(run=run, workers=0))
