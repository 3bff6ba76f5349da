"""The leaderboard of a suite, in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.leaderboard import Config, write
from benchmarks.suites import FreezeConfig, freeze
from tests.browser import Watched, chromium
from vlmgym.cli.main import main
from vlmgym.evaluation.leaderboard.entry import Entry, ranked
from vlmgym.evaluation.suite import read_suite

PRICES = ("--price-in", "1", "--price-out", "2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Freeze a small suite, and play it with several policies."""
    root = tmp_path_factory.mktemp("suite")
    (root / "counting.py").write_text(
        "from vlmgym.policies import Reply\n"
        "def counting(images, prompts):\n"
        "    return [Reply('<answer>true</answer>', prompt_tokens=10, completion_tokens=5) for _ in prompts]\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmgym.evaluation.suite.FOLDER", root)
        patch.setattr("benchmarks.suites.FOLDER", root)
        patch.setattr("benchmarks.suites.BUILT_IN", ["2048-v0", "nlvr2-v0", "swap-v0"])
        small: Any = {"description": "Small & fast.", "episodes": 3, "max_turns": 40}
        freeze(FreezeConfig(name="small-1", baseline_episodes=10, **small))
        read_suite.cache_clear()
        for policy, more in {"random": (), "oracle": (), f"{root / 'counting.py'}:counting": PRICES}.items():
            folder = root / policy.rpartition(":")[2]
            options = ["--policy", policy, "--videos", "0", "--workers", "0", "--output-dir", str(folder), *more]
            main(["eval", "--suite", "small-1", *options, *(["--no-report"] if policy == "random" else [])])
        yield root


@pytest.fixture(scope="module")
def watched(runs: Path) -> Iterator[Watched]:
    page = runs / "leaderboard.html"
    main(["leaderboard", *(str(runs / name) for name in ("random", "oracle", "counting")), "--output", str(page)])
    with chromium() as browser:
        watched = Watched(browser.new_page(viewport={"width": 1300, "height": 900}))
        watched.visit(page)
        yield watched


def column(watched: Watched, name: str) -> list[str]:
    heads = watched.page.locator("#board thead th").all_inner_texts()
    return watched.page.locator(f"#board tbody tr > :nth-child({heads.index(name) + 1})").all_inner_texts()


def test_entries_are_ranked_with_errors_costs_and_links(watched: Watched) -> None:
    assert column(watched, "model")[0] == "oracle"
    assert column(watched, "model")[-1] == "random" or column(watched, "model")[-1].endswith("counting")
    assert all("±" in score for score in column(watched, "score"))
    assert column(watched, "scoring") == ["verified"] * 3
    assert sorted(column(watched, "cost"))[:2] == ["", ""]
    assert float(max(column(watched, "cost"))) >= 0
    links = watched.page.locator("#board tbody a")
    assert sorted(links.all_inner_texts())[-1] == "oracle"
    assert links.count() == 2
    assert watched.page.locator(".profile").count() == 3
    watched.check()


def test_columns_sort_both_ways(watched: Watched) -> None:
    button = watched.page.get_by_role("button", name="unparsable", exact=True)
    button.click()
    first = [float(text.rstrip("%")) for text in column(watched, "unparsable")]
    button.click()
    assert first == sorted(first, reverse=True)
    assert [float(text.rstrip("%")) for text in column(watched, "unparsable")] == sorted(first)
    watched.check()


def test_submissions_have_their_stated_model_and_cost_and_reports(runs: Path, watched: Watched, tmp_path: Path) -> None:
    packed, page = tmp_path / "packed", tmp_path / "page.html"
    stated = ["--model", "lab/<b>", "--provider", "a service", "--submitter", "me"]
    main(["submit", "pack", str(runs / "counting"), "--output-dir", str(packed), "--workers", "0", *stated])
    folders = [str(packed), str(runs / "oracle")]
    main(["leaderboard", *folders, "--output", str(page), "--workers", "0", "--reports"])
    browser = watched.page.context.browser
    assert browser is not None
    other = Watched(browser.new_page())
    other.visit(page)
    assert column(other, "model") == ["oracle", "lab/<b>"]
    assert column(other, "scoring") == ["verified"] * 2
    other.page.locator(".profile").last.get_by_role("link", name="swap-v0").click()
    other.page.wait_for_selector(".pane .outcome")
    assert "swap-v0, seed 2026000" in other.page.inner_text(".stage h2")
    other.check()
    metadata = packed / "metadata.toml"
    metadata.write_text(metadata.read_text().replace("date = 2", "date = 1"))
    main(["leaderboard", str(packed), "--output", str(page), "--workers", "0"])
    assert "1 difference" in page.read_text()


def test_the_committed_page_is_written_by_its_command(runs: Path, tmp_path: Path) -> None:
    write(Config(suite="small-1", docs=tmp_path, workers=0))
    rows = [line.split(" | ") for line in (tmp_path / "leaderboard.md").read_text().splitlines() if "±" in line]
    assert [row[0] for row in rows[:1]] == ["| oracle"]
    assert sorted(row[0] for row in rows[1:3]) == ["| random", "| random-legal"]
    assert [row[0] for row in rows[-3:]] == ["| 2048-v0", "| nlvr2-v0", "| swap-v0"]
    assert {"| planning", "| perception"} <= {row[0] for row in rows[3:-3]}
    assert "verified" in (tmp_path / "leaderboard" / "small-1.html").read_text()


def test_the_perception_gap_is_the_score_with_text_minus_that_with_images() -> None:
    known: Any = {"label": "a", "date": "", "games": {}, "skills": {}, "illegal": 0.0, "unparsable": 0.0, "seed": 0}
    unknown: Any = dict.fromkeys(("perception_gap", "tokens", "cost", "problems", "report"))
    image = Entry(observation="image", mean=(0.3, 0.03), **known, **unknown)
    text = replace(image, observation="text", mean=(0.5, 0.04))
    other = replace(image, label="b", mean=(0.1, 0.01))
    gaps = [entry.perception_gap for entry in ranked([other, image, text])]
    assert gaps == [None, pytest.approx((0.2, 0.05)), None]


def test_a_changed_record_is_marked(runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "random", tmp_path / "run")
    lines = (run / "episodes.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    record["metrics"]["largest tile"] = "4096"
    (run / "episodes.jsonl").write_text("\n".join([json.dumps(record), *lines[1:]]) + "\n")
    page = tmp_path / "page.html"
    main(["leaderboard", str(run), "--output", str(page), "--workers", "0"])
    assert "1 differences" not in page.read_text()
    assert "1 difference" in page.read_text()


def test_runs_of_no_suite_are_rejected(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--episodes", "1", "--max-turns", "1", "--videos", "0", "--no-report", "--workers", "0"]
    main(["eval", "2048", *options, "--output-dir", str(tmp_path / "run")])
    with pytest.raises(SystemExit):
        main(["leaderboard", str(runs / "random"), str(tmp_path / "run")])
    assert "all runs must be of the same suite" in capsys.readouterr().err


def test_private_and_public_seeds_are_not_ranked_together(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = shutil.copytree(runs / "random", runs / "private")
    config = json.loads((private / "run.json").read_text())
    (private / "run.json").write_text(json.dumps(config | {"private_salt": "0" * 64}))
    with pytest.raises(SystemExit):
        main(["leaderboard", str(runs / "random"), str(private)])
    assert "all runs must be on public seeds, or on private seeds of the same salt" in capsys.readouterr().err
