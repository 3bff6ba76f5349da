"""Suites: frozen games and settings, normalised scores, and checks that a run has played a suite."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import eval_result_entries_to_yaml, parse_eval_result_entries

from tests.playing import edited, small_suite
from vlmgym import make_game
from vlmgym.benchmark.suites import FOLDER, behaviour_hash, mean_with_error, read_suite, suite_names
from vlmgym.benchmark.verify import verify_run
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.evaluation.tables import format_estimate
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.games.swap import Swap
from vlmgym.sandbox.registry import BUILT_IN, game_class

SHIPPED = suite_names()
SHA256 = {
    "vlmgym-2026.2-core": "4cc0680f68458db3abb69babad59cc8644a6544f910319f363501b8a8f61fd31",
    "vlmgym-2026.2-full": "a320a3ad9cd37d48c14564eb651e7a9baa15da9a41097feff69db0426fd838c3",
    "vlmgym-2026.2-lite": "ba170bdbd221ad40cef14badee29fe4839cd532897a3bf19545b1b43fa45e2ab",
}
"""Hashes of suite files; until a suite is published, `benchmarks.suites refreeze` may change its file."""
FAST = ("--videos", "0", "--no-report", "--workers", "0")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suites")


@pytest.fixture
def suite(frozen: Path) -> Iterator[str]:
    with small_suite(frozen, "scenes-statements-v0", "swap-v0", episodes=3, max_turns=4) as name:
        yield name


def play(suite: str, folder: Path, policy: str = "oracle") -> Path:
    main(["eval", "--suite", suite, "--policy", policy, *FAST, "--output-dir", str(folder)])
    return folder


@pytest.fixture(scope="module")
def played(frozen: Path) -> Path:
    """A run of the suite."""
    with small_suite(frozen, "scenes-statements-v0", "swap-v0", episodes=3, max_turns=4) as name:
        return play(name, frozen / "played")


def test_a_suite_determines_games_and_settings(suite, tmp_path, capsys):
    run = open_run(play(suite, tmp_path / "run"))
    assert run.config.suite == suite
    assert run.config.game_ids == ("scenes-statements-v0", "swap-v0")
    assert (run.config.episodes, run.config.max_turns, run.config.seed) == (3, 4, 2_026_000)
    assert "mean of all games" in capsys.readouterr().out
    summary = run.last_summary().suite
    statements, swap = summary.games["scenes-statements-v0"], summary.games["swap-v0"]
    assert statements.normalised == (1.0, 0.0)
    assert swap.normalised[0] == pytest.approx((swap.score_mean - swap.random) / (swap.oracle - swap.random))
    assert summary.score == mean_with_error([statements.normalised, swap.normalised])
    assert set(summary.skills) == {*Swap.skills, *make_game("scenes-statements").skills}
    assert verify_run(run, 0).problems == []


def test_reports_have_a_profile_of_skills(suite, tmp_path, watched):
    options = ["--policy", "oracle", "--videos", "0", "--workers", "0", "--output-dir", str(tmp_path / "run")]
    main(["eval", "--suite", suite, *options])
    table = watched.visit(tmp_path / "run" / "report.html").get_by_role("region", name="Skills")
    rows = [row.inner_text().split("\t") for row in table.get_by_role("row").all()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [
        ("perception", "scenes-statements-v0, swap-v0"),
        ("search", "swap-v0"),
        ("spatial", "scenes-statements-v0"),
    ]
    assert all(float(row[-2].split()[0]) == pytest.approx(1, abs=0.3) for row in rows)
    assert table.get_by_role("img").count() == 3
    watched.check()


def test_an_incomplete_suite_has_no_means_over_games(suite, tmp_path, capsys):
    (tmp_path / "policy.py").write_text(
        "from vlmgym.policies import Reply\n"
        "def policy(images, prompts):\n"
        "    return [Reply('<answer>true</answer>', prompt_tokens=10, completion_tokens=10) for _ in prompts]\n"
    )
    options = ["--policy", f"{tmp_path / 'policy.py'}:policy", "--concurrency", "1", "--videos", "0", "--workers", "0"]
    folder = tmp_path / "run"
    main(["eval", "--suite", suite, *options, "--budget-tokens", "100", "--output-dir", str(folder)])
    summary = open_run(folder).last_summary().suite
    assert (set(summary.games), set(summary.skills)) == ({"scenes-statements-v0"}, {"spatial"})
    assert summary.score is None
    assert "mean of all games" not in capsys.readouterr().out + (folder / "report.html").read_text()
    main(["eval", "--suite", suite, *options, "--resume", str(folder)])
    summary = open_run(folder).last_summary().suite
    assert summary.score == mean_with_error([game.normalised for game in summary.games.values()])
    assert "mean of all games" in capsys.readouterr().out
    assert "mean of all games" in (folder / "report.html").read_text()


@pytest.mark.parametrize("option", [["--episodes=10"], ["--config", "size=320"], ["--prediction"]])
def test_options_that_a_suite_fixes_are_rejected(suite, option, tmp_path, run):
    done = run("eval", "--suite", suite, *option, "--output-dir", "run")
    assert f"{option[0].removesuffix('=10')} is fixed by the suite" in done.err
    assert not (tmp_path / "run").exists()


def test_any_change_of_a_game_changes_its_hash():
    class OtherPrompt(Swap):
        prompt_template = Swap.prompt_template + " "

    class OtherReward(Swap):
        def step(self, state, action, rng):
            step = super().step(state, action, rng)
            return type(step)(step.state, step.reward * 2, step.info)

    class OtherImage(Swap):
        def draw(self, state):
            image = super().draw(state).copy()
            image[0, 0, 0] ^= 1
            return image

    def found(game: type[Swap], **fields: Any) -> str:
        config: GameConfig = game.Config.at(3, 3, size=128, **fields)
        return behaviour_hash(game(config), 0)

    hashes = [found(Swap), *map(found, (OtherPrompt, OtherReward, OtherImage)), found(Swap, rows=7)]
    assert len(set(hashes)) == 5
    assert found(Swap) == hashes[0]


def test_every_game_names_its_skills():
    assert [game for game in BUILT_IN if not game_class(game).skills] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suites_have_all_games_with_better_oracles(name):
    for game in read_suite(name).games.values():
        assert game.oracle > game.random


def test_files_of_suites_are_unchanged():
    """Settings and baselines of a suite never change; make a new version of the suite instead."""
    assert {name: hashlib.sha256((FOLDER / f"{name}.toml").read_bytes()).hexdigest() for name in SHIPPED} == SHA256


@pytest.mark.slow
@pytest.mark.parametrize("game_id", sorted({game for name in SHIPPED for game in read_suite(name).games}))
def test_shipped_suites_are_unchanged(game_id):
    """If this test fails, a game's images, prompts, rules or states have changed: freeze new versions of the suites."""
    found = {}
    for name in SHIPPED:
        suite = read_suite(name)
        if game_id in suite.games:
            settings = suite.perception, suite.reasoning, suite.seed
            if settings not in found:
                found[settings] = behaviour_hash(make_game(game_id, *settings[:2]), suite.seed)
            assert found[settings] == suite.games[game_id].hash, name


def test_a_zip_of_a_run_is_verified_and_ranked(suite, tmp_path, capsys):
    shutil.make_archive(str(tmp_path / "run"), "zip", tmp_path, play(suite, tmp_path / "run").name)
    capsys.readouterr()
    main(["verify", str(tmp_path / "run.zip"), "--workers", "0"])
    score = format_estimate(open_run(tmp_path / "run").last_summary().suite.score)
    assert capsys.readouterr().out.startswith(
        f"small-1: {score}. Scoring verified: 6 episodes (15 turns) of scenes-statements"
    )
    page = tmp_path / "page.html"
    main(["leaderboard", str(tmp_path / "run.zip"), "--output", str(page), "--workers", "0"])
    assert '"verified"' in page.read_text()


def in_run(**fields: Any) -> Callable[[Path], object]:
    return edit("run.json", lambda run: run.update(fields))


def edit(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Return an edit of the first line of a file, or of the whole file if it is one JSON value."""

    def write(folder: Path) -> None:
        with edited(folder / name) as data:
            change(data[0] if name == "episodes.jsonl" else data)

    return write


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (in_run(max_turns=3), "max_turns is 3, but the suite has 4"),
        (in_run(games=[]), "the games or their configurations differ from the suite's"),
        (in_run(suite="best-1"), "unknown suite 'best-1'"),
        (
            edit("run.json", lambda run: run["difficulty"].update(reasoning=2)),
            "the difficulty differs from the suite's",
        ),
        (edit("episodes.jsonl", lambda one: one["turns"][0].update(response="<answer>no</answer>")), "turns.0."),
        (edit("summary.json", lambda it: it["suite"]["games"]["swap-v0"].update(oracle=1)), "swap-v0.oracle is 1"),
        (edit("summary.json", lambda it: it["suite"].update(score=[2, 0])), "suite.score.0 is 2.0, but the episodes"),
    ],
)
def test_runs_that_differ_from_their_suite_are_not_verified(suite, played, change, message, tmp_path, run):
    folder = shutil.copytree(played, tmp_path / "run")
    change(folder)
    done = run("verify", folder, "--workers", "0")
    assert done.code > 0
    assert message in " ".join(done.out.split()) + done.err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a/run.json": b"", "b/run.json": b""}, "has more than one run.json: zip the folder of one run"),
        ({"run.json": b" " * (5 << 20)}, "run.json has more than 4,194,304 bytes"),
        (None, "is not a zip that can be read"),
    ],
)
def test_unusable_zips_are_rejected(files, message, tmp_path, run):
    path = tmp_path / "run.zip"
    path.write_bytes(b"PK")
    if files is not None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                archive.writestr(name, data)
    assert message in run("verify", path).err
    assert list(tmp_path.iterdir()) == [path]


def exported(run: Path, out: Path, *options: str) -> Any:
    """Export the results of a run for the Hub, and return them as the Hub reads them."""
    main(["export", str(run), "--format", "eval-results", "--output-dir", str(out), *options])
    data = yaml.safe_load((out / ".eval_results" / "small-1.yaml").read_text())
    entries = parse_eval_result_entries(data)
    assert eval_result_entries_to_yaml(entries) == data
    return entries


def test_the_hub_reads_eval_results(suite, tmp_path):
    run = play(suite, tmp_path / "run", "random")
    entries = exported(run, tmp_path / "out", "--dataset", "org/games", "--source-url", "https://example.org/run")
    assert [entry.task_id for entry in entries] == ["small-1", "scenes-statements-v0", "swap-v0"]
    assert entries[0].value == round(open_run(run).last_summary().suite.score[0], 6)
    assert {entry.dataset_id for entry in entries} == {"org/games"}
    assert {entry.source_url for entry in entries} == {"https://example.org/run"}


def test_runs_of_fewer_games_have_no_score_of_the_suite(tmp_path):
    with small_suite(tmp_path, "rotation-v0", "swap-v0", episodes=2, max_turns=3) as name:
        main(["eval", "--suite", name, "--observation", "text", *FAST, "--output-dir", str(tmp_path / "run")])
        entries = exported(tmp_path / "run", tmp_path / "out", "--dataset", "org/games")
    assert [entry.task_id for entry in entries] == ["swap-v0"]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"seed": 1}, ["--dataset", "a/b"], "differs from its suite: seed is 1, but"),
        ({"suite": None}, ["--dataset", "a/b"], "is not a run of a suite"),
        ({}, [], "eval-results needs a --dataset such as"),
        ({}, ["--dataset", "a/b", "--top-fraction", "0.5"], "remove --top-fraction"),
    ],
)
def test_invalid_exports_of_results_are_rejected(suite, played, change, options, message, tmp_path, capsys):
    run = shutil.copytree(played, tmp_path / "run")
    in_run(**change)(run)
    with pytest.raises(SystemExit):
        exported(run, tmp_path / "out", *options)
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_all_plays_every_game(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("vlmgym.cli.eval.game_ids", lambda: ["2048-v0", "scenes-questions-v0"])
    options = ["--episodes", "1", "--max-turns", "1", "--videos", "0", "--no-report", "--workers", "0"]
    main(["eval", "--suite", "all", *options, "--output-dir", str(tmp_path / "run")])
    assert open_run(tmp_path / "run").config.game_ids == ("2048-v0", "scenes-questions-v0")
    with pytest.raises(SystemExit):
        main(["eval", "swap", "--suite", "all"])
    assert "--suite names the games" in capsys.readouterr().err
