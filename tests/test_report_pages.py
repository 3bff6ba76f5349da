"""Report pages of unusual runs: large, compared, unfinished, or with a game that is not installed."""

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser import EVIL, WAIT, canvas, choose, pixels, rows, shows, turn
from vlmgym import make_game
from vlmgym.evaluation import RunRecord, evaluate, open_run
from vlmgym.evaluation.summary import updated_summary
from vlmgym.evaluation.tables import PageTable
from vlmgym.pages import store
from vlmgym.pages.episode import episode_images
from vlmgym.pages.report import LabelledRun, write_page
from vlmgym.runs.record import now, versions
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.workers.pool import ProcessPool


@pytest.fixture(scope="module")
def few():
    return evaluate("2048", "random", 5, max_turns=10, workers=0)


def labelled(episodes, folder, label="x", stop_reason=None):
    """Save a run with episodes of one game; return it as a `LabelledRun` for a page."""
    folder.mkdir(parents=True)
    first = episodes[0]
    config = RunRecord(
        started=now(),
        versions=versions(),
        games=(first.game,),
        policy=first.policy,
        reward=first.reward,
        prompts=PromptConfig(),
        max_turns=first.max_turns,
        seed=0,
        episodes=len(episodes),
        options={},
    )
    (folder / "run.json").write_text(config.model_dump_json())
    (folder / "episodes.jsonl").write_text("".join(f"{one.model_dump_json()}\n" for one in episodes))
    run = open_run(folder)
    return LabelledRun(label, run, updated_summary(run).model_copy(update={"stop_reason": stop_reason}))


def write(path, *runs, **options):
    with ProcessPool(0) as workers:
        write_page(path, runs, title="title", workers=workers, **options)


@pytest.fixture(scope="module")
def large(few, tmp_path_factory):
    """A page with 1,000 episodes."""
    path = tmp_path_factory.mktemp("large") / "report.html"
    many = [few[seed % 5].model_copy(update={"seed": seed}) for seed in range(1000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "INLINE_BYTES", 400_000)
        patch.setattr(store, "FILE_BYTES", 80_000)
        write(path, labelled(many, path.with_name("run")), images=10)
    return path


def test_large_run_loads_episodes_on_demand(large, watched):
    assert large.stat().st_size < 400_000
    sizes = [file.stat().st_size for file in large.with_suffix("").glob("*/*.js")]
    assert 20 < len(sizes) < 200
    assert max(sizes) < 200_000
    opened = watched.visit(large, "#2048-v0/900/5")
    shows(opened, ".position", "turn 5 of 10")
    assert opened.inner_text(".what") == "2048-v0, seed 900"
    requested = [url.rpartition("/")[2].partition("#")[0] for url in watched.requests]
    assert requested == ["report.html", file_of(large, "0-900").name]
    assert 0 < opened.locator(".row").count() < 60
    assert "seed 900" in " ".join(rows(opened))
    assert "images of the first 10 episodes" in opened.inner_text(".before")
    for _ in range(5):
        opened.keyboard.press("j")
    shows(opened, ".what", "2048-v0, seed 905")
    choose(opened, "Order", "worst score first")
    opened.eval_on_selector(".list", "list => list.scrollTop = list.scrollHeight")
    expect(opened.locator(".row").last).to_have_attribute("aria-posinset", "1000", timeout=WAIT)
    assert opened.locator(".row").count() < 60
    assert sum(url.endswith(".js") for url in watched.requests) <= 4
    watched.visit(large, "#2048-v0/1/1")
    assert canvas(opened, ".before").shape == (640, 640, 3)
    watched.check()


def file_of(page, episode):
    (file,) = (file for file in page.with_suffix("").glob("*/*.js") if f'"{episode}":' in file.read_text())
    return file


def test_missing_episode_file_is_reported(large, watched):
    lost = file_of(large, "0-7")
    hidden = lost.rename(lost.with_suffix(".hidden"))
    try:
        opened = watched.visit(large, "#2048-v0/7/1")
        opened.wait_for_selector("text=This episode cannot be shown: report/")
        assert f"{lost.name} is not next to this page" in opened.inner_text(".message")
    finally:
        hidden.rename(lost)
    opened.evaluate("location.hash = '#2048-v0/900/1'")
    opened.wait_for_selector(".outcome:visible")
    assert opened.inner_text(".what") == "2048-v0, seed 900"


def test_two_runs_side_by_side(few, watched, tmp_path):
    other = evaluate("2048", "random-legal", 2, max_turns=8, workers=0)
    runs = labelled(few, tmp_path / "a", "a"), labelled(other, tmp_path / "b", "b")
    path = tmp_path / "compare.html"
    write(path, *runs, tables=[PageTable("Difference", ("", "2048-v0"), [("b - a", "+12.3 <b>")], "Of 4 seeds.")])
    opened = watched.visit(path, "#2048-v0/1/6")
    opened.wait_for_selector(".after canvas >> nth=1")
    assert opened.locator(".pane").count() == 2
    assert (opened.locator("#panel-overview table >> nth=1").text_content() or "").endswith("b - a+12.3 <b>")
    game = make_game("2048")
    for pane, episode in enumerate((few[1], other[1])):
        state = game.from_data(episode.turns[5].state)
        assert np.array_equal(canvas(opened, f".pane:nth-child({pane + 1}) .before"), game.draw(state))
    for _ in range(3):
        opened.keyboard.press("ArrowRight")
    assert turn(opened) == "turn 9 of 10"
    assert opened.locator(".message").nth(1).inner_text() == "This episode ended after 8 turns."
    opened.keyboard.press("j")
    expect(opened.locator(".message").nth(1)).to_contain_text("no record", timeout=WAIT)
    opened.get_by_role("tab", name="Curves").click()
    expect(opened.locator(".plot svg >> nth=0").locator("path.mean")).to_have_count(2)
    watched.check()


def test_episodes_without_a_result(watched, tmp_path, few):
    broken = few[1].model_copy(update={"status": "error", "score": None, "end_reason": f"HTTP 500: {EVIL}"})
    empty = broken.model_copy(update={"seed": 2, "turns": ()})
    run = labelled([few[0], broken, empty], tmp_path / "run", stop_reason="the budget is used up")
    write(tmp_path / "report.html", run)
    opened = watched.visit(tmp_path / "report.html", "#2048-v0/1/1")
    banner = opened.inner_text(".banner")
    assert "the budget is used up" in banner
    assert "not included in any score: 2 error" in banner
    assert "Means cover 1 of 3 episodes." in banner
    assert "HTTP 500: <img" in opened.inner_text(".pane h3")
    for status, count in (("with a result", 1), ("error", 2)):
        choose(opened, "Ended", status)
        assert len(rows(opened)) == count
    opened.evaluate("location.hash = '#2048-v0/2/1'")
    opened.wait_for_selector("text=The state")
    assert canvas(opened, ".before").shape == (640, 640, 3)
    watched.check()


def test_game_that_is_not_installed_has_texts_only(watched, tmp_path, few):
    foreign = few[0].model_copy(update={"game": few[0].game.model_copy(update={"id": "2048-v999"})})
    write(tmp_path / "report.html", labelled([foreign], tmp_path / "run"))
    opened = watched.visit(tmp_path / "report.html", "#2048-v999/0/1")
    assert "was not installed" in opened.inner_text(".before")
    assert "<answer>" in opened.inner_text("pre.response")
    watched.check()


def test_old_episode_files_are_removed(tmp_path, few, monkeypatch):
    one, two = labelled(few[:1], tmp_path / "one"), labelled(few[:2], tmp_path / "two")
    path, own = tmp_path / "report.html", tmp_path / "report" / "notes"
    own.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(store, "INLINE_BYTES", 0)
        write(path, two)
        write(path, one)
        assert sorted(file.name for file in (tmp_path / "report").glob("*/*.js")) == ["0.js"]
    write(path, two)
    assert list((tmp_path / "report").iterdir()) == [own]


@pytest.mark.parametrize(("perception", "lossy"), [(3, False), (5, True)])
def test_only_noise_is_stored_with_loss(perception, lossy):
    game = make_game("2048", perception=perception)
    states = [game.start(np.random.default_rng(seed)) for seed in range(3)]
    images = episode_images(game, states)
    assert any(tile.startswith("data:image/jpeg") for tile in images["tiles"]) is lossy
    cuts, tiles = images["cuts"][0], iter(images["frames"][images["shown"][2]][0])
    shown = np.zeros((cuts["rows"][-1], cuts["columns"][-1], 3), int)
    for top, bottom in zip(cuts["rows"], cuts["rows"][1:]):
        for left, right in zip(cuts["columns"], cuts["columns"][1:]):
            shown[top:bottom, left:right] = pixels(images["tiles"][next(tiles)])
    assert np.abs(shown - game.images(states[2])[0]).mean() < (8 if lossy else 1e-9)
