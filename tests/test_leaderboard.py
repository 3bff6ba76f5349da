"""The leaderboard of a suite, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest

from tests.browser import AXE, EVIL, Watched, check_accessible, chromium
from tests.commands import Done
from tests.playing import edited, small_suite
from vlmgym.benchmark.suites import mean_with_error
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.runs.record import SuiteSummary

PRICES = ("--price-in", "1000", "--price-out", "2000")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Freeze a small suite, play it with several policies, and return the folder of runs."""
    root = tmp_path_factory.mktemp("suite")
    (root / "counting.py").write_text(
        "from vlmgym.policies import Reply\n"
        "def counting(images, prompts):\n"
        "    words = ['true' if len(shown) else 'false' for shown in images]\n"
        "    answers = [f'<answer>{word}</answer>' for word in words]\n"
        "    return [Reply(answer, prompt_tokens=10, completion_tokens=5) for answer in answers]\n"
    )
    games = ("2048-v0", "scenes-statements-v0", "rotation-v0", "swap-v0")
    with small_suite(root, *games, episodes=3, max_turns=12):
        counting, text = f"{root / 'counting.py'}:counting", ("--observation", "text", "--no-report")
        for name, policy, more in (
            ("random", "random", ("--no-report",)),
            ("oracle", "oracle", ("--history", "1")),
            ("counting", counting, (*PRICES, "--no-report")),
            ("described", counting, text),
        ):
            options = ["--policy", policy, "--videos", "0", "--workers", "0", "--output-dir", str(root / name), *more]
            main(["eval", "--suite", "small-1", *options])
        yield root


@pytest.fixture(scope="module")
def watched(runs: Path) -> Iterator[Watched]:
    page = runs / "leaderboard.html"
    folders = [str(runs / name) for name in ("random", "described", "oracle", "counting")]
    main(["leaderboard", *folders, "--output", str(page), "--workers", "0"])
    with chromium() as browser:
        watched = Watched(browser.new_page(viewport={"width": 1300, "height": 900}))
        watched.visit(page)
        yield watched


def column(watched: Watched, name: str) -> list[str]:
    heads = watched.page.locator("#board thead th").all_inner_texts()
    return watched.page.locator(f"#board tbody tr > :nth-child({heads.index(name) + 1})").all_inner_texts()


def results(run: Path) -> SuiteSummary:
    found = open_run(run).last_summary().suite
    assert found is not None
    return found


def test_entries_are_ranked_with_errors_costs_and_links(runs: Path, watched: Watched) -> None:
    played = {name: open_run(runs / name) for name in ("random", "oracle", "counting", "described")}
    suites = {name: results(runs / name) for name in played}
    assert {name for name, suite in suites.items() if suite.score is None} == {"described"}
    scores = {
        name: mean_with_error([game.normalised for game in suite.games.values()])[0] for name, suite in suites.items()
    }
    order = sorted(("random", "oracle", "counting"), key=lambda name: -scores[name])
    assert [name.rpartition(":")[2] for name in column(watched, "model")] == [*order, "counting"]
    assert column(watched, "prompt") == [
        *("image, history 1" if name == "oracle" else "image" for name in order),
        "text, 3 games",
    ]
    assert [float(score.split()[0]) for score in column(watched, "score")] == [
        round(scores[name], 3) for name in (*order, "described")
    ]
    assert all("±" in score for score in column(watched, "score"))
    assert column(watched, "verification") == ["verified"] * 4
    costs = {"counting": f"{0.02 * sum(len(one.turns) for one in played['counting'].read()):.2f}"}
    assert column(watched, "cost") == [costs.get(name, "") for name in (*order, "described")]
    links = watched.page.locator("#board tbody a")
    assert links.all_inner_texts() == ["oracle"]
    assert watched.page.locator(".profile").count() == 4
    watched.check()


def test_the_perception_gap_is_over_the_episodes_of_both_runs(runs: Path, watched: Watched) -> None:
    assert open_run(runs / "described").config.game_ids == ("2048-v0", "scenes-statements-v0", "swap-v0")
    text, image = (
        results(runs / name).games["scenes-statements-v0"].normalised[0] for name in ("described", "counting")
    )
    (gap,) = filter(None, column(watched, "perception gap"))
    assert text != image
    assert float(gap.split()[0]) == pytest.approx((text - image) / 3, abs=0.001)


@pytest.mark.parametrize(("scheme", "width"), [("light", 400), pytest.param("dark", 1280, marks=pytest.mark.slow)])
def test_the_page_is_accessible_and_fits_the_window(runs: Path, watched: Watched, scheme: Any, width: int) -> None:
    browser = watched.page.context.browser
    assert browser is not None
    with browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800}) as page:
        page.goto((runs / "leaderboard.html").as_uri())
        page.evaluate(AXE)
        check_accessible(page, width)


def test_names_are_text_and_reports_are_linked(runs: Path, watched: Watched, tmp_path: Path) -> None:
    page, model = tmp_path / "page.html", EVIL.removesuffix(" \u2028")
    changed = shutil.copytree(runs / "counting", tmp_path / "changed")
    policy = {"name": "openai", "options": {"model": model, "temperature": 0.5}}
    with edited(changed / "run.json") as config, edited(changed / "episodes.jsonl") as records:
        for data in (config, *records):
            data["policy"] = policy
    main(["report", str(changed), "--workers", "0"])
    main(["leaderboard", str(changed), str(runs / "oracle"), "--output", str(page), "--workers", "0"])
    browser = watched.page.context.browser
    assert browser is not None
    other = Watched(browser.new_page())
    other.visit(page)
    assert column(other, "model") == ["oracle", PurePath(model).name]
    assert column(other, "policy") == ["oracle", f"openai ...{model[-57:]}"]
    assert column(other, "sampling") == ["", "temperature 0.5"]
    assert column(other, "verification") == ["verified"] * 2
    other.page.locator(".profile").last.get_by_role("link", name="swap-v0").click()
    other.page.wait_for_selector(".pane .outcome")
    assert "swap-v0, seed 2026000" in other.page.inner_text(".stage h2")
    other.check()


def test_runs_with_differences_are_ranked_last(runs: Path, watched: Watched, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    changed, emptied = (shutil.copytree(runs / name, tmp_path / name) for name in ("counting", "random"))
    with edited(changed / "episodes.jsonl") as changes, edited(emptied / "episodes.jsonl") as records:
        changes[0]["metrics"]["largest tile"] = "4"
        for record in records:
            record.update(turns=[], status="ended", score=0)
    folders = [str(changed), str(emptied), str(runs / "random")]
    main(["leaderboard", *folders, "--output", str(page), "--workers", "0"])
    watched.visit(page)
    assert (column(watched, "model")[0], column(watched, "verification")[0]) == ("random", "verified")
    assert sorted(column(watched, "verification")[1:]) == ["1 difference", "12 differences"]
    watched.visit(runs / "leaderboard.html")


def test_runs_without_all_results_or_of_different_suites_are_not_ranked(
    runs: Path, tmp_path: Path, run: Callable[..., Done]
) -> None:
    other = shutil.copytree(runs / "random", tmp_path / "other")
    with edited(other / "episodes.jsonl") as records:
        records[0].update(status="stopped", score=None)
    assert "has no result for all episodes of" in run("leaderboard", other, "--no-verify").err
    with edited(other / "run.json") as config:
        config["suite"] = None
    assert "all runs must be of the same suite" in run("leaderboard", runs / "random", other).err
