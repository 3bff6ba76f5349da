"""Files written by evaluation scripts and `vlmgym eval`, and runs that are interrupted and resumed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import BARE, SMALL, names, policy_file, process, wait_until
from vlmgym.evaluation import GameRunRecord, RunSummary, read_run
from vlmgym.sandbox.registry import game_ids

SCRIPTS = Path(__file__).parent.parent / "vlmgym" / "test"


@pytest.fixture
def script(tmp_path):
    """Copy eval_2048.py to `tmp_path`, where it writes its files."""
    copy = tmp_path / "eval_2048.py"
    copy.write_text((SCRIPTS / copy.name).read_text())
    return copy


def test_script_writes_records_curves_and_videos(tmp_path, script):
    options = [*SMALL, "--workers", "0"]
    done = subprocess.run([sys.executable, str(script), *options], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    documented = {"logs/test_2048.json", "logs/test_2048.png", "videos/test_2048_0.mp4", "videos/test_2048_1.mp4"}
    own = ("run.json", "episodes.jsonl", "summary.json", "report.html", "curves_2048.png")
    own += ("videos/2048_0.mp4", "videos/2048_1.mp4")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} - {script.name}
    assert files == documented | {f"logs/test_2048/{file}" for file in own}
    record = GameRunRecord.model_validate_json((tmp_path / "logs" / "test_2048.json").read_text())
    assert [episode.seed for episode in record.episodes] == [0, 1]
    assert record.episodes == read_run(tmp_path / "logs" / "test_2048").episodes
    assert record.summary.turns == sum(len(episode.turns) for episode in record.episodes)
    for word in ("mean score", "best score", "illegal", "unparsable", "turns/s"):
        assert word in done.stdout


@pytest.mark.parametrize("name", sorted(path.stem.removeprefix("eval_") for path in SCRIPTS.glob("eval_*.py")))
def test_every_script_plays_its_game(tmp_path, run, name):
    script = tmp_path / f"eval_{name}.py"
    script.write_text((SCRIPTS / script.name).read_text())
    done = run(*BARE, "--size", "256", script=script)
    assert done.code == 0, done.err
    record = GameRunRecord.model_validate_json((tmp_path / "logs" / f"test_{name}.json").read_text())
    assert (record.episodes[0].game.config.get("tiles") == "digits") is (name == "shisensho_images")


def test_script_resumes_its_own_folder(tmp_path, run, script):
    assert run(*SMALL, "--no-report", script=script).code == 0
    more = ["--episodes", "3", "--no-report", "--resume", f"../{tmp_path.name}/logs/test_2048"]
    assert run(*SMALL, *more, script=script).code == 0
    record = GameRunRecord.model_validate_json((tmp_path / "logs" / "test_2048.json").read_text())
    assert [episode.seed for episode in record.episodes] == [0, 1, 2]
    assert names(tmp_path / "videos") == [f"test_2048_{n}.mp4" for n in range(3)]


def test_script_plays_at_random_until_edited(tmp_path, run, script):
    for folder, options in (("shipped", []), ("random", ["--policy", "random"])):
        assert run(*BARE, *options, "--output-dir", folder, script=script).code == 0
    shipped = "[random_response(prompt) for prompt in prompt_batch]"
    assert shipped in script.read_text()
    script.write_text(script.read_text().replace(shipped, '["<answer>left</answer>" for _ in prompt_batch]'))
    assert run(*BARE, "--output-dir", "edited", script=script).code == 0
    responses = {
        folder: [turn.response for episode in read_run(tmp_path / folder).episodes for turn in episode.turns]
        for folder in ("shipped", "random", "edited")
    }
    assert responses["shipped"] == responses["random"]
    assert set(responses["edited"]) == {"<answer>left</answer>"}


def test_command_has_the_options_of_the_scripts(run):
    options = re.compile(r"--[a-z][a-z.-]*")
    script = run("--policy", "random", "--help", script=SCRIPTS / "eval_2048.py").out
    command = run("eval", "--policy", "random", "--help").out
    own = {"--games", "--curriculum", "--as-trained", "--suite"}
    # The help of --as-trained mentions --model.
    assert set(options.findall(command)) - {"--model"} == set(options.findall(script)) | own
    assert "--reward" not in command, "vlmgym rescore has them"
    assert "--timeout" not in command
    assert "--timeout" in run("eval", "--policy", "f.py:g", "--help").out


def test_command_makes_a_folder_in_logs(tmp_path, run):
    assert run("eval", "2048", *SMALL, "--videos", "0", "--policy", "oracle").code == 0
    (folder,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"2048-oracle-\d{8}-\d{6}-\d{6}", folder.name)
    assert {episode.policy.name for episode in read_run(folder).episodes} == {"oracle"}
    summary = RunSummary.model_validate_json((folder / "summary.json").read_text())
    assert summary.games["2048-v0"].perception_exact_match == 1.0


def test_games_are_listed(run):
    games, _, others = run("games").out.partition("\n\n")
    assert [line.split()[0] for line in games.splitlines()] == game_ids()
    assert "2048-v0" in game_ids()
    assert re.search(r"^nlvr2 +scenes-statements, or with --config data=", others, re.MULTILINE)
    assert "g1/swap\n  swap: rows=8 columns=8 colours=4 shapes=3\n  from G1, " in others


# Interrupted and resumed runs -----------------------------------------------------------------------------------------


def test_killed_run_is_resumed_as_if_never_killed(tmp_path, run):
    policy = policy_file(
        tmp_path,
        "from vlmgym.policies import random_response\ntime.sleep(0.02)\n"
        "return [random_response(prompt) for prompt in prompts]",
    )
    options = ["eval", "2048", *BARE, "--policy", policy, "--episodes", "12", "--max-turns", "6", "--concurrency", "2"]
    log = tmp_path / "o" / "episodes.jsonl"
    for lines, where in ((2, "--output-dir"), (5, "--resume")):
        started = process(*options, where, "o", cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda least=lines: log.exists() and log.read_bytes().count(b"\n") >= least)
        started.kill()
        started.wait()
        with log.open("a") as file:
            file.write('{"record": 2, "versions"')  # as if the run had been killed while writing a line
    done = run(*options, "--resume", "o")
    assert done.code == 0
    assert "dropped the incomplete last line" in done.err
    assert run(*options, "--output-dir", "whole").code == 0
    resumed, whole = (
        [(episode.seed, [turn.response for turn in episode.turns], episode.score) for episode in run.episodes]
        for run in map(read_run, (tmp_path / "o", tmp_path / "whole"))
    )
    assert resumed == whole
    assert len(whole) == len(log.read_text().splitlines()) == 12


def test_resume_needs_the_same_options(tmp_path, run):
    options = ["eval", "2048", *BARE]
    assert run(*options, "--output-dir", "o").code == 0
    before = (tmp_path / "o" / "episodes.jsonl").read_bytes()
    for other, message in (
        (["--max-turns", "5"], "max_turns was 4 and is 5"),
        (["--seed", "1"], "seed was 0 and is 1"),
        (["--size", "128"], "games.0.config.size was 96 and is 128"),
        (["--policy", "oracle"], "policy.name was 'random' and is 'oracle'"),
        (["--history", "1"], "history was None and is 1"),
        (["--episodes", "1"], "episodes was 2 and is 1"),
    ):
        done = run(*options, *other, "--resume", "o")
        assert done.code == 2
        assert message in done.err
    assert (tmp_path / "o" / "episodes.jsonl").read_bytes() == before
    assert run(*options, "--episodes", "3", "--workers", "1", "--resume", "o").code == 0
    assert [episode.seed for episode in read_run(tmp_path / "o").episodes] == [0, 1, 2]


def test_resume_that_fails_at_once_changes_nothing(tmp_path, run, monkeypatch):
    policy = policy_file(tmp_path, "assert 'BAD' not in os.environ\nreturn ['<answer>up</answer>' for _ in prompts]")
    options = ["eval", "2048", *BARE, "--policy", policy]
    assert run(*options, "--output-dir", "o").code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    monkeypatch.setenv("BAD", "1")
    assert run(*options, "--episodes", "3", "--resume", "o").code == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before
