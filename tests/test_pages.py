"""All pages in a real browser: accessibility, and what a report and a comparison show."""

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser import AXE, Watched, check_accessible
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.evaluation import EvalConfig, read_run
from vlmgym.evaluation.compare import Comparison

VIEWS = ("", "#curves", "#2048-v0/0/2", "#swap-v0/1/1", "#videos")
ADDRESSES = {"random/report.html": VIEWS, "compare/compare.html": ("", "#swap-v0/1/1"), "gallery.html": ("",)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with reports of a random policy and an oracle, their comparison, and a gallery."""
    out = tmp_path_factory.mktemp("pages")
    options = {"episodes": 6, "max_turns": 20, "size": 128, "workers": 0, "videos": 2}
    for policy in ("random", "oracle"):
        run_evaluation(["2048", "swap"], EvalConfig(policy=policy, output_dir=out / policy, **options))
    main(["compare", str(out / "random"), str(out / "oracle"), "--output-dir", str(out / "compare"), "--workers", "0"])
    main(["gallery", "maze", "scenes-statements", "--output", str(out / "gallery.html"), "--size", "128"])
    return out


@pytest.mark.parametrize(("scheme", "width"), [pytest.param("light", 400, marks=pytest.mark.slow), ("dark", 1280)])
@pytest.mark.parametrize("name", ADDRESSES)
def test_pages_are_accessible_and_fit_the_window(folder, browser, name, scheme, width):
    with browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800}) as opened:
        watched = Watched(opened)
        watched.visit(folder / name)
        opened.evaluate(AXE)
        for address in ADDRESSES[name]:
            opened.evaluate("address => location.hash = address", address)
            if "/" in address:
                expect(opened.locator(".what")).to_contain_text(address[1:].partition("/")[0])
            opened.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            check_accessible(opened, width)
        paper = opened.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", paper)[0]) < 128) is (scheme == "dark")
        watched.check()


def test_report_starts_with_scores(folder, watched):
    opened = watched.visit(folder / "random/report.html")
    expect(opened.get_by_role("tab", selected=True)).to_have_text("Overview")
    first = opened.get_by_role("tabpanel").locator("table").first
    assert first.locator("th[scope=col]").all_inner_texts()[:4] == ["game", "mean score", "95% interval", "episodes"]
    assert first.locator("th[scope=row]").all_inner_texts() == ["2048-v0", "swap-v0"]
    assert not opened.locator(".pane").is_visible()
    opened.get_by_role("tab", name="Episodes").click()
    expect(opened.locator(".pane")).to_be_visible()
    opened.keyboard.press("ArrowRight")
    expect(opened.locator(".position")).to_have_text("turn 2 of 20")
    opened.go_back()
    expect(first).to_be_visible()
    first.get_by_role("link", name="swap-v0").click()
    expect(opened.locator(".what")).to_have_text("swap-v0, seed 0")


@pytest.mark.parametrize(("name", "count"), [("random/report.html", 4), ("compare/compare.html", 8)])
def test_videos_are_linked(folder, watched, name, count):
    opened = watched.visit(folder / name, "#videos")
    links = opened.locator("#panel-videos a").evaluate_all("all => all.map(one => decodeURI(one.href))")
    assert len(links) == count
    assert all(Path(link.removeprefix("file://")).is_file() for link in links)
    opened = watched.visit(folder / name, "#swap-v0/1/1")
    expect(opened.locator(".pane a").first).to_have_attribute("href", re.compile(r"videos/swap_1\.mp4$"))
    opened = watched.visit(folder / name, "#swap-v0/2/1")
    expect(opened.locator(".pane a")).to_have_count(0)


def number(text):
    return float(text.replace("\u2212", "-").replace(",", ""))


def test_differences_have_one_sign(folder, watched):
    found = Comparison.model_validate_json((folder / "compare/compare.json").read_bytes())
    first, second = ({one.key: one.score for one in read_run(folder / name).episodes} for name in ("random", "oracle"))
    expected = {seed: first["2048-v0", seed] - second["2048-v0", seed] for seed in range(6)}
    assert found.games["2048-v0"].metrics["score"].difference == pytest.approx(np.mean([*expected.values()]))

    opened = watched.visit(folder / "compare/compare.html")
    table = opened.locator("#panel-overview table").nth(1)
    assert table.locator("th").all_inner_texts()[3] == "random - oracle (95%)"
    score = table.locator("tr", has=opened.get_by_role("rowheader", name="score", exact=True))
    shown = number(score.locator("td").all_inner_texts()[2].split()[0])
    assert shown == pytest.approx(np.mean([*expected.values()]), rel=1e-3)
    assert "Differences are random - oracle: positive if random is higher." in opened.inner_text("#panel-overview")

    opened = watched.visit(folder / "compare/compare.html", "#2048-v0/0/1")
    assert opened.inner_text(".what").startswith("2048-v0, seed 0; random - oracle: ")
    assert number(opened.inner_text(".what").split()[-1]) == expected[0]
    assert "random - oracle" in opened.inner_text(".list-head")
    opened.get_by_role("combobox", name="Game").select_option("2048-v0")
    for order, descending in (("largest first", True), ("smallest first", False)):
        opened.get_by_role("combobox", name="Order").select_option(f"random - oracle, {order}")
        rows = [(int(row.split()[1]), number(row.split()[-1])) for row in opened.locator(".row").all_inner_texts()]
        assert [difference for _, difference in rows] == sorted(expected.values(), reverse=descending)
        assert all(expected[seed] == difference for seed, difference in rows)
    watched.check()
