"""The report page in a real browser, opened from disk."""

import base64
import io
import json
import random
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.browser import Watched, chromium
from vlmgym import make_game
from vlmgym.cli.eval import run_evaluation
from vlmgym.cli.main import main
from vlmgym.errors import ParseError, UsageError
from vlmgym.evaluation import EvalConfig, evaluate, read_run
from vlmgym.evaluation.report import LabelledRun, PageTable, store, write_page
from vlmgym.evaluation.report.episode import make_episode
from vlmgym.evaluation.report.images import episode_images
from vlmgym.evaluation.report.texts import LONGEST, marked, safe_json
from vlmgym.evaluation.summary import summarise
from vlmgym.policies import Prompt
from vlmgym.records.run import RunSummary
from vlmgym.records.run_folder import RunFolder
from vlmgym.records.store import find_episodes, open_run
from vlmgym.sandbox.core.response_format import compose
from vlmgym.workers.pool import ProcessPool

WAIT = 30_000
"""Milliseconds for what a page loads."""

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script></script><!-- \u2028"


def policy(images: Sequence[Any], prompts: Sequence[Prompt]) -> list[str]:
    """Plays a little, and says now and then what no page should believe."""
    return [_say(prompt) for prompt in prompts]


def _say(prompt: Prompt) -> str:
    rng = random.Random(f"{prompt.seed} {prompt.turn}")
    board = "\n".join(", ".join(rng.choice("024") for _ in range(4)) for _ in range(4))
    said = compose(board, "I look for equal tiles.", rng.choice(["up", "right", "down", "left"]))
    return {
        3: f"{EVIL} {said}",
        4: "I would go up.",
        5: "bell \x07 right to left \u202e end" + said,
        6: "A" * 100_000,
        7: compose(EVIL, EVIL, "down"),
        8: "",
    }.get(prompt.turn + 1, said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("report") / "run"
    config = EvalConfig(episodes=5, max_turns=12, output_dir=out, videos=0, workers=0)
    run_evaluation(["2048", "swap"], config, custom_policy=policy)
    return RunFolder(out)


@pytest.fixture(scope="module")
def browser(folder: RunFolder) -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    with browser.new_page(viewport={"width": 1280, "height": 900}) as opened:
        yield Watched(opened)


def visit(watched: Watched, path: Path, address: str = "#episodes") -> Page:
    """Open the viewer of a page."""
    watched.page.goto(f"{path.as_uri()}{address}")
    watched.page.wait_for_selector(".pane .outcome, .message:not(:empty)")
    return watched.page


def shows(page: Page, selector: str, text: str) -> None:
    """Wait until an element has a text; the page allows no code from strings, which `wait_for_function` needs."""
    expect(page.locator(selector)).to_have_text(text, use_inner_text=True, timeout=WAIT)


def turn(page: Page) -> str:
    return page.inner_text(".position")


def rows(page: Page) -> list[str]:
    return page.locator(".row").all_inner_texts()


def choose(page: Page, label: str, option: str) -> None:
    page.get_by_role("combobox", name=label, exact=True).select_option(option)


def image(page: Page, which: str) -> Any:
    """Pixels of a canvas."""
    page.wait_for_selector(f"{which} canvas")
    url = page.eval_on_selector(f"{which} canvas", "canvas => canvas.toDataURL('image/png')")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB"))


def test_a_small_run_is_one_page_that_opens_from_disk_and_asks_for_nothing(folder: RunFolder, watched: Watched) -> None:
    watched.page.goto(folder.report.as_uri())
    opened = watched.page
    summary = RunSummary.model_validate_json(folder.summary.read_text())
    assert any(game.score_ci for game in summary.games.values())
    lines = opened.locator("table.scores tbody tr").all()
    for (name, game), line in zip(summary.games.items(), lines, strict=True):
        text = line.inner_text()
        assert text.startswith(name)
        for value in (game.score_mean, *(game.score_ci or ())):
            assert f"{round(value or 0, 2):,g}" in text
        assert f"illegal {game.illegal_rate:.1%}" in text
    about = opened.inner_text("#panel-overview details")
    for words in ("policy", "seeds 0 to 4", "at most 12 an episode", "game_weight=1.0", "gymnasium-2048", "format"):
        assert words in about
    opened.get_by_role("tab", name="Curves").click()
    expect(opened.locator(".plot svg path.mean")).to_have_count(2)
    assert len(watched.requests) == 1
    assert not folder.report.with_suffix("").exists()
    watched.check()


def test_keys_step_through_turns_and_episodes_and_jump_to_refused_turns(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report)
    assert turn(opened) == "turn 1 of 12"
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    assert turn(opened) == "turn 3 of 12"
    opened.keyboard.press("ArrowLeft")
    assert turn(opened) == "turn 2 of 12"
    opened.keyboard.press("n")
    outcome = opened.inner_text(".badge").split()[-1]
    assert outcome in ("illegal", "unparsable")
    opened.keyboard.press("End")  # outside the list, the browser's own key
    assert turn(opened) != "turn 12 of 12"
    assert opened.inner_text(".what") == "2048-v0, seed 0"
    opened.keyboard.press("j")
    shows(opened, ".what", "swap-v0, seed 0")
    opened.locator(".list").focus()
    opened.keyboard.press("ArrowDown")
    shows(opened, ".what", "2048-v0, seed 1")
    opened.keyboard.press("k")
    shows(opened, ".what", "swap-v0, seed 0")
    watched.check()


def test_the_slider_moves_by_itself_and_by_arrow_keys_once(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report)
    slider = opened.get_by_label("Turn", exact=True)
    slider.fill("7")
    assert turn(opened) == "turn 7 of 12"
    slider.focus()
    opened.keyboard.press("ArrowRight")
    assert turn(opened) == "turn 8 of 12"


def test_episodes_are_filtered_and_sorted(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report)
    episodes = read_run(folder).episodes
    assert len(rows(opened)) == 10
    choose(opened, "Game", "2048-v0")
    assert len(rows(opened)) == 5
    assert opened.get_by_role("status").first.inner_text() == "5 of 10 episodes"
    choose(opened, "Order", "best score first")
    best = [int(row.split()[-1].replace(",", "")) for row in rows(opened)]
    scores = [int(episode.score or 0) for episode in episodes if episode.game.id == "2048-v0"]
    assert best == sorted(scores, reverse=True)
    choose(opened, "Turns", "without refused turns")
    assert rows(opened) == []
    choose(opened, "Game", "all games")
    choose(opened, "Turns", "with illegal turns")
    illegal = [episode for episode in episodes if any(turn.outcome == "illegal" for turn in episode.turns)]
    assert len(rows(opened)) == len(illegal) > 0
    watched.check()


@pytest.mark.parametrize("number", [1, 2, 9])
@pytest.mark.parametrize("game", ["2048-v0", "swap-v0"])
def test_the_images_are_those_that_the_model_saw(folder: RunFolder, watched: Watched, game: str, number: int) -> None:
    episode = next(one for one in read_run(folder).episodes if one.key == (game, 1))
    config: dict[str, Any] = episode.game.config
    played = make_game(game, **config)
    opened = visit(watched, folder.report, f"#{game}/1/{number}")
    for which, state in ((".before", episode.turns[number - 1].state), (".after", episode.turns[number].state)):
        assert np.array_equal(image(opened, which), played.draw(played.from_data(state)))


def test_noise_is_kept_with_slight_loss_and_everything_else_without() -> None:
    for perception, lossy in ((3, False), (5, True)):
        game = make_game("2048", perception=perception)
        states = [game.start(np.random.default_rng(seed)) for seed in range(3)]
        images = episode_images(game, states)
        assert any(tile.startswith("data:image/jpeg") for tile in images["tiles"]) is lossy
        shown = _put_together(images, 2)
        difference = np.abs(shown.astype(int) - game.images(states[2])[0])
        assert difference.mean() < (8 if lossy else 1e-9)


def _put_together(images: Any, position: int) -> Any:
    cuts = images["cuts"][0]
    canvas = np.zeros((cuts["rows"][-1], cuts["columns"][-1], 3), np.uint8)
    tiles = iter(images["frames"][images["shown"][position]][0])
    for top, bottom in zip(cuts["rows"], cuts["rows"][1:]):
        for left, right in zip(cuts["columns"], cuts["columns"][1:]):
            data = base64.b64decode(images["tiles"][next(tiles)].partition(",")[2])
            canvas[top:bottom, left:right] = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    return canvas


def test_hostile_responses_are_shown_and_do_nothing(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report, "#2048-v0/0/3")
    assert opened.inner_text("pre.response").startswith("<img src=x onerror=")
    assert "U+2028" in opened.inner_text("pre.response")
    visit(watched, folder.report, "#2048-v0/0/5")
    shows(opened, ".position", "turn 5 of 12")
    shown = opened.inner_text("pre.response")
    assert "\N{SYMBOL FOR BELL}" in shown
    assert "U+202E" in shown
    assert "\u202e" not in shown
    visit(watched, folder.report, "#2048-v0/0/7")
    shows(opened, ".position", "turn 7 of 12")
    assert opened.locator("[data-section]").all_inner_texts()[1].startswith("<think><img src=x")
    assert opened.locator("td.wrong").count() >= 16
    assert opened.locator("img, iframe, object, [onerror]").count() == 0
    assert opened.locator("script:not([type])").count() == 1
    assert opened.title().startswith("2048-v0, swap-v0 (perception 3, reasoning 3): policy, vlmgym ")
    watched.check()


def test_nothing_of_a_record_reaches_the_html_as_markup(folder: RunFolder) -> None:
    html = folder.report.read_text()
    assert "<img" not in html
    assert html.count("</script>") == html.count("<script") == 12  # the page's data, 10 episodes, the script
    assert "\u2028" not in html
    assert "\\u003cimg src=x" in html


def test_even_what_got_into_the_page_could_do_nothing(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report)
    refused = opened.evaluate(INTRUSION)
    assert set(refused) >= {
        "script-src-attr",
        "script-src-elem",
        "img-src",
        "connect-src",
        "style-src-attr",
        "frame-src",
    }
    assert opened.title() != "owned"


INTRUSION = """async () => {
  const refused = [];
  document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective));
  const place = document.createElement('div');
  document.body.append(place);
  place.innerHTML = `<p style="color: red" onclick="document.title = 'owned'"></p><img src="http://127.0.0.1:9/">
    <iframe src="http://127.0.0.1:9/"></iframe>`;
  place.firstChild.click();
  const script = document.createElement('script');
  script.textContent = "document.title = 'owned'";
  place.append(script);
  await fetch('http://127.0.0.1:9/').catch(() => null);
  // What is refused is told later, and on a busy machine much later.
  for (let waited = 0; waited < 100 && new Set(refused).size < 6; waited++)
    await new Promise((resolve) => setTimeout(resolve, 100));
  return refused;
}"""


def test_a_very_long_response_is_shortened_in_the_page_alone(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report, "#2048-v0/0/6")
    assert "80,000 characters are left out here" in opened.inner_text("pre.response")
    assert len(opened.inner_text("pre.response")) < LONGEST + 200
    assert len(read_run(folder).episodes[0].turns[5].response) == 100_000


def test_what_was_seen_wrong_is_marked_cell_by_cell(folder: RunFolder, watched: Watched) -> None:
    recorded = read_run(folder).episodes[0].turns[0]
    assert recorded.reward.perception is not None
    wrong = round(16 * (1 - recorded.reward.perception))
    opened = visit(watched, folder.report)
    assert opened.locator("table.grid td").count() == 16
    assert opened.locator("table.grid td.wrong").count() == wrong > 0
    truth = [str(cell) for row in recorded.state["board"] for cell in row]  # type: ignore[index,call-overload,union-attr]
    for cell, text in zip(truth, opened.locator("table.grid td").all_inner_texts(), strict=True):
        assert text.split()[-1] == cell
    sections = opened.eval_on_selector_all("[data-section]", "all => all.map(one => one.dataset.section)")
    assert sections == ["perception", "think", "answer"]


def test_an_address_names_a_turn_and_follows_what_is_shown(folder: RunFolder, watched: Watched) -> None:
    opened = visit(watched, folder.report, "#swap-v0/3/4")
    assert opened.inner_text(".what") == "swap-v0, seed 3"
    assert turn(opened) == "turn 4 of 12"
    opened.keyboard.press("ArrowRight")
    assert opened.evaluate("location.hash") == "#swap-v0/3/5"
    opened.evaluate("location.hash = '#2048-v0/2/9'")
    shows(opened, ".what", "2048-v0, seed 2")
    shows(opened, ".position", "turn 9 of 12")
    for nonsense in ("#nothing", "#%", "#2048-v0/99/1", "#2048-v0/2/-5", "#2048-v0/2/1e9"):
        opened.evaluate("address => location.hash = address", nonsense)
    opened.wait_for_timeout(100)
    assert opened.inner_text(".what") == "2048-v0, seed 2"
    watched.check()


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_nothing_sticks_out_to_the_right(folder: RunFolder, browser: Browser, width: int) -> None:
    with browser.new_page(viewport={"width": width, "height": 800}) as opened:
        for address in ("#2048-v0/0/3", "#2048-v0/0/6", "#2048-v0/0/7", "#swap-v0/0/1"):
            visit(Watched(opened), folder.report, address)
            assert opened.evaluate("document.documentElement.scrollWidth") == width


@pytest.fixture(scope="module")
def large(folder: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 2,500 episodes."""
    asked = read_run(folder).config
    few = evaluate("2048", "random", 5, max_turns=10, workers=0)
    many = [few[seed % 5].model_copy(update={"seed": seed}) for seed in range(2500)]
    path = tmp_path_factory.mktemp("large") / "report.html"
    run = LabelledRun("many", asked, many, {"2048-v0": summarise(many)})
    with pytest.MonkeyPatch.context() as patch, ProcessPool(0) as workers:
        patch.setattr(store, "INLINE_BYTES", 1_000_000)
        patch.setattr(store, "FILE_BYTES", 200_000)
        write_page(path, [run], title="many", workers=workers, images=10)
    return path


def test_thousands_of_episodes_are_loaded_as_they_are_looked_at(large: Path, watched: Watched) -> None:
    assert large.stat().st_size < 1_000_000
    files = [file.stat().st_size for file in large.with_suffix("").glob("*/*.js")]
    assert 20 < len(files) < 200
    assert max(files) < 500_000
    opened = visit(watched, large, "#2048-v0/2400/5")
    shows(opened, ".position", "turn 5 of 10")
    assert opened.inner_text(".what") == "2048-v0, seed 2400"
    requested = [url.rpartition("/")[2].partition("#")[0] for url in watched.requests]
    assert requested == [
        "report.html",
        file_of(large, "0-2400").name,
    ]
    assert 0 < opened.locator(".row").count() < 60
    assert "seed 2400" in " ".join(rows(opened))
    assert "images of the first 10 episodes" in opened.inner_text(".before")
    for _ in range(5):
        opened.keyboard.press("j")
    shows(opened, ".what", "2048-v0, seed 2405")
    choose(opened, "Order", "worst score first")
    assert 0 < opened.locator(".row").count() < 60
    opened.eval_on_selector(".list", "list => list.scrollTop = list.scrollHeight")
    expect(opened.locator(".row").last).to_have_attribute("aria-posinset", "2500", timeout=WAIT)
    assert opened.locator(".row").count() < 60
    assert sum(url.endswith(".js") for url in watched.requests) <= 4
    visit(watched, large, "#2048-v0/1/1")
    shows(opened, ".what", "2048-v0, seed 1")
    assert image(opened, ".before").shape == (640, 640, 3)
    watched.check()


def test_an_episode_costs_the_page_little_more_than_its_reading(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text(
        evaluate("2048", "random", 1, max_turns=1, workers=0)[0].model_dump_json() + "\n"
    )
    ((stored,), _) = find_episodes(tmp_path / "episodes.jsonl")

    def seconds(make: Callable[[], object]) -> float:
        return min(timeit.repeat(make, number=50, repeat=5))

    assert seconds(lambda: make_episode(stored, with_images=False)) < 15 * seconds(stored.read)


def file_of(page: Path, episode: str) -> Path:
    (file,) = (file for file in page.with_suffix("").glob("*/*.js") if f'"{episode}":' in file.read_text())
    return file


def test_a_lost_file_is_said_and_the_rest_goes_on(large: Path, watched: Watched) -> None:
    lost = file_of(large, "0-7")
    text = lost.read_text()
    lost.unlink()
    try:
        opened = visit(watched, large, "#2048-v0/7/1")
        opened.wait_for_selector("text=This episode cannot be shown: report/")
        assert f"{lost.name} is not beside this page" in opened.inner_text(".message")
    finally:
        lost.write_text(text)
    opened.evaluate("location.hash = '#2048-v0/2400/1'")
    opened.wait_for_selector(".outcome:visible")
    assert opened.inner_text(".what") == "2048-v0, seed 2400"


def test_two_runs_step_side_by_side(folder: RunFolder, watched: Watched, tmp_path: Path) -> None:
    run = open_run(folder.folder)
    first = LabelledRun.of(run, run.last_summary(), "baseline")
    other = evaluate("2048", "random-legal", 4, max_turns=8, workers=0)
    second = LabelledRun("trained", run.config, other, {"2048-v0": summarise(other)})
    path = tmp_path / "compare.html"
    table = PageTable("Difference", ("", "2048-v0"), [("trained - baseline", "+12.3 <b>")], "Of 4 seeds.")
    with ProcessPool(0) as workers:
        write_page(path, [first, second], title="baseline & trained", workers=workers, tables=[table])
    opened = visit(watched, path, "#2048-v0/1/6")
    opened.wait_for_selector(".after canvas >> nth=1")
    assert opened.locator(".pane").count() == 2
    told = opened.locator("#panel-overview table >> nth=1").text_content() or ""
    assert told.endswith("trained - baseline+12.3 <b>")
    game = make_game("2048")
    for pane, episode in enumerate((run.episodes[1].read(), other[1])):
        state = game.from_data(episode.turns[5].state)
        assert np.array_equal(image(opened, f".pane:nth-child({pane + 1}) .before"), game.draw(state))
    for _ in range(3):
        opened.keyboard.press("ArrowRight")
    assert turn(opened) == "turn 9 of 12"
    assert opened.locator(".message").nth(1).inner_text() == "This episode ended after 8 turns."
    opened.keyboard.press("j")
    expect(opened.locator(".message").nth(1)).to_contain_text("no record", timeout=WAIT)
    opened.get_by_role("tab", name="Curves").click()
    expect(opened.locator(".plot svg >> nth=0").locator("path.mean")).to_have_count(2)
    watched.check()


def test_what_has_no_result_is_said(watched: Watched, tmp_path: Path, folder: RunFolder) -> None:
    whole, *_ = evaluate("2048", "random", 1, max_turns=5, workers=0)
    broken = whole.model_copy(update={"seed": 1, "status": "error", "score": None, "end_reason": f"HTTP 500: {EVIL}"})
    empty = broken.model_copy(update={"seed": 2, "turns": ()})
    episodes = [whole, broken, empty]
    run = LabelledRun(
        "x", read_run(folder).config, episodes, {"2048-v0": summarise(episodes)}, "the budget of 10 tokens is used up"
    )
    with ProcessPool(0) as workers:
        write_page(tmp_path / "report.html", [run], title="unfinished", workers=workers)
    opened = visit(watched, tmp_path / "report.html", "#2048-v0/1/1")
    banner = opened.inner_text(".banner")
    assert "the budget of 10 tokens is used up" in banner
    assert "in no score: 2 error" in banner
    assert "Means cover 1 of 3 episodes." in banner
    assert "HTTP 500: <img" in opened.inner_text(".pane h3")
    choose(opened, "Ended", "with a result")
    assert len(rows(opened)) == 1
    choose(opened, "Ended", "error")
    assert len(rows(opened)) == 2
    opened.evaluate("location.hash = '#2048-v0/2/1'")
    opened.wait_for_selector("text=The position")
    assert image(opened, ".before").shape == (640, 640, 3)
    watched.check()


def test_a_page_of_a_game_that_is_not_installed_has_texts_alone(
    watched: Watched, tmp_path: Path, folder: RunFolder
) -> None:
    episode = evaluate("2048", "random", 1, max_turns=5, workers=0)[0]
    foreign = episode.model_copy(update={"game": episode.game.model_copy(update={"id": "2048-v999"})})
    run = LabelledRun("x", read_run(folder).config, [foreign], {"2048-v999": summarise([foreign])})
    with ProcessPool(0) as workers:
        write_page(tmp_path / "report.html", [run], title="foreign", workers=workers)
    opened = visit(watched, tmp_path / "report.html", "#2048-v999/0/1")
    assert "was not installed" in opened.inner_text(".before")
    assert "<answer>" in opened.inner_text("pre.response")
    watched.check()


def test_vlmgym_report_makes_the_same_page_again(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    before = folder.report.read_bytes()
    main(["report", str(folder.folder), "--workers", "0"])
    assert folder.report.read_bytes() == before
    assert str(folder.report) in capsys.readouterr().out.replace("\n", "")


def test_episodes_that_were_never_begun_are_missing_in_the_page_of_a_killed_run(
    folder: RunFolder, tmp_path: Path, watched: Watched
) -> None:
    killed = RunFolder(tmp_path / "killed")
    killed.folder.mkdir()
    killed.run.write_bytes(folder.run.read_bytes())
    swap = [line for line in folder.episodes.read_bytes().splitlines(keepends=True) if b'"id":"swap-v0"' in line]
    killed.episodes.write_bytes(b"".join(swap[:2]) + swap[2][:99])
    main(["report", str(killed.folder), "--workers", "0"])
    opened = visit(watched, killed.report)
    banner = opened.inner_text(".banner")
    assert "The run was stopped: the run was interrupted." in banner
    assert "in no score: 8 not started. Means cover 2 of 10 episodes." in banner
    watched.check()


def test_episodes_beside_an_earlier_page_are_removed_and_nothing_else(tmp_path: Path, folder: RunFolder) -> None:
    episodes = evaluate("2048", "random", 2, max_turns=5, workers=0)
    run = LabelledRun("x", read_run(folder).config, episodes, {"2048-v0": summarise(episodes)})
    path, own = tmp_path / "report.html", tmp_path / "report" / "notes"
    own.mkdir(parents=True)
    with ProcessPool(0) as workers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "INLINE_BYTES", 0)
        write_page(path, [run], title="two", workers=workers)
        write_page(path, [replace(run, episodes=episodes[:1])], title="one", workers=workers)
        assert sorted(file.name for file in (tmp_path / "report").glob("*/*.js")) == ["0.js"]
        patch.undo()
        write_page(path, [run], title="two", workers=workers)
    assert list((tmp_path / "report").iterdir()) == [own]


def test_a_page_that_cannot_be_made_leaves_the_earlier_one(tmp_path: Path, folder: RunFolder) -> None:
    episodes = evaluate("2048", "random", 2, max_turns=5, workers=0)
    run = LabelledRun("x", read_run(folder).config, episodes, {"2048-v0": summarise(episodes)})
    path = tmp_path / "report.html"
    torn = episodes[1].model_copy(update={"final_state": {"board": [[1]]}})
    with ProcessPool(0) as workers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "INLINE_BYTES", 0)
        write_page(path, [run], title="whole", workers=workers)
        before = {file: file.read_bytes() for file in tmp_path.rglob("[!.]*") if file.is_file()}
        with pytest.raises(UsageError, match="invalid state of 2048"):
            write_page(path, [replace(run, episodes=[episodes[0], torn])], title="torn", workers=workers)
    assert {file: file.read_bytes() for file in tmp_path.rglob("[!.]*") if file.is_file()} == before
    assert not list(tmp_path.rglob("*.part"))


def test_options_of_the_page_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        ([str(tmp_path / "none")], "holds no run"),
        ([str(tmp_path), "--images", "many"], "images is a number of episodes or all"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["report", *options])
        assert ended.value.code == 2
        assert message in capsys.readouterr().err


def test_no_report_writes_none(tmp_path: Path) -> None:
    config = EvalConfig(episodes=1, max_turns=2, output_dir=tmp_path / "run", videos=0, report=False, workers=0)
    run_evaluation(["2048"], config)
    assert not (tmp_path / "run" / "report.html").exists()


tags = st.sampled_from(["<perception>", "</perception>", "<think>", "</think>", "<answer>", "</answer>"])


@given(st.lists(tags | st.text(max_size=5), max_size=12).map("".join))
def test_marking_sections_changes_nothing_of_a_response(response: str) -> None:
    pieces = marked(response)
    assert "".join(text for _, text in pieces) == response
    game = make_game("2048")
    answers = "".join(text for name, text in pieces if name == "answer")
    if response.count("<answer>") == 1 and response.count("</answer>") == 1 and answers:
        assert answers.startswith("<answer>")
    try:
        game.parse(response)
    except ParseError:
        return
    assert answers  # what is played is what is marked


@given(st.text() | st.sampled_from([EVIL, "</ScRiPt>", "]]>", "&lt;"]))
def test_json_in_the_page_holds_no_markup(text: str) -> None:
    written = safe_json({"text": text, "none": float("nan")})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"text": text, "none": None}
