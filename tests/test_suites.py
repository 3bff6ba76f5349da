"""Suites: frozen games and settings, normalised scores, and checks that a run has played a suite."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suites import FreezeConfig, freeze
from benchmarks.tiny_submission import SUBMISSION
from vlmgym import UsageError, make_game
from vlmgym.cli.main import main
from vlmgym.evaluation import open_run
from vlmgym.evaluation.submission.metadata import read_metadata
from vlmgym.evaluation.suite import FOLDER, behaviour_hash, format_estimate, mean_with_error, read_suite, suite_names
from vlmgym.evaluation.verify import verify_run
from vlmgym.rollout.trained import TrainedRecord
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.games.swap import Swap
from vlmgym.sandbox.registry import BUILT_IN, game_class

SHIPPED = suite_names()
SHA256 = {
    "vlmgym-2026.1-core": "3c55db969ac299add7664becf366fa997c4750f8a2f1115c9836b541da07daff",
    "vlmgym-2026.1-full": "f517cf1ff434e2a9874ae91c2aa0e69f0b7937f51a15414a66ad8666db8ffebf",
    "vlmgym-2026.1-lite": "7a6733b25d398ee3721dc373c49c6d3a7b946ecc2ddd5fdca6bf6ca38516bc7f",
}
"""Hashes of suite files; until a suite is published, `benchmarks.suites refreeze` may change its file."""
FAST = ("--videos", "0", "--no-report", "--workers", "0")
SECRET = b"an example of a secret that no other host knows"


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Freeze a small suite of two games in a temporary folder."""
    folder = tmp_path_factory.mktemp("suites")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vlmgym.evaluation.suite.FOLDER", folder)
        patch.setattr("benchmarks.suites.FOLDER", folder)
        patch.setattr("benchmarks.suites.BUILT_IN", ["nlvr2-v0", "swap-v0"])
        small: Any = {"description": "Small.", "episodes": 3, "max_turns": 4, "baseline_episodes": 20}
        small["private_salt"] = hashlib.sha256(SECRET).hexdigest()
        freeze(FreezeConfig(name="small-1", **small))
    return folder


@pytest.fixture
def suite(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("vlmgym.evaluation.suite.FOLDER", frozen)
    read_suite.cache_clear()
    yield "small-1"
    read_suite.cache_clear()


def play(suite: str, folder: Path, policy: str = "oracle") -> Path:
    main(["eval", "--suite", suite, "--policy", policy, *FAST, "--output-dir", str(folder)])
    return folder


def test_a_suite_determines_games_and_settings(suite, tmp_path, capsys):
    run = open_run(play(suite, tmp_path / "run"))
    assert run.config.suite == suite
    assert run.config.game_ids == ("nlvr2-v0", "swap-v0")
    assert (run.config.episodes, run.config.max_turns, run.config.seed) == (3, 4, 2_026_000)
    shown = capsys.readouterr().out
    assert "mean of all games" in shown
    assert "1.000 ± 0.000" in shown
    assert verify_run(run, 0).problems == []


def test_reports_of_other_runs_of_its_games_have_a_profile_of_skills(suite, tmp_path, watched):
    options = ["--episodes", "3", "--max-turns", "4", "--workers", "0", "--videos", "0"]
    main(["eval", "swap", "nlvr2", "2048", "--policy", "oracle", *options, "--output-dir", str(tmp_path / "run")])
    table = watched.visit(tmp_path / "run" / "report.html").get_by_role("region", name="Skills")
    rows = [row.inner_text().split("\t") for row in table.get_by_role("row").all()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [
        ("perception", "swap-v0, nlvr2-v0"),
        ("search", "swap-v0"),
        ("spatial", "nlvr2-v0"),
    ]
    assert all(float(row[-2].split()[0]) == pytest.approx(1, abs=0.3) for row in rows)
    assert table.get_by_role("img").count() == 3
    watched.check()


@pytest.mark.parametrize("option", [["--max-turns", "5"], ["--max-turns", "4", "--reasoning", "2"]])
def test_reports_have_no_skills_without_baselines_of_the_same_turn_limit_and_level(suite, option, tmp_path):
    options = ["--episodes", "2", *option, "--workers", "0", "--videos", "0", "--output-dir", str(tmp_path / "run")]
    main(["eval", "swap", *options])
    assert '"skills":null' in (tmp_path / "run" / "report.html").read_text()


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
    assert (set(summary.games), set(summary.skills)) == ({"nlvr2-v0"}, {"spatial"})
    assert summary.score is None
    assert "mean of all games" not in capsys.readouterr().out + (folder / "report.html").read_text()
    main(["eval", "--suite", suite, *options, "--resume", str(folder)])
    summary = open_run(folder).last_summary().suite
    assert summary.score == mean_with_error([game.normalised for game in summary.games.values()])
    assert "mean of all games" in capsys.readouterr().out
    assert "mean of all games" in (folder / "report.html").read_text()


@pytest.mark.parametrize("option", [["--seed", "4"], ["--episodes=10"], ["--config", "size=320"], ["--strict"]])
def test_options_that_a_suite_fixes_are_rejected(suite, option, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["eval", "--suite", suite, *option, "--output-dir", str(tmp_path / "run")])
    assert f"{option[0].removesuffix('=10')} is fixed by the suite" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_suite_and_the_settings_of_a_checkpoint_are_rejected_together(suite, tmp_path, capsys):
    TrainedRecord.of_run(open_run(play(suite, tmp_path / "played")).config).write(tmp_path)
    with pytest.raises(SystemExit):
        main(["eval", "--suite", suite, "--as-trained", str(tmp_path), "--output-dir", str(tmp_path / "run")])
    assert "--suite names the games: leave out games, --curriculum and --as-trained" in capsys.readouterr().err


def test_any_change_of_a_game_changes_its_hash():
    class OtherPrompt(Swap):
        prompt_template = Swap.prompt_template + " "

    class OtherReward(Swap):
        def step(self, state, action, rng):
            step = super().step(state, action, rng)
            return type(step)(step.state, step.reward * 2, step.terminated, step.info)

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


def test_summaries_have_normalised_scores_of_games_and_skills(suite, tmp_path):
    found = open_run(play(suite, tmp_path / "run")).last_summary().suite
    assert found.score == (1.0, 0.0)
    assert found.games["swap-v0"].normalised == (1.0, 0.0)
    assert found.games["swap-v0"].episodes == 3
    assert found.games["swap-v0"].score_mean == found.games["swap-v0"].oracle
    assert set(found.skills) == {*Swap.skills, *make_game("nlvr2").skills}


def test_a_single_episode_has_no_standard_error(suite):
    first, second = read_suite(suite).games.values()
    assert first.normalise(first.oracle, None) == (1.0, None)
    assert mean_with_error([first.normalise(first.oracle, None), second.normalise(second.random, 0.5)]) == (0.5, None)
    assert format_estimate((0.5, None)) == "0.500"


def test_every_game_names_its_skills():
    assert [game for game in BUILT_IN if not game_class(game).skills] == []


def test_suites_are_frozen_only_with_the_hash_of_a_salt(suite):
    config: dict[str, Any] = {"description": "Small.", "episodes": 1, "max_turns": 1, "private_salt": "salt.txt"}
    with pytest.raises(UsageError, match="private_salt: string should match pattern"):
        freeze(FreezeConfig(name="small-2", **config))


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_suites_have_all_games_with_better_oracles(name):
    for game in read_suite(name).games.values():
        assert game.oracle > game.random


def test_files_of_suites_are_unchanged():
    """Settings and baselines of a suite never change; make a new version of the suite instead."""
    assert {name: hashlib.sha256((FOLDER / f"{name}.toml").read_bytes()).hexdigest() for name in SHIPPED} == SHA256


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


def test_the_committed_submission_is_of_its_suite():
    """If this test fails after a change to the suite, run `benchmarks.tiny_submission` again."""
    folder = Path(__file__).parents[1] / SUBMISSION
    run = open_run(folder)
    assert read_suite(run.config.suite).differences(run.config) == []
    assert read_metadata(folder).differences(run.config, run.last_summary().games) == []


def salt_file(folder: Path, secret: bytes) -> Path:
    path = folder / "salt"
    path.write_bytes(secret)
    return path


def test_private_seeds_derive_from_a_salt_of_which_only_the_hash_is_recorded(suite, tmp_path, capsys):
    secret, salt = SECRET, salt_file(tmp_path, SECRET)
    options = ["--videos", "0", "--workers", "0", "--output-dir", str(tmp_path / "run")]
    main(["eval", "--suite", suite, "--private-salt", str(salt), *options])
    run = open_run(tmp_path / "run")
    expected = hmac.new(secret, suite.encode(), hashlib.sha256).hexdigest()[:13]
    assert {episode.seed - episode.index for episode in run.episodes} == {run.config.seed} == {int(expected, 16)}
    assert run.config.private_salt == hashlib.sha256(secret).hexdigest()
    assert not [path for path in (tmp_path / "run").rglob("*") if path.is_file() and secret in path.read_bytes()]
    capsys.readouterr()

    main(["verify", str(tmp_path / "run"), "--workers", "0"])
    assert "that the private seeds derive from the salt" in capsys.readouterr().out
    main(["verify", str(tmp_path / "run"), "--workers", "0", "--private-salt", str(salt)])
    assert "private" not in capsys.readouterr().out
    page = tmp_path / "page.html"
    rank = ["leaderboard", str(tmp_path / "run"), "--workers", "0", "--output", str(page)]
    with pytest.raises(SystemExit):
        main(rank)
    assert "verifying runs on private seeds needs --private-salt" in capsys.readouterr().err
    main([*rank, "--private-salt", str(salt)])
    assert f"private seeds of the salt with the SHA-256 {run.config.private_salt}" in page.read_text()
    assert "2026000" not in page.read_text()
    assert str(run.config.seed) not in page.read_text()
    with pytest.raises(SystemExit):
        main([*rank, "--private-salt", str(salt), "--reports"])
    assert "reports show private seeds" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["submit", "pack", str(tmp_path / "run"), "--output-dir", str(tmp_path / "packed"), "--submitter", "me"])
    assert "run.json has private seeds" in capsys.readouterr().err
    other = salt_file(tmp_path, secret[::-1])
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path / "run"), "--workers", "0", "--private-salt", str(other)])
    assert "the SHA-256 of the salt is" in capsys.readouterr().out


def test_chosen_seeds_are_not_those_of_the_salt(suite, tmp_path, capsys):
    salt = salt_file(tmp_path, SECRET)
    folder = play(suite, tmp_path / "run")
    config = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(config | {"private_salt": hashlib.sha256(SECRET).hexdigest()}))
    with pytest.raises(SystemExit):
        main(["verify", str(folder), "--workers", "0", "--private-salt", str(salt)])
    assert "seed is 2026000, the salt gives" in capsys.readouterr().out


def test_salts_must_have_the_hash_that_the_suite_publishes(suite, tmp_path, capsys):
    other, published = hashlib.sha256(bytes(32)).hexdigest(), hashlib.sha256(SECRET).hexdigest()
    salt = salt_file(tmp_path, bytes(32))
    with pytest.raises(SystemExit):
        main(["eval", "--suite", suite, "--private-salt", str(salt), "--output-dir", str(tmp_path / "other")])
    assert f"the SHA-256 of the salt is {other}, but {suite} publishes {published}" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
    folder = play(suite, tmp_path / "run")
    config = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(config | {"private_salt": other}))
    (problem,) = verify_run(open_run(folder), 0).problems
    assert problem.startswith("private_salt is ")
    assert problem.endswith(f", but the suite has {published}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--suite", "vlmgym-2026.1-lite", "--private-salt", "short"], "a salt must have at least 32 bytes"),
        (["--suite", "vlmgym-2026.1-lite", "--private-salt", "missing"], "cannot read missing"),
        (["swap", "--private-salt", "short"], "--private-salt needs --suite"),
    ],
)
def test_unusable_salts_are_rejected(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("short").write_bytes(b"guessable")
    with pytest.raises(SystemExit):
        main(["eval", *options])
    assert message in capsys.readouterr().err
    assert not Path("logs").exists()


def test_all_plays_every_game(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("vlmgym.cli.eval_command.game_ids", lambda: ["2048-v0", "vqa-v0"])
    options = ["--episodes", "1", "--max-turns", "1", "--videos", "0", "--no-report", "--workers", "0"]
    main(["eval", "--suite", "all", *options, "--output-dir", str(tmp_path / "run")])
    assert open_run(tmp_path / "run").config.game_ids == ("2048-v0", "vqa-v0")
    with pytest.raises(SystemExit):
        main(["eval", "swap", "--suite", "all"])
    assert "--suite names the games" in capsys.readouterr().err
