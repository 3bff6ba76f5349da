"""Verification of saved runs by replaying their responses."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.playing import edited
from vlmgym.benchmark.verify import VerifyConfig, verify, verify_run
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation import EvalConfig, open_run

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


def edit(run: Path, change: Callable[[Any], object], file: str = "episodes.jsonl") -> list[str]:
    """Change the records of a run; return the problems that `verify` finds."""
    with edited(run / file) as records:
        change(records)
    return verify_run(open_run(run), 0).problems


def test_an_honest_run_is_verified(run, capsys):
    main(["verify", str(run), "--workers", "0"])
    told = capsys.readouterr().out
    assert "6 episodes (72 turns) of 2048-v0, swap-v0" in told
    assert "Not verified: who wrote the responses" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize("curriculum", [True, False])
def test_other_kinds_of_runs_are_verified(curriculum, tmp_path):
    games = Curriculum.read(Path("three-games")) if curriculum else ["scenes-questions"]
    run_evaluation(games, EvalConfig(policy="oracle", output_dir=tmp_path / "run", **OPTIONS))
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


def empty_cells_as_false(records: Records) -> None:
    board = turn(records)["state"]["board"]
    turn(records)["state"]["board"] = [[cell or False for cell in row] for row in board]


TAMPERED: dict[str, tuple[Callable[[Records], object], str]] = {
    "response": (move_action, "turns.4"),
    "score": (raise_score, "turns.4.reward"),
    "state": (lambda records: turn(records)["state"]["board"].reverse(), "turns.4.state"),
    "action": (lambda records: turn(records).update(action=(turn(records)["action"] + 1) % 4), "turns.4.action"),
    "prompt": (lambda records: turn(records).update(prompt="Play well."), "turns.4.prompt"),
    "flag for a number": (empty_cells_as_false, "turns.4.state"),
    "final state": (lambda records: records[0]["final_state"]["board"].reverse(), "final_state"),
    "end": (drop_turn, "had not ended"),
    "seed": (lambda records: records[0].update(seed=77), "seed 77 with index 0"),
    "turn limit": (lambda records: records[0].update(max_turns=99, status="ended"), "max_turns differs"),
    "easier config": (lambda records: records[0]["game"]["config"].update(rows=5), "run.json does not have"),
    "episode dropped": (lambda records: records.pop(0), "1 of 3 episodes of 2048-v0 have no result"),
    "second try": (lambda records: records.append(records[0]), "was replaced"),
    "error": (lambda records: records[0].update(status="error", score=None), "1 of 3 episodes of 2048-v0"),
}


@pytest.mark.parametrize("kind", TAMPERED)
def test_tampering_is_found(run, kind):
    change, message = TAMPERED[kind]
    problems = edit(run, change)
    assert any(message in problem for problem in problems), problems


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play a curriculum whose stages depend on success."""
    folder = tmp_path_factory.mktemp("mixed")
    small, large = (
        '{ name = "small", overrides = { size = 128, rows = 4 } }',
        '{ name = "large", overrides = { size = 128 } }',
    )
    by = f'by = "success"\nmeasure = "played"\nwindow = 1\nup = 0.5\nstages = [{small}, {large}]'
    (folder / "mixed.toml").write_text(
        f'max_concurrency = 1\n[[entries]]\ngame = "swap"\nweight = 3\n{by}\n\n[[entries]]\ngame = "2048"\n'
    )
    config = EvalConfig(policy="random-legal", output_dir=folder / "run", **{**OPTIONS, "episodes": 8, "max_turns": 2})
    run_evaluation(Curriculum.read(folder / "mixed.toml"), config)
    return folder / "run"


def of_game(records: Records, game: str) -> list[int]:
    return [i for i, record in enumerate(records) if record["game"]["id"] == game]


def drop_and_plan_fewer(run: Path) -> None:
    with edited(run / "episodes.jsonl") as records, edited(run / "run.json") as config:
        del records[of_game(records, "2048-v0")[0]]
        config["curriculum"]["episodes"]["2048-v0"] -= 1


def stay_in_the_first_stage(run: Path) -> None:
    with edited(run / "episodes.jsonl") as records:
        first, second, *later = (records[i] for i in of_game(records, "swap-v0"))
        assert [record["stage"] for record in (first, second, *later)] == ["small", *["large"] * (1 + len(later))]
        second.update({**first, "seed": second["seed"], "index": second["index"]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_and_plan_fewer, r"episode \d of the curriculum, 2048-v0, has no result"),
        (stay_in_the_first_stage, r"the curriculum in run.json gives other episodes: .*rows was 4 and is 8"),
    ],
)
def test_episodes_that_a_curriculum_does_not_give_are_found(mixed, change, message, tmp_path):
    run = shutil.copytree(mixed, tmp_path / "run")
    assert verify_run(open_run(run), 0).problems == []
    change(run)
    problems = verify_run(open_run(run), 0).problems
    assert any(re.match(message, problem) for problem in problems), problems


def test_a_summary_that_does_not_follow_is_found(run):
    problems = edit(run, lambda summary: summary["games"]["swap-v0"].update(score_mean=5.0), "summary.json")
    assert len(problems) == 1
    assert "games.swap-v0.score_mean is 5.0, but the episodes give" in problems[0]


def test_a_difficulty_that_is_not_played_is_found(run):
    assert any(
        "difficulty" in one for one in edit(run, lambda config: config["difficulty"].update(reasoning=5), "run.json")
    )


def test_a_game_that_is_listed_twice_is_found(run):
    def repeat(config):
        game = config["games"][0]
        config["games"].append({**game, "config": {**game["config"], "rows": 5}})

    assert "run.json has a game twice" in edit(run, repeat, "run.json")


@pytest.mark.parametrize("started", ["<!--", "2026-01-31T12:00:00"])
def test_times_are_in_the_format_of_records(run, started):
    with pytest.raises(UsageError, match="started: string should match pattern"):
        edit(run, lambda config: config.update(started=started), "run.json")


def test_an_interrupted_run_is_not_verified(run):
    (run / "summary.json").unlink()
    with pytest.raises(VlmgymError, match="1 difference"):
        verify(VerifyConfig(run=run, workers=0))
