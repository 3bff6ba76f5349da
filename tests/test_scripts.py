"""The commands users run, as processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vlmgym.cli.main import main
from vlmgym.evaluation import GameRunRecord, RunFolder, RunSummary, read_run
from vlmgym.sandbox.registry import game_ids

SCRIPTS = Path(__file__).parent.parent / "vlmgym" / "test"
SMALL = ["--size", "96", "--episodes", "2", "--max-turns", "4", "--workers", "0"]


def run(*args, cwd=None, program=None):
    command = [sys.executable, *(program or ["-m", "vlmgym"]), *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("game", ["2048", "shisensho", "swap"])
def test_a_script_leaves_records_curves_and_videos(tmp_path, game):
    script = SCRIPTS / f"eval_{game}.py"
    size = ["--size", "256"] if game != "2048" else []
    (tmp_path / script.name).write_text(script.read_text())
    done = run(*SMALL, *size, "--workers", "2", cwd="/", program=[str(tmp_path / script.name)])
    assert done.returncode == 0, done.stderr
    name = f"test_{game}"
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} - {script.name}
    documented = {f"logs/{name}.json", f"logs/{name}.png", f"videos/{name}_0.mp4", f"videos/{name}_1.mp4"}
    own = ("run.json", "episodes.jsonl", "summary.json", "report.html", ".vlmgym.jsonl", ".vlmgym-beside.jsonl")
    rest = {f"logs/{name}/{file}" for file in own}
    assert files == documented | rest
    record = GameRunRecord.model_validate_json((tmp_path / "logs" / f"{name}.json").read_text())
    assert [episode.seed for episode in record.episodes] == [0, 1]
    assert record.episodes == read_run(tmp_path / "logs" / name).episodes
    assert record.summary.turns == sum(len(episode.turns) for episode in record.episodes)
    for word in ("mean score", "best score", "illegal", "unparsable", "turns/s"):
        assert word in done.stdout


def test_a_script_that_is_told_where_writes_everything_there(tmp_path):
    done = run(*SMALL, "--output-dir", "here", cwd=tmp_path, program=[str(SCRIPTS / "eval_2048.py")])
    assert done.returncode == 0, done.stderr
    files = sorted(str(path.relative_to(tmp_path / "here")) for path in (tmp_path / "here").rglob("*.*"))
    assert files == [
        ".vlmgym.jsonl", "curves_2048.png", "episodes.jsonl", "report.html", "run.json", "summary.json",
        "videos/2048_0.mp4", "videos/2048_1.mp4",
    ]  # fmt: skip


def test_a_script_replaces_what_the_last_run_left_and_nothing_else(tmp_path):
    script = tmp_path / "eval_2048.py"
    script.write_text((SCRIPTS / "eval_2048.py").read_text())
    assert run(*SMALL, "--episodes", "3", program=[str(script)]).returncode == 0
    for name in ("test_2048_mine.mp4", "other_0.mp4"):
        (tmp_path / "videos" / name).touch()
    assert run(*SMALL, program=[str(script)]).returncode == 0
    videos = sorted(path.name for path in (tmp_path / "videos").iterdir())
    assert videos == ["other_0.mp4", "test_2048_0.mp4", "test_2048_1.mp4", "test_2048_mine.mp4"]
    assert [path.name for path in sorted((tmp_path / "logs").iterdir())] == [
        "test_2048",
        "test_2048.json",
        "test_2048.png",
        "test_2048.previous",
    ]


def test_a_script_that_fails_at_once_leaves_the_last_results(tmp_path):
    script = tmp_path / "eval_2048.py"
    script.write_text((SCRIPTS / "eval_2048.py").read_text())
    assert run(*SMALL, program=[str(script)]).returncode == 0
    (tmp_path / "bad.py").write_text("def policy(images, prompts):\n    raise ValueError('no model')\n")
    done = run(*SMALL, "--policy", "bad.py:policy", cwd=tmp_path, program=[str(script)])
    assert done.returncode == 1
    for file in ("logs/test_2048.json", "logs/test_2048.png", "videos/test_2048_1.mp4"):
        assert (tmp_path / file).exists()
    assert len(read_run(tmp_path / "logs" / "test_2048.previous").episodes) == 2


def test_a_script_is_resumed_by_any_spelling_of_its_folder(tmp_path):
    (tmp_path / "here").mkdir()
    script = tmp_path / "here" / "eval_2048.py"
    script.write_text((SCRIPTS / "eval_2048.py").read_text())
    assert run(*SMALL, "--no-report", program=[str(script)]).returncode == 0
    more = ["--episodes", "3", "--no-report", "--resume", "../here/logs/test_2048"]
    assert run(*SMALL, *more, cwd=tmp_path / "here", program=[str(script)]).returncode == 0
    record = GameRunRecord.model_validate_json((tmp_path / "here" / "logs" / "test_2048.json").read_text())
    assert [episode.seed for episode in record.episodes] == [0, 1, 2]
    assert not list((tmp_path / "here" / "logs" / "test_2048").glob("*.png"))
    videos = sorted(path.name for path in (tmp_path / "here" / "videos").iterdir())
    assert videos == ["test_2048_0.mp4", "test_2048_1.mp4", "test_2048_2.mp4"]


def test_a_script_uses_the_policy_edited_in_place(tmp_path):
    text = (SCRIPTS / "eval_2048.py").read_text()
    edited = text.replace(
        "[random_response(prompt) for prompt in prompt_batch]", '["<answer>left</answer>" for _ in prompt_batch]'
    )
    assert edited != text
    (tmp_path / "eval_2048.py").write_text(edited)
    done = run(*SMALL, "--videos", "0", "--workers", "1", program=[str(tmp_path / "eval_2048.py")])
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "logs" / "test_2048.json").read_text())
    assert {turn["response"] for episode in record["episodes"] for turn in episode["turns"]} == {
        "<answer>left</answer>"
    }


def test_the_script_as_shipped_plays_like_the_random_policy(tmp_path):
    responses = []
    for folder, options in (("a", []), ("b", ["--policy", "random"])):
        script = SCRIPTS / "eval_2048.py"
        done = run(*SMALL, *options, "--videos", "0", "--output-dir", tmp_path / folder, program=[str(script)])
        assert done.returncode == 0, done.stderr
        responses.append([turn.response for episode in read_run(tmp_path / folder).episodes for turn in episode.turns])
    assert responses[0] == responses[1]


def test_the_command_does_the_same_as_the_script(tmp_path):
    done = run("eval", "2048", *SMALL, "--videos", "0", "--policy", "oracle", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "logs").iterdir()
    assert re.fullmatch(r"2048-oracle-\d{8}-\d{6}", folder.name)
    assert {episode.policy.name for episode in read_run(folder).episodes} == {"oracle"}
    summary = RunSummary.model_validate_json((folder / "summary.json").read_text())
    assert summary.games["2048-v0"].perception_exact_match == 1.0


def test_several_games_are_one_run(tmp_path):
    done = run("eval", "--games", "2048", "swap", *SMALL, "--size", "256", "--output-dir", "both", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    both = read_run(tmp_path / "both")
    assert [episode.key for episode in both.episodes] == [
        (game, seed) for game in ("2048-v0", "swap-v0") for seed in (0, 1)
    ]
    names = {path.name for path in (tmp_path / "both").rglob("*.*")}
    assert {"curves_2048.png", "curves_swap.png", "2048_1.mp4", "swap_1.mp4"} <= names
    assert "2048-v0" in done.stdout
    assert "swap-v0" in done.stdout


def test_the_options_are_those_of_the_policy_that_is_named():
    assert "--timeout" not in run("eval", "--policy", "random", "--help").stdout
    assert "--timeout" in run("eval", "--policy", "f.py:g", "--help").stdout


def test_the_command_takes_the_options_of_the_scripts():
    script, command = (
        run("--policy", "random", "--help", program=[str(SCRIPTS / "eval_2048.py")]).stdout,
        run("eval", "--help").stdout,
    )
    options = re.compile(r"--[a-z][a-z.-]*")
    assert set(options.findall(command)) == set(options.findall(script)) | {"--games", "--curriculum"}
    assert "--reward.game-weight" in command


def test_the_command_lists_the_games():
    done = run("games")
    assert done.returncode == 0
    games, _, presets = done.stdout.partition("\n\n")
    assert [line.split()[0] for line in games.splitlines()] == game_ids()
    assert "2048-v0" in game_ids()
    assert "g1/swap\n  swap: rows=8 columns=8 colours=4 shapes=3\n  from G1, " in presets


USAGE = [
    (["nonsense"], "unknown game 'nonsense'; the games are 2048-v0, "),
    (["2048", "--policy", "best"], "unknown policy 'best'"),
    (["2048", "--model", "x"], "--model is not an option of the policy random: choose --policy openai (or vllm, tr"),
    (["2048", "--model=x", "--policy", "oracle"], "an option of the policy oracle: choose --policy openai"),
    (["2048", "--tensor_parallel_size", "2"], "the policy random: choose --policy vllm"),
    (["2048", "--policy", "openai", "--record", "x"], "the policy openai: choose --policy replay"),
    (["2048", "--timeout", "9"], "choose --policy openai (or MODULE:FUNCTION)"),
    (["2048", "--policy", "nowhere:f"], "cannot load 'nowhere'"),
    (["2048", "--episodes", "0"], "episodes must be an integer of at least 1, got 0"),
    (["2048", "--max-turns", "-3"], "turns must be an integer of at least 1, got -3"),
    (["2048", "--fps", "0"], "fps must be between 1 and 60, got 0"),
    (["2048", "--perception", "6"], "perception must be between 1 (easy) and 5 (hard), got 6"),
    (["2048", "--size", "20"], "size: input should be greater than or equal to 64 (got 20)"),
    (["2048", "--config", "rows=2"], "rows: input should be greater than or equal to 3 (got 2)"),
    (["2048", "--config", "rows"], "set by NAME=VALUE"),
    (["2048", "--config", "speed=3"], "unknown config field 'speed'"),
    (["shisensho", "--config", "rows=5", "columns=5"], "rows x columns must be even, got 5 x 5"),
    (["shisensho", "--config", "colours=1", "shapes=1"], "1 colours x 1 shapes make 1"),
    (["2048", "--size", "320", "--config", "size=640"], "--size and --config set different sizes"),
    (["2048", "--config", "perception=3"], "set perception by --perception, not by --config"),
    (["2048", "--config", "game=3"], "unknown config field 'game'"),
    (["2048", "--policy", ""], "unknown policy ''"),
    (["2048", "--policy", "leaves.py:f"], "cannot load 'leaves.py': SystemExit: 0"),
    (["2048", "--policy", "raises.py:f"], "cannot load 'raises.py': BaseException: no"),
    (["2048", "--policy", "f.py:g", "--timeout", "nan"], "timeout must be a positive number of seconds"),
    (["2048", "--reward.game-weight", "1e9"], "reward: game_weight: input should be less than or equal to 1000000"),
    (["2048", "--games", "swap", "--games", "2048"], "a game is named twice"),
    (["2048", "--config", "rows=3", "--config", "rows=4"], "rows is set twice"),
    (["2048", "--config", "rows=3", "--config", "columns=2"], "columns: input should be greater than or equal to 3"),
    (["2048", "--workers", "-1"], "workers must be an integer of at least 0, got -1"),
    (["2048", "--policy", "f.py:g", "--timeout", "0"], "timeout must be a positive number of seconds"),
    (["2048", "2048-v0"], "a game is named twice"),
    ([], "name a game: vlmgym eval 2048|"),
    (["2048", "--history-images", "2"], "history_images must be at most history"),
    (["2048", "--budget-cost", "2"], "budget_cost requires price_in and price_out"),
    (["2048", "--output-dir", "a", "--resume", "b"], "a resumed run continues in its own folder"),
    (["2048", "--resume", "nowhere"], "nowhere holds no run: cannot read"),
    (["2048", "--output-dir", "earlier"], "earlier holds files that vlmgym did not write ('run.json')"),
]


@pytest.mark.parametrize(("args", "message"), USAGE)
def test_a_usage_error_is_one_sentence_and_exit_code_2(tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    earlier = tmp_path / "earlier" / "run.json"
    earlier.parent.mkdir()
    earlier.write_text("an earlier run")
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    (tmp_path / "raises.py").write_text("raise BaseException('no')")
    with pytest.raises(SystemExit) as ended:
        main(["eval", *args, "--videos", "0"])
    assert ended.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert earlier.read_text() == "an earlier run"


@pytest.mark.parametrize(("args", "code"), [("--help", 0), ("games", 0), ("games nonsense", 2), ("nonsense", 2)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_output_changes_nothing_but_what_is_seen(args, code, closed):
    done = subprocess.run(f"{sys.executable} -m vlmgym {args} {closed}", shell=True, capture_output=True, text=True)
    assert done.returncode == code
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("args", [["--episodes", "many"], ["--nonsense"], ["--policy"]])
def test_options_that_do_not_parse_exit_with_2(capsys, args):
    with pytest.raises(SystemExit) as ended:
        main(["eval", *args])
    assert ended.value.code == 2
    assert capsys.readouterr().err


BAD_POLICIES = {
    "wrong_number": ("return ['x']", "returned 1 responses to 2 prompts"),
    "not_strings": ("return [None for _ in prompts]", "response 0 must be a string or a Reply, got NoneType"),
    "raises": ("raise ValueError('no model')", "raised ValueError: no model"),
    "cannot_say": (
        "class Odd(Exception):\n        def __str__(self): raise ValueError\n    raise Odd",
        "raised Odd: its message cannot be formatted",
    ),
    "stops": ("raise StopIteration", "raised RuntimeError: StopIteration"),
    "exits": ("import sys; sys.exit(0)", "raised RuntimeError: SystemExit: 0"),
    "hangs": ("import time; time.sleep(100)", "timed out after 0.5 s with 2 prompts"),
}


@pytest.mark.parametrize("name", list(BAD_POLICIES))
def test_a_failing_policy_is_one_sentence_and_exit_code_1(tmp_path, name):
    body, message = BAD_POLICIES[name]
    (tmp_path / "bad.py").write_text(f"def policy(images, prompts):\n    {body}\n")
    done = run("eval", "2048", *SMALL, "--policy", "bad.py:policy", "--timeout", "0.5", cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_responses_that_no_file_can_hold_are_recorded_all_the_same(tmp_path):
    (tmp_path / "odd.py").write_text(
        "def policy(images, prompts):\n    return ['\\ud800 <answer>\\ud800</answer> \\0 </script>' for _ in prompts]\n"
    )
    options = ["--videos", "0", "--history", "2", "--policy", "odd.py:policy", "--output-dir", "here"]
    done = run("eval", "2048", *SMALL, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    turn = read_run(tmp_path / "here").episodes[0].turns[0]
    assert turn.response == "\\ud800 <answer>\\ud800</answer> \0 </script>"
    assert turn.outcome == "unparsable"


def test_two_runs_do_not_write_the_same_files(tmp_path):
    folder = tmp_path / "here"
    with RunFolder(folder).reserved():
        done = run("eval", "2048", *SMALL, "--output-dir", folder)
    assert done.returncode == 1
    assert "another run is writing" in done.stderr
    assert run("eval", "2048", *SMALL, "--videos", "0", "--output-dir", folder).returncode == 0


def test_a_policy_may_change_the_folder(tmp_path):
    (tmp_path / "moves.py").write_text(
        "import os\ndef policy(images, prompts):\n    os.chdir('/')\n    return ['' for _ in prompts]\n"
    )
    done = run(
        "eval", "2048", *SMALL, "--videos", "0", "--output-dir", "here", "--policy", "moves.py:policy", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "summary.json").is_file()


def test_output_that_cannot_be_written_is_no_traceback(tmp_path):
    command = f"{sys.executable} -m vlmgym games | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=60)
    assert "Traceback" not in done.stderr
    for command in ("games", "eval --help"):
        full = f"{sys.executable} -m vlmgym {command} > /dev/full"
        done = subprocess.run(full, shell=True, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert done.stderr == "error: cannot write to standard output: No space left on device\n"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [
        sys.executable,
        "-m",
        "vlmgym",
        "eval",
        "2048",
        *SMALL,
        "--videos",
        "0",
        "--output-dir",
        str(tmp_path / "o"),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_was_finished_before_a_failure_can_be_read(tmp_path):
    (tmp_path / "bad.py").write_text(
        "calls = []\n"
        "def policy(images, prompts):\n"
        "    calls.append(1)\n"
        "    return ['<answer>up</answer>' if len(calls) < 7 else 3 for _ in prompts]\n"
    )
    done = run(
        "eval", "2048", *SMALL, "--concurrency", "1", "--policy", "bad.py:policy", "--output-dir", "o", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "1 finished episodes are in" in done.stderr
    assert f"--resume {tmp_path}/o" in done.stderr
    assert [(episode.seed, episode.status) for episode in read_run(tmp_path / "o").episodes] == [
        (0, "turn limit"),
        (1, "stopped"),
    ]


def test_an_unwritable_place_is_one_sentence_and_exit_code_1(tmp_path):
    (tmp_path / "file").touch()
    done = run("eval", "2048", *SMALL, "--output-dir", tmp_path / "file" / "run")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"error: cannot write {tmp_path}/file/run: Not a directory"


def test_an_interrupt_ends_with_what_was_finished(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "def policy(images, prompts):\n"
        "    time.sleep(0.05)\n"
        "    return ['<answer>up</answer>' for _ in prompts]\n"
    )
    command = [sys.executable, "-m", "vlmgym", "eval", "2048", "--size", "96", "--policy", "slow.py:policy"]
    options = ["--episodes", "200", "--max-turns", "3", "--concurrency", "2", "--workers", "2", "--output-dir", "o"]
    process = subprocess.Popen(
        [*command, *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_for_lines(tmp_path / "o" / "episodes.jsonl", 2)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.search(r"\ninterrupted; \d+ finished episodes are in .*; continue with --resume .*/o\n$", stderr)
    assert "Traceback" not in stderr
    assert sum(episode.score is not None for episode in read_run(tmp_path / "o").episodes) >= 2


def wait_for_lines(path, lines):
    until = time.monotonic() + 60
    while time.monotonic() < until and not (path.exists() and path.read_bytes().count(b"\n") >= lines):
        time.sleep(0.02)


def test_a_killed_run_is_resumed_as_if_it_had_not_been(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\n"
        "from vlmgym.policies import random_response\n"
        "def policy(images, prompts):\n"
        "    time.sleep(0.02)\n"
        "    return [random_response(prompt) for prompt in prompts]\n"
    )
    options = ["eval", "2048", "--size", "96", "--policy", "slow.py:policy", "--episodes", "12", "--max-turns", "6"]
    options += ["--workers", "1", "--concurrency", "2", "--videos", "0"]
    command = [sys.executable, "-m", "vlmgym", *options, "--output-dir", "o"]
    log = tmp_path / "o" / "episodes.jsonl"
    for lines in (2, 5):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_lines(log, lines)
        process.kill()
        process.wait()
        with log.open("a") as file:
            file.write('{"record": 2, "versions"')  # as if killed in the middle of a line
        command = [sys.executable, "-m", "vlmgym", *options, "--resume", "o"]
    done = run(*options, "--resume", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dropped the incomplete last line" in done.stderr
    assert run(*options, "--output-dir", "whole", cwd=tmp_path).returncode == 0
    played = [
        [
            (episode.seed, [turn.response for turn in episode.turns], episode.score)
            for episode in read_run(folder).episodes
        ]
        for folder in (tmp_path / "o", tmp_path / "whole")
    ]
    assert played[0] == played[1]
    assert len(played[0]) == 12
    assert len(log.read_text().splitlines()) == 12


def test_a_run_of_other_options_is_not_resumed(tmp_path):
    options = ["eval", "2048", *SMALL, "--videos", "0"]
    assert run(*options, "--output-dir", "o", cwd=tmp_path).returncode == 0
    before = (tmp_path / "o" / "episodes.jsonl").read_bytes()
    for other, message in (
        (["--max-turns", "5"], "max_turns was 4 and is 5"),
        (["--seed", "1"], "seed was 0 and is 1"),
        (["--size", "128"], "games.0.config.size was 96 and is 128"),
        (["--policy", "oracle"], "policy.name was 'random' and is 'oracle'"),
        (["--reward.illegal", "-1"], "reward.illegal was None and is -1.0"),
        (["--history", "1"], "history was 0 and is 1"),
        (["--episodes", "1"], "episodes was 2 and is 1"),
    ):
        done = run(*options, *other, "--resume", "o", cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
    assert (tmp_path / "o" / "episodes.jsonl").read_bytes() == before
    assert run(*options, "--episodes", "3", "--workers", "1", "--resume", "o", cwd=tmp_path).returncode == 0
    assert [episode.seed for episode in read_run(tmp_path / "o").episodes] == [0, 1, 2]


SLOW = (
    "import time\n"
    "def policy(images, prompts):\n"
    "    time.sleep(0.05)\n"
    "    open('asked', 'a').write('.')\n"
    "    return ['<answer>up</answer>' for _ in prompts]\n"
)


IN_A_SCRIPT = ["bash", "-c", "trap '' INT; exec \"$@\"", "bash"]
"""Starts a command as a shell's script does one that ends with &: it does not hear Ctrl-C."""


@pytest.mark.parametrize(
    ("before", "workers", "whom"), [([], "0", os.kill), ([], "2", os.killpg), (IN_A_SCRIPT, "0", os.kill)]
)
def test_a_job_that_is_preempted_keeps_the_turns_it_has(before, workers, whom, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [*before, sys.executable, "-m", "vlmgym", "eval", "2048", "--size", "96", "--policy", "slow.py:policy"]
    options = ["--episodes", "3", "--max-turns", "500", "--concurrency", "2", "--workers", workers, "--output-dir", "o"]
    process = subprocess.Popen(
        [*command, *options], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    asked, until = tmp_path / "asked", time.monotonic() + 120
    while time.monotonic() < until and not (asked.exists() and asked.stat().st_size > 5):
        time.sleep(0.02)
    whom(process.pid, signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in stderr
    assert "interrupted; 0 finished episodes are in " in stderr
    kept = read_run(tmp_path / "o").episodes
    assert {episode.status for episode in kept} == {"stopped"}
    assert all(episode.turns for episode in kept)
    assert not list(tmp_path.glob(".*.lock"))


def test_a_link_to_a_run_that_is_written_is_that_run(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with RunFolder(tmp_path / "real").reserved():
        done = run("eval", "2048", *SMALL, "--output-dir", tmp_path / "link")
    assert done.returncode == 1
    assert "another run is writing" in done.stderr


def test_a_resume_that_fails_at_once_changes_nothing(tmp_path):
    (tmp_path / "p.py").write_text(
        "import os\n"
        "def policy(images, prompts):\n"
        "    assert 'BAD' not in os.environ\n"
        "    return ['<answer>up</answer>' for _ in prompts]\n"
    )
    options = ["eval", "2048", *SMALL, "--videos", "0", "--no-report", "--policy", "p.py:policy"]
    assert run(*options, "--output-dir", "o", cwd=tmp_path).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()}
    command = [sys.executable, "-m", "vlmgym", *options, "--episodes", "3", "--resume", "o"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "BAD": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} == before


def test_an_option_that_is_refused_leaves_no_folder(tmp_path):
    done = run("eval", "2048", *SMALL, "--budget-tokens", "5", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "error: random does not count tokens: leave out prices and budgets\n"
    assert list(tmp_path.iterdir()) == []


def test_names_that_look_like_markup_are_names(tmp_path):
    done = run("eval", "2048", *SMALL, "--videos", "0", "--no-report", "--output-dir", "a[/bold]b", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"run     {tmp_path}/a[/bold]b" in done.stdout


def test_runs_that_start_together_do_not_collide(tmp_path):
    command = [sys.executable, "-m", "vlmgym", "eval", "2048", *SMALL, "--videos", "0", "--no-report"]
    processes = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert all((folder / "summary.json").exists() for folder in (tmp_path / "logs").iterdir())
    assert len(list((tmp_path / "logs").iterdir())) == 3


def test_scores_come_before_the_videos_of_as_many_episodes_as_asked_for(tmp_path):
    command = [
        sys.executable,
        "-m",
        "vlmgym",
        "eval",
        "2048",
        *SMALL,
        "--no-report",
        "--output-dir",
        str(tmp_path / "o"),
    ]
    done = subprocess.run([*command, "--videos", "1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert 0 < done.stdout.index("mean score") < done.stdout.index("Encoding videos ...")
    assert [path.name for path in (tmp_path / "o" / "videos").iterdir()] == ["2048_0.mp4"]
    with pytest.raises(SystemExit):
        main(["eval", "2048", "--videos", "-1"])


def test_a_new_run_shows_no_videos_of_another(tmp_path):
    options = ["eval", "2048", *SMALL, "--no-report", "--output-dir", "o"]
    assert run(*options, cwd=tmp_path).returncode == 0
    old = (tmp_path / "o" / "videos" / "2048_0.mp4").read_bytes()
    for file in ("run.json", "episodes.jsonl", "summary.json"):
        (tmp_path / "o" / file).unlink()
    assert run(*options, "--seed", "50", cwd=tmp_path).returncode == 0
    assert (tmp_path / "o" / "videos" / "2048_0.mp4").read_bytes() != old


def test_a_program_from_standard_input_is_told_what_to_do():
    code = "from vlmgym.evaluation import evaluate\nevaluate('2048', 'random', 1, max_turns=1, workers=1)\n"
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False, timeout=60)
    assert "worker processes cannot import a program that is read from standard input: use workers=0" in done.stderr
