"""benchmarks/protocols.py with few episodes and a separate page."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import protocols
from tests.playing import summarise
from vlmgym import make_game
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.sandbox.presets import PRESETS
from vlmgym.sandbox.registry import BUILT_IN

PAGE = "before\n<!-- baselines -->\nold\n<!-- /baselines -->\n<!-- published -->\n<!-- /published -->\nafter\n"
ROOT = Path(__file__).parent.parent


def run(folder: Path, *args: str) -> str:
    page = folder / "page.md"
    page.write_text(PAGE)
    protocols.main([*args, "--workers", "0", "--output-dir", str(folder / "kept"), "--page", str(page)])
    return page.read_text()


def test_all_games_and_presets_are_measured() -> None:
    names = {setting.name for setting in protocols.SETTINGS}
    assert names >= set(PRESETS)
    assert names >= {game_id.rpartition("-v")[0] for game_id in BUILT_IN}
    assert {row.setting for row in protocols.COMPARISONS} <= names


def test_scores_agree_with_evaluate(tmp_path: Path) -> None:
    page = run(tmp_path, "--games", "g1/shisensho-6x6", "geospot", "--episodes", "3")
    assert page.startswith("before\n<!-- baselines -->\n| setting |")
    assert page.endswith("<!-- /published -->\nafter\n")
    assert "old" not in page
    for setting, policy in (("g1/shisensho-6x6", "random"), ("geospot", "random"), ("geospot", "oracle")):
        summary = summarise(evaluate(setting, policy, 3, workers=0))
        score = f"{summary.score_mean:.4g}" + (f" ± {summary.score_stderr:.2g}" if summary.score_stderr else "")
        assert f"| `{setting}` | {policy} | 3 | {score} |" in page
    assert "| `vlm-gym/geospot` | | | same game as `geospot` |" in page
    assert "`swap`" not in page.replace("same game as `swap`", "")


def test_resuming_an_interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path, "--games", "nlvr2", "--episodes", "4")
    (kept,) = (tmp_path / "kept").glob("nlvr2-*-random.jsonl")
    lines = kept.read_text()
    kept.write_text(lines[: len(lines) // 2])  # within a line
    played: list[tuple[int, int]] = []

    def watched(game: object, policy: object, episodes: int, *, seed: int, **others: object) -> object:
        played.append((seed, episodes))
        return evaluate(game, policy, episodes, seed=seed, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(protocols, "evaluate", watched)
    assert run(tmp_path, "--games", "nlvr2", "--episodes", "4") == whole
    assert kept.read_text() == lines
    assert len(played) == 1
    assert sum(played[0]) == 4
    assert run(tmp_path, "--games", "nlvr2", "--episodes", "2") == whole  # episodes are never dropped


def test_g1_answers_are_packed_in_base_6() -> None:
    game = make_game("g1/shisensho-12x12")
    state = game.start(np.random.default_rng(0))
    rng, same = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(50):
        row, column, other_row, other_column = (int(value) for value in same.integers(8, size=4))
        number = row * 6 * 6 * 6 + column * 6 * 6 + other_row * 6 + other_column
        cells = (number // 216, (number % 216) // 36, (number % 36) // 6, number % 6)
        assert game.parse(protocols.G1Random().respond(game, state, rng)) == cells
    with pytest.raises(UsageError, match="plays shisensho"):
        protocols.G1Random().check(make_game("swap"))


def test_bounded_oracle_plays_legally_to_the_end() -> None:
    (episode,) = evaluate("g1/shisensho-12x12", protocols.BoundedOracle(), 1, seed=3, workers=0)
    assert episode.status == "ended"
    assert all(turn.outcome.value == "played" for turn in episode.turns)


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args, words in (
        (["--games", "chess"], "unknown setting 'chess'"),
        (["--episodes", "0"], "episodes must be an integer of at least 1"),
        (["--page", str(tmp_path / "none.md")], "page not found"),
    ):
        with pytest.raises(SystemExit):
            protocols.main([*args, "--output-dir", str(tmp_path / "kept")])
        assert words in capsys.readouterr().err
    with pytest.raises(UsageError, match="no markers"):
        protocols.write_between("a page", "baselines", ["line"])


def test_committed_page_has_all_rows() -> None:
    text = (ROOT / "docs" / "protocols.md").read_text()
    for setting in protocols.SETTINGS:
        assert f"| `{setting.name}` |" in text
    for row in protocols.COMPARISONS:
        assert f"| {row.game} | " in text
