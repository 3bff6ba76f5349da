"""`--all-rows` plays every row of the data once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.colours import write_rows
from vlmgym import make_game
from vlmgym.cli.eval import rows_of, run_evaluation
from vlmgym.cli.main import main
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.evaluation import read_run
from vlmgym.evaluation.config import EvalConfig

QUIET = ("--policy", "oracle", "--workers", "0", "--videos", "0", "--no-report", "--size", "64")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[int], str]:
    """Return a function that writes a table with the given number of questions and returns its path."""

    def table(count: int) -> str:
        rows = [{"question": "How many?", "answer": n, "keywords": f"number {n}"} for n in range(count)]
        return write_rows(tmp_path, *rows, name=f"{count}.jsonl")

    return table


def evaluate(*words: str) -> None:
    main(["eval", *words, *QUIET])


def played_rows(folder: Path) -> list[int]:
    """Return the sorted indices of the played rows."""
    states: list[Any] = [episode.final_state for episode in read_run(folder).episodes]
    return sorted(state["row"]["index"] for state in states)


def rejected(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        evaluate(*words, "--all-rows")
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("games", [("vqa",), ("vqa", "caption")])
def test_every_row_is_played_once_per_game(games: tuple[str, ...], write: Callable[[int], str], tmp_path: Path) -> None:
    evaluate(*games, "--all-rows", "--seed", "7", "--config", f"data={write(5)}", "--output-dir", str(tmp_path / "run"))
    assert played_rows(tmp_path / "run") == sorted(len(games) * list(range(5)))


def test_run_is_resumed_with_all_rows(
    write: Callable[[int], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = write(7), tmp_path / "run"
    evaluate("vqa", "--episodes", "3", "--config", f"data={data}", "--output-dir", str(folder))
    evaluate("vqa", "--all-rows", "--config", f"data={data}", "--resume", str(folder))
    assert played_rows(folder) == list(range(7))
    evaluate("vqa", "--all-rows", "--config", f"data={data}", "--resume", str(folder))  # all rows have been played
    assert played_rows(folder) == list(range(7))
    Path(data).write_text("".join(Path(data).read_text().splitlines(keepends=True)[:5]))
    assert "episodes was 7 and is 5" in rejected(capsys, "vqa", "--config", f"data={data}", "--resume", str(folder))


def test_invalid_combinations(write: Callable[[int], str], capsys: pytest.CaptureFixture[str]) -> None:
    data = f"data={write(4)}"
    assert "remove --episodes" in rejected(capsys, "vqa", "--config", data, "--episodes", "3")
    with pytest.raises(UsageError, match="--all-rows does not work with --curriculum"):
        run_evaluation(Curriculum.read(Path("2048")), EvalConfig(all_rows=True))
    with pytest.raises(UsageError, match="vqa has 4, caption has 16"):
        rows_of([make_game("vqa", data=write(4)), make_game("caption", data=write(16))])
