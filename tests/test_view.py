"""`vlmgym view` in a real browser, served by its command."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser import AXE, EVIL, WAIT, Watched, check_accessible, pixels
from tests.test_report import INTRUSION
from vlmgym import make_game
from vlmgym.cli.eval import run_evaluation
from vlmgym.evaluation import EvalConfig, RunFolder, read_run
from vlmgym.pages.diagnose import DiagnoseConfig, diagnose
from vlmgym.pages.training import TrainingFolder
from vlmgym.runs.files import output_folder
from vlmgym.sandbox.core.episode import Episode


def evil(images, prompts):
    """Respond with markup."""
    return [f"{EVIL} <answer>up</answer>" for _ in prompts]


@contextmanager
def serving(folder):
    """Serve a folder; yield the URL with its token, then end the server by Ctrl-C."""
    command = [sys.executable, "-m", "vlmgym", "view", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().split()[1]
        finally:
            server.send_signal(signal.SIGINT)
            output = server.communicate(timeout=30)
        assert (server.returncode, output[1]) == (0, "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with three runs, a hostile one, a run behind a link, a broken run, and a training."""
    root, outside = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("outside")
    options = {"episodes": 4, "max_turns": 8, "size": 128, "workers": 0, "report": False}
    for policy in ("random", "random-legal", "oracle"):
        run_evaluation(["2048", "swap"], EvalConfig(policy=policy, output_dir=root / policy, videos=1, **options))
    hostile = root / "<img src=x onerror=alert(1)>"
    run_evaluation(["2048"], EvalConfig(output_dir=hostile, videos=0, **options), custom_policy=evil)
    diagnose(DiagnoseConfig(run=root / "random", workers=0))
    (root / "oracle" / "diagnose.json").write_text('{"games": 1}')
    shutil.copytree(root / "random", outside / "secret")
    (root / "linked").symlink_to(outside / "secret")
    (root / "stolen").mkdir()
    (root / "stolen" / "run.json").symlink_to(outside / "secret" / "run.json")
    training = root / "training"
    training.mkdir()
    (root / "pipe").mkdir()
    os.mkfifo(root / "pipe" / "curve.jsonl")
    (root / "odd").mkdir()
    (root / "odd" / "curve.jsonl").write_bytes(b'{"step": NaN}\n[1]\n"\xff"\n' + b"[" * 100_000)
    settings = {"algorithm": "grpo", "steps": 30, "model": {"model": EVIL}}
    (training / "config.json").write_text(json.dumps({"settings": settings}))
    rows = [{"step": step, "reward": step / 30, "seconds": 2.0, "actor/lr": 0.1} for step in range(1, 31)]
    (training / "curve.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return root


@pytest.fixture(scope="module")
def url(folder):
    with serving(folder) as address:
        yield address


@pytest.fixture
def opened(url, browser):
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        watched = Watched(context.new_page())
        watched.page.goto(url)
        yield watched
        assert watched.troubles == []
        base = url.partition("?")[0]
        assert all(request.startswith((base, "data:", "about:")) for request in watched.requests)


def go(opened, url, path):
    opened.page.goto("about:blank")
    opened.page.goto(url.partition("?")[0] + path)
    return opened.page


def column(page, name):
    heads = page.locator("#runs thead tr > *").all_inner_texts()
    return page.locator(f"#runs tbody tr > :nth-child({heads.index(name) + 1})").all_inner_texts()


VIEWS = (
    *("", "run?run=random&run=random-legal&run=oracle", "training?run=training", "diagnosis?run=random"),
    "play?game=swap-v0&seed=1",
)
"""Pages of the server; those of one run and of two are in test_pages.py."""


@pytest.mark.parametrize(("scheme", "width"), [pytest.param("light", 400, marks=pytest.mark.slow), ("dark", 1280)])
def test_pages_are_accessible_and_fit_the_window(url, browser, scheme, width):
    with browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}) as context:
        watched = Watched(context.new_page())
        watched.page.goto(url)
        for path in VIEWS:
            page = go(watched, url, path)
            page.wait_for_selector("h1")
            page.wait_for_load_state("load")
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            page.evaluate(AXE)
            check_accessible(page, width)
        assert watched.troubles == []


def test_list_is_filtered_sorted_and_compared(opened, url, folder):
    page = opened.page
    expect(page.locator("#runs tbody tr")).to_have_count(9)
    page.get_by_role("combobox", name="game").select_option("swap-v0")
    assert sorted(column(page, "run")) == ["oracle", "random", "random-legal"]
    page.get_by_role("button", name="score").click()
    scores = [float(score) for score in column(page, "score")]
    assert scores == sorted(scores, reverse=True)
    expected = np.mean([one.score for one in read_run(folder / "random").episodes if one.game.id == "swap-v0"])
    assert dict(zip(column(page, "run"), scores))["random"] == pytest.approx(expected, rel=1e-3)
    page.get_by_label("Search").fill("legal")
    assert column(page, "run") == ["random-legal"]
    page.get_by_label("Search").fill("")
    for run in ("random", "random-legal", "oracle"):
        page.get_by_label(f"Select {run}", exact=True).first.check()
    page.get_by_role("button", name="Compare 3 runs").click()
    assert page.locator("table.scores .label").all_inner_texts() == ["random", "random-legal", "oracle"] * 2
    table = page.locator("details", has_text="random - oracle, swap-v0: 4 pairs")
    table.locator("summary").click()
    difference = table.locator("tr", has=page.get_by_role("rowheader", name="score", exact=True)).locator("td").last
    assert difference.inner_text() in page.locator("table.scores tr").last.inner_text()
    page.get_by_role("tab", name="Curves").click()
    expect(page.locator(".plot svg >> nth=0").locator("path.mean")).to_have_count(3)


def test_unreadable_runs_say_why(opened):
    for run in ("stolen", "pipe"):
        row = opened.page.get_by_role("row", name=f"{run} unreadable")
        expect(row).to_contain_text("must be an ordinary file in the folder of the run, not a link or a pipe")
    expect(opened.page.locator("#trainings tr", has_text="odd")).to_contain_text("running")
    assert "linked" not in opened.page.inner_text("#runs")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("play/new", "[]"),
        ("play/respond", '{"player": "PLAYER"}'),
        ("play/respond", '{"player": "PLAYER", "x": "a", "y": 1}'),
    ],
)
def test_bad_requests_end_in_a_sentence(opened, url, path, body):
    base, request = url.partition("?")[0], opened.page.context.request
    player = request.post(f"{base}play/new", data='{"game": "2048", "seed": 1}').json()["player"]
    answer = request.post(f"{base}{path}", data=body.replace("PLAYER", player))
    assert answer.status == 400
    assert answer.text().count("\n") == 0


def test_videos_are_those_of_the_run(opened, url, folder):
    page = go(opened, url, "run?run=random")
    page.get_by_role("tab", name="Videos").click()
    address = page.locator("#panel-videos a").first.get_attribute("href")
    video = page.context.request.get(url.partition("?")[0] + address)
    assert video.headers["content-type"] == "video/mp4"
    assert video.body() == RunFolder(folder / "random").video("2048", 0).read_bytes()


def test_diagnoses_are_linked(opened, url):
    page = go(opened, url, "run?run=random")
    page.get_by_role("link", name="why turns went wrong").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Diagnosis of")
    answer = opened.page.context.request.get(f"{url.partition('?')[0]}diagnosis?run=oracle")
    assert (answer.status, "diagnose.json cannot be read: " in answer.text()) == (400, True)
    expect(go(opened, url, "run?run=random-legal").get_by_role("link", name="why turns")).to_have_count(0)


def test_hostile_records_are_inert(opened, url):
    page = opened.page
    page.get_by_role("link", name="<img src=x onerror=alert(1)>").click()
    page.get_by_role("tab", name="Episodes").click()
    expect(page.locator("pre.response")).to_contain_text("<img src=x onerror=")
    assert page.locator("img, iframe, object, [onerror]").count() == 0
    rejected = page.evaluate(INTRUSION)
    assert set(rejected) >= {"script-src-attr", "script-src-elem", "img-src", "connect-src", "frame-src"}
    assert page.title() != "owned"
    opened.troubles.clear()  # the reports of what was refused
    opened.requests.clear()


@pytest.mark.parametrize("run", ["../outside", "..", "/etc", "linked", "%2e%2e", "stolen", "random/../random"])
def test_only_runs_of_the_list_are_served(opened, url, run):
    for path in ("run", "data", "training"):
        answer = opened.page.context.request.get(f"{url.partition('?')[0]}{path}", params={"run": run})
        assert answer.status == 400
        assert "seed" not in answer.text()


def test_other_sites_and_users_are_refused(url):
    address = urlsplit(url)
    host, query = f"127.0.0.1:{address.port}", f"/?{address.query}"

    def status(path, **headers):
        with closing(HTTPConnection("127.0.0.1", address.port)) as connection:
            connection.request("GET", path, headers={"Host": host, **headers})
            return connection.getresponse().status

    assert status(query) == 303
    assert status("/") == status("/?token=x") == status("/play") == status("/live") == 403
    assert status("/", Cookie=f"vlmgym-{address.port}=x") == 403
    assert status(query, Host="evil.example") == status(query, Origin="http://evil.example") == 403
    assert status("/", Cookie=f"vlmgym-{address.port}={address.query.partition('=')[2]}") == 200


def test_running_evaluations_appear_and_progress(browser, folder, tmp_path):
    with serving(tmp_path) as url, browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        expect(page.locator(".empty")).to_contain_text(f"--output-dir {tmp_path}/first")
        assert not page.locator("#runs").is_visible()
        lines = (folder / "random" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
        with output_folder(tmp_path / "new", "run.json") as run:
            shutil.copy(folder / "random" / "run.json", run)
            (run / "episodes.jsonl").write_bytes(b"".join(lines[:3]) + lines[3][:50])
            expect(page.locator("#runs tbody tr").first).to_contain_text("running, 3 of 8", timeout=WAIT)
            report = context.new_page()
            report.goto(f"{url.partition('?')[0]}run?run=new#2048-v0/0/2")
            expect(report.locator(".banner", has_text="Running")).to_contain_text("Running, 3 of 8 episodes.")
            assert "stopped" not in report.inner_text(".banner >> nth=-1")
            expect(report.locator(".row")).to_have_count(3)
            (run / "episodes.jsonl").write_bytes(b"".join(lines[:7]))
            expect(page.locator("#runs tbody tr").first).to_contain_text("running, 7 of 8", timeout=WAIT)
            expect(report.locator(".row")).to_have_count(7, timeout=WAIT)
            expect(report.locator(".position")).to_have_text("turn 2 of 8", timeout=WAIT)
        expect(page.locator("#runs tbody tr").first).to_contain_text("stopped, 7 of 8", timeout=WAIT)
        shutil.rmtree(tmp_path / "new")
        expect(page.locator(".empty")).to_be_visible(timeout=WAIT)


def test_curves_of_a_training_follow_its_file(browser, folder, tmp_path):
    shutil.copytree(folder / "training", tmp_path / "grpo")
    with serving(tmp_path) as url, browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        expect(page.locator("#trainings tbody tr")).to_contain_text("30 of 30")
        page.get_by_role("link", name="grpo").click()
        expect(page.locator(".curves.small").first.locator("h3")).to_have_text(["reward per response"])
        expect(page.locator("summary")).to_have_text("Other metrics (2)")
        with (tmp_path / "grpo" / "curve.jsonl").open("a") as curve:
            curve.write('{"step": 31, "reward": 1.0, "kl": 0.1}\n{"step": 32, "rew')
        expect(page.locator(".curves.small").first.locator("h3")).to_have_count(2, timeout=WAIT)
        expect(page.locator(".lead")).to_contain_text("31 steps logged")


def test_supervised_fine_tuning_is_shown_before_the_first_step_of_rl(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"settings": {"algorithm": "grpo", "steps": 2, "sft": {"steps": 700}, "model": {"model": None}}})
    )
    (tmp_path / "sft_curve.jsonl").write_text('{"step": 60, "seconds": 900, "reward": 0.5}\n')
    cells = dict(zip(TrainingFolder.COLUMNS, TrainingFolder("demo", tmp_path, True).row()["cells"]))
    assert (cells["algorithm"]["text"], cells["step"]["text"], cells["s per step"]["text"]) == ("sft", "60 of 700", "")
    (tmp_path / "curve.jsonl").touch()
    assert TrainingFolder("demo", tmp_path, True).row()["cells"] == tuple(cells.values())
    (tmp_path / "curve.jsonl").write_text('{"step": 1, "seconds": 3.0, "reward": 0.5}\n')
    cells = dict(zip(TrainingFolder.COLUMNS, TrainingFolder("demo", tmp_path, True).row()["cells"]))
    assert (cells["algorithm"]["text"], cells["step"]["text"], cells["s per step"]["text"]) == ("grpo", "1 of 2", "3")


def test_people_play_as_models_do(opened, url):
    page = go(opened, url, "play?game=2048-v0&seed=5")
    episode = Episode(make_game("2048"), 5)
    image = page.locator(".played-image")

    def check(turn):
        expect(page.locator("dl.numbers div", has_text="turn").locator("dd")).to_have_text(str(turn))
        (shown,) = episode.game.images(episode.state)
        assert np.array_equal(pixels(image.get_attribute("src")), shown)

    check(0)
    assert "Respond in exactly this form" in page.inner_text("pre")
    page.keyboard.press("ArrowLeft")
    episode.respond("<answer>left</answer>")
    check(1)
    page.get_by_label("Answer or whole response").fill("I would go up.")
    page.keyboard.press("Enter")
    episode.respond("<answer>I would go up.</answer>")
    check(2)
    expect(page.locator(".last")).to_have_class("last unparsable")

    page = go(opened, url, "play?game=swap-v0&seed=5")
    game = make_game("swap")
    episode = Episode(game, 5)
    action = game.best_action(episode.state)
    for cell in game.answer.cells(action):
        x, y, width, height = game.painter.geometry.cell_box(*cell)
        scale = image.bounding_box()["width"] / game.image_shapes[0][1]
        image.click(position={"x": (x + width / 2) * scale, "y": (y + height / 2) * scale})
    expect(page.locator(".last")).to_have_class("last played")
    episode.act(action)
    check(1)
