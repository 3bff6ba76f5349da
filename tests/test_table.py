"""Tables over several runs, and runs as data frames."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from markdown_it import MarkdownIt

import vlmgym
from tests.playing import edited, play_run
from vlmgym import UsageError
from vlmgym.cli.main import main
from vlmgym.evaluation.table import ResultsTable, latex, markdown
from vlmgym.statistics import paired_difference

GAMES = ("2048", "sliding")
NASTY = r"""=cmd|'C calc'!A0 ~5% of {x}_y $\alpha$ #1 & <b>*bold*<b> `q` [l](u) -- "z" ^2"""
"""Name of a model with the special characters of every format."""


def renamed(run: Path, model: str) -> Path:
    """Say in `run.json` that a model played."""
    with edited(run / "run.json") as config:
        config["policy"] = {"name": "openai", "options": {"model": model}}
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    play_run(folder / "a" / "oracle", "oracle", GAMES)
    play_run(folder / "b" / "random", "random")
    play_run(folder / "c" / "random", "random", ("sliding",))  # another run of the same row
    renamed(play_run(folder / "d", "random-legal", GAMES), f"org/{NASTY}")
    return folder


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*args: object) -> str:
        capsys.readouterr()
        main(["table", *map(str, args)])
        return capsys.readouterr().out

    return call


def markdown_cells(text: str) -> list[list[str]]:
    """Return the cells of a Markdown table as a reader would see them."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level == 4:
            kinds = [child.type for child in token.children or []]
            assert {*kinds} <= {"text", "text_special", "strong_open", "strong_close"}
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows


def test_means_intervals_and_the_best(runs, printed):
    shown = printed(runs)
    heads, oracle, random, named = markdown_cells(shown)
    assert (heads, [oracle[0], random[0], named[0]]) == (["", "2048-v0", "sliding-v0"], ["oracle", "random", NASTY])
    frame = vlmgym.read_runs(runs).to_pandas()
    scores = {
        (row.policy, row.game): group.sort_values("seed").score.tolist()
        for (policy, game), group in frame.groupby(["policy", "game"])
        for row in [group.iloc[0]]
    }
    for i, game in enumerate(heads[1:], 1):
        for row, policy in ((oracle, "oracle"), (random, "random"), (named, "openai")):
            mean, _, interval = row[i].partition(" ")
            assert float(mean) == pytest.approx(np.mean(scores[policy, game]), rel=0.05)
            low, high = map(float, interval.strip("[]").split(", ")) if interval else (float(mean), float(mean))
            assert low <= float(mean) <= high
        best = max(("oracle", "random", "openai"), key=lambda policy: np.mean(scores[policy, game]))
        others = [
            paired_difference(scores[best, game], scores[p, game]) for p in {*("oracle", "random", "openai")} - {best}
        ]
        bold = all(difference.interval and difference.interval[0] > 0 for difference in others)
        assert (f"**{ {'oracle': oracle, 'random': random, 'openai': named}[best][i].split()[0] }**" in shown) is bold
    assert "**" in shown, "the oracle is the best player of sliding tiles"
    for fact in ("perception 3, reasoning 3", "seeds 0 to 7", "at most 10 turns", "95%"):
        assert fact in shown


def test_rows_and_columns(runs, printed):
    heads, *rows = markdown_cells(printed(runs, "--rows", "game", "--columns", "model"))
    assert (heads[1:3], [row[0] for row in rows]) == (["oracle", "random"], ["2048-v0", "sliding-v0"])
    with pytest.raises(SystemExit):
        main(["table", str(runs), "--rows", "game"])


def test_csv_and_json_load_in_pandas(runs, printed):
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(io.StringIO(printed(runs, "--format", "csv")))
    numbers = pandas.DataFrame(json.loads(printed(runs, "--format", "json"))["results"])
    assert [*table] == [*numbers]
    assert len(table) == 6
    assert table["mean"].tolist() == pytest.approx(numbers["mean"].tolist())
    assert table["best"].tolist() == numbers["best"].tolist()


def test_latex_escapes_special_characters(runs, printed, tmp_path):
    last = renamed(play_run(tmp_path / "last", "random-legal"), "[2cm]b")  # not an option of the row before
    body = printed(runs, last, "--format", "latex")
    assert r"5\% of \{x\}\_y \$\textbackslash{}alpha\$ \#1 \& " in body
    assert "{[}2cm" in body


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_turns": 9}, "differ in max_turns: 10 in oracle, 9 in other"),
        ({"perception": 2}, "differ in perception: 3 in oracle, 2 in other; --rows model perception shows both"),
        ({"overrides": (("goal=16",),)}, "differ in goal: None in oracle, 16 in other"),
        ({"observation": "text"}, "differ in observation: 'image' in oracle, 'text' in other; --rows"),
    ],
)
def test_different_settings_are_refused(runs, tmp_path, options, message):
    other = play_run(tmp_path / "other", "random", **options)
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        ResultsTable(vlmgym.read_runs([runs / "a", other]), ("model",), ("game",))


def test_levels_and_repeated_models(runs, tmp_path):
    easy = play_run(tmp_path / "easy", "oracle", GAMES, perception=2)
    both = vlmgym.read_runs([runs / "a", easy])
    table = ResultsTable(both, ("model", "perception"), ("game",))
    assert table.rows == [("oracle", "perception 3"), ("oracle", "perception 2")]
    assert table.best == [], "different levels are different tasks"
    again = play_run(tmp_path / "again", "oracle", GAMES)
    twice = vlmgym.read_runs([runs / "a", again])
    with pytest.raises(UsageError, match=r"two results for oracle, 2048-v0: .*; add run to --rows"):
        ResultsTable(twice, ("model",), ("game",))
    table = ResultsTable(twice, ("run",), ("game",))
    assert table.rows == [("oracle",), ("again",)]
    assert table.best == [], "equal scores are not significantly different"
    assert "\\textbf" not in latex(table)
    assert "**" not in markdown(table)


def test_notes_say_what_may_bias_a_comparison(runs, tmp_path):
    other = play_run(tmp_path / "other", "random")
    with edited(other / "run.json") as config, edited(other / "episodes.jsonl") as records:
        config["versions"]["vlmgym"] = "0.0.9"
        del records[6:]
    notes = ResultsTable(vlmgym.read_runs([runs / "a", other]), ("model",), ("game",)).notes
    assert f"Played with vlmgym 0.0.9 and vlmgym {vlmgym.__version__}." in notes
    assert "2 of 24 episodes have no result, which may bias means." in notes


def test_read_runs(runs, tmp_path):
    found = vlmgym.read_runs(runs)
    assert [run.folder.folder.name for run in found] == ["oracle", "random", "random", "d"]
    assert found[0].summary == vlmgym.read_runs(runs / "a" / "oracle")[0].stored.last_summary()
    (runs / "a" / "oracle" / "summary.json").rename(tmp_path / "summary.json")
    try:
        assert vlmgym.read_runs(runs / "a")[0].summary.games == found[0].summary.games
    finally:
        (tmp_path / "summary.json").rename(runs / "a" / "oracle" / "summary.json")
    with pytest.raises(UsageError, match="is not a run, and there is none in it"):
        vlmgym.read_runs(tmp_path)


def test_export_csv(runs, tmp_path):
    pandas = pytest.importorskip("pandas")
    main(["export", str(runs / "d"), "--format", "csv", "--output-dir", str(tmp_path / "out")])
    rows = pandas.read_csv(tmp_path / "out" / "episodes.csv")
    frame = vlmgym.read_runs(runs / "d").to_pandas()
    assert [*rows] == [*frame]
    assert rows.score.tolist() == frame.score.tolist()
    assert {*rows.model} == {f"org/{NASTY}"}
    with pytest.raises(SystemExit, match="2"):
        main(["export", str(runs / "d"), "--format", "csv", "--output-dir", str(tmp_path / "o"), "--min-score", "1"])
