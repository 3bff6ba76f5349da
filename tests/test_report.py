"""The report page in a real browser, opened from disk; also of large, compared, unfinished and foreign runs."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

from tests.browser import EVIL, WAIT, canvas, choose, pixels, rows, shows, turn
from tests.playing import CHARACTERS, save_run
from vlmgym import make_game
from vlmgym.cli.eval import run_evaluation
from vlmgym.evaluation import EvalConfig, RunFolder, RunSummary, evaluate, open_run, read_run
from vlmgym.evaluation.summary import updated_summary
from vlmgym.pages.document import safe_json
from vlmgym.pages.episode import episode_images
from vlmgym.pages.report import LabelledRun, write_page
from vlmgym.sandbox.core.response_format import compose
from vlmgym.workers.pool import ProcessPool


def policy(images, prompts):
    """Play at random, with a hostile response now and then."""
    return [_respond(prompt) for prompt in prompts]


def _respond(prompt):
    rng = random.Random(f"{prompt.seed} {prompt.turn}")
    board = "\n".join(", ".join(rng.choice("024") for _ in range(4)) for _ in range(4))
    response = compose(board, "I look for equal tiles.", rng.choice(["up", "right", "down", "left"]))
    return {
        3: f"{EVIL} {response}",
        4: "I would go up.",
        5: "bell \x07 right to left \u202e end" + response,
        6: "A" * 100_000,
        7: compose(EVIL, EVIL, "down"),
        8: "",
    }.get(prompt.turn + 1, response)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "run"
    config = EvalConfig(episodes=5, max_turns=12, output_dir=out, videos=0, workers=0)
    run_evaluation(["2048", "swap"], config, custom_policy=policy)
    return RunFolder(out)


def test_small_run_is_one_page(folder, watched):
    opened = watched.visit(folder.report)
    summary = RunSummary.model_validate_json(folder.summary.read_text())
    lines = opened.locator("table.scores tbody tr").all()
    for (name, game), line in zip(summary.games.items(), lines, strict=True):
        text = line.inner_text()
        assert text.startswith(name)
        for value in (game.score_mean, *(game.score_ci or ())):
            assert f"{round(value or 0, 2):,g}" in text
        assert f"illegal {game.illegal_rate:.1%}" in text
    about = opened.inner_text("#panel-overview details")
    for fact in ("policy", "seeds 0 to 4", "at most 12 per episode", "game_weight=1.0", "gymnasium-2048", "format"):
        assert fact in about
    opened.get_by_role("tab", name="Curves").click()
    expect(opened.locator(".plot svg path.mean")).to_have_count(2)
    assert len(watched.requests) == 1
    watched.check()


def test_keys_and_slider(folder, watched):
    opened = watched.visit(folder.report, "#2048-v0/0/1")
    for key, number in (("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        opened.keyboard.press(key)
        assert turn(opened) == f"turn {number} of 12"
    opened.keyboard.press("n")
    assert opened.inner_text(".badge").split()[-1] in ("illegal", "unparsable")
    opened.keyboard.press("End")  # outside the list, the key has its usual effect in the browser
    assert turn(opened) != "turn 12 of 12"
    opened.keyboard.press("j")
    shows(opened, ".what", "swap-v0, seed 0")
    opened.locator(".list").focus()
    opened.keyboard.press("ArrowDown")
    shows(opened, ".what", "2048-v0, seed 1")
    opened.keyboard.press("k")
    shows(opened, ".what", "swap-v0, seed 0")
    slider = opened.get_by_label("Turn", exact=True)
    slider.fill("7")
    assert turn(opened) == "turn 7 of 12"
    slider.focus()
    opened.keyboard.press("ArrowRight")
    assert turn(opened) == "turn 8 of 12"
    watched.check()


def test_filters_and_order(folder, watched):
    opened = watched.visit(folder.report, "#2048-v0/0/1")
    episodes = read_run(folder).episodes
    assert len(rows(opened)) == 10
    choose(opened, "Game", "2048-v0")
    assert opened.get_by_role("status").first.inner_text() == "5 of 10 episodes"
    choose(opened, "Order", "best score first")
    best = [int(row.split()[-1].replace(",", "")) for row in rows(opened)]
    assert best == sorted((one.score for one in episodes if one.game.id == "2048-v0"), reverse=True)
    choose(opened, "Turns", "without invalid turns")
    assert rows(opened) == []
    choose(opened, "Game", "all games")
    choose(opened, "Turns", "with illegal turns")
    illegal = [episode for episode in episodes if any(turn.outcome == "illegal" for turn in episode.turns)]
    assert len(rows(opened)) == len(illegal) > 0


@pytest.mark.parametrize(("game", "number"), [("2048-v0", 2), ("swap-v0", 9)])
def test_images_are_those_of_the_model(folder, watched, game, number):
    episode = next(one for one in read_run(folder).episodes if one.key == (game, 1))
    played = make_game(game, **episode.game.config)
    opened = watched.visit(folder.report, f"#{game}/1/{number}")
    for selector, state in ((".before", episode.turns[number - 1].state), (".after", episode.turns[number].state)):
        assert np.array_equal(canvas(opened, selector), played.draw(played.from_data(state)))


def test_hostile_responses_are_inert(folder, watched):
    opened = watched.visit(folder.report, "#2048-v0/0/3")
    assert opened.inner_text("pre.response").startswith("<img src=x onerror=")
    assert "U+2028" in opened.inner_text("pre.response")
    watched.visit(folder.report, "#2048-v0/0/5")
    text = opened.inner_text("pre.response")
    assert "\N{SYMBOL FOR BELL}" in text
    assert "U+202E" in text
    assert "\u202e" not in text
    watched.visit(folder.report, "#2048-v0/0/6")
    assert len(opened.inner_text("pre.response")) == 100_000
    watched.visit(folder.report, "#2048-v0/0/7")
    assert opened.locator("[data-section]").all_inner_texts()[1].startswith("<think><img src=x")
    assert opened.locator("td.wrong").count() >= 16
    assert opened.locator("img, iframe, object, [onerror]").count() == 0
    assert opened.locator("script:not([type])").count() == 1
    assert opened.title().startswith("2048-v0, swap-v0 (perception 3, reasoning 3): policy, vlmgym ")
    watched.check()
    html = folder.report.read_text()
    assert "<img" not in html
    assert html.count("</script>") == html.count("<script") == 12  # the page's data, ten episodes, the script


def test_content_policy_refuses_intruders(folder, watched):
    opened = watched.visit(folder.report, "#2048-v0/0/1")
    rejected = opened.evaluate(INTRUSION)
    kinds = {"script-src-attr", "script-src-elem", "img-src", "connect-src", "style-src-attr", "frame-src"}
    assert set(rejected) >= kinds
    assert opened.title() != "owned"


INTRUSION = """async () => {
  const rejected = [];
  document.addEventListener('securitypolicyviolation', (event) => rejected.push(event.effectiveDirective));
  const place = document.createElement('div');
  document.body.append(place);
  place.innerHTML = `<p style="color: red" onclick="document.title = 'owned'"></p><img src="http://127.0.0.1:9/">
    <iframe src="http://127.0.0.1:9/"></iframe>`;
  place.firstChild.click();
  const script = document.createElement('script');
  script.textContent = "document.title = 'owned'";
  place.append(script);
  await fetch('http://127.0.0.1:9/').catch(() => null);
  // Violations are reported later, on a busy machine much later.
  for (let waited = 0; waited < 100 && new Set(rejected).size < 6; waited++)
    await new Promise((resolve) => setTimeout(resolve, 100));
  return rejected;
}"""


def test_perception_is_compared_cell_by_cell(folder, watched):
    recorded = read_run(folder).episodes[0].turns[0]
    opened = watched.visit(folder.report, "#2048-v0/0/1")
    cells = opened.locator("table.grid td")
    assert cells.count() == 16
    assert opened.locator("table.grid td.wrong").count() == round(16 * (1 - recorded.reward.perception)) > 0
    truth = [str(cell) for row in recorded.state["board"] for cell in row]
    assert [text.split()[-1] for text in cells.all_inner_texts()] == truth
    sections = opened.eval_on_selector_all("[data-section]", "all => all.map(one => one.dataset.section)")
    assert sections == ["perception", "think", "answer"]


@given(st.text(CHARACTERS) | st.sampled_from([EVIL, "</ScRiPt>", "]]>", "&lt;"]))
def test_json_on_the_page_has_no_markup(text):
    written = safe_json({"text": text, "none": float("nan")})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written) == {"text": text, "none": None}


@pytest.fixture(scope="module")
def few():
    return evaluate("2048", "random", 5, max_turns=10, workers=0)


def labelled(episodes, folder, label="x", stop_reason=None):
    """Save a run with episodes of one game; return it as a `LabelledRun` for a page."""
    save_run(folder, episodes)
    run = open_run(folder)
    return LabelledRun(label, run, updated_summary(run).model_copy(update={"stop_reason": stop_reason}))


def write(path, *runs, **options):
    with ProcessPool(0) as workers:
        write_page(path, runs, title="title", workers=workers, **options)


def test_large_run_has_only_visible_rows_in_the_document(few, tmp_path, watched):
    path = tmp_path / "report.html"
    many = [few[seed % 5].model_copy(update={"seed": seed}) for seed in range(400)]
    write(path, labelled(many, tmp_path / "run"), images=10)
    assert path.stat().st_size < 5_000_000
    opened = watched.visit(path, "#2048-v0/300/5")
    shows(opened, ".position", "turn 5 of 10")
    assert opened.inner_text(".what") == "2048-v0, seed 300"
    assert 0 < opened.locator(".row").count() < 60
    assert "seed 300" in " ".join(rows(opened))
    assert "images of the first 10 episodes" in opened.inner_text(".before")
    for _ in range(5):
        opened.keyboard.press("j")
    shows(opened, ".what", "2048-v0, seed 305")
    choose(opened, "Order", "worst score first")
    opened.eval_on_selector(".list", "list => list.scrollTop = list.scrollHeight")
    expect(opened.locator(".row").last).to_have_attribute("aria-posinset", "400", timeout=WAIT)
    assert opened.locator(".row").count() < 60
    watched.visit(path, "#2048-v0/1/1")
    assert canvas(opened, ".before").shape == (640, 640, 3)
    assert len(watched.requests) == 2
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


@pytest.mark.parametrize(("perception", "lossy"), [(3, False), pytest.param(5, True, marks=pytest.mark.slow)])
def test_only_noise_is_stored_with_loss(perception, lossy):
    game = make_game("2048", perception=perception, size=200)
    states = [game.start(np.random.default_rng(seed)) for seed in range(3)]
    images = episode_images(game, states)
    assert any(tile.startswith("data:image/jpeg") for tile in images["tiles"]) is lossy
    cuts, tiles = images["cuts"][0], iter(images["frames"][images["shown"][2]][0])
    shown = np.zeros((cuts["rows"][-1], cuts["columns"][-1], 3), int)
    for top, bottom in zip(cuts["rows"], cuts["rows"][1:]):
        for left, right in zip(cuts["columns"], cuts["columns"][1:]):
            shown[top:bottom, left:right] = pixels(images["tiles"][next(tiles)])
    assert np.abs(shown - game.images(states[2])[0]).mean() < (8 if lossy else 1e-9)
