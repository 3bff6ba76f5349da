"""Messages and exit codes of commands that fail."""

import subprocess
import sys

import pytest

from tests.commands import BARE, names, policy_file, process

USAGE = {
    "eval nonsense": "unknown game 'nonsense'; the games are 2048-v0, ",
    "eval 2048 --policy orcale": "unknown policy 'orcale' (did you mean oracle?); choose random, ",
    "eval 2048 --config row=5": "2048: unknown config field 'row' (did you mean rows?); the fields are actions_",
    "eval --suite vlmgym-2026.2-light": "unknown suite 'vlmgym-2026.2-light' (did you mean vlmgym-2026.2-lite?);",
    "eval": "name a game: vlmgym eval 2048|",
    "eval 2048 --policy leaves.py:f": "cannot load 'leaves.py': SystemExit: 0",
    "eval 2048 --model=x": "--model is not an option of the random policy: choose --policy openai (or vllm, tr",
    "eval 2048 --config perception=3": "set perception by --perception, not by --config",
    "eval 2048 --episodes 9007199254740993": "episodes must be at most 9007199254740992, got 9007199254740993",
    "eval 2048 --budget-tokens 5": "random does not count tokens",
    "eval 2048 --output-dir a --resume b": "a resumed run continues in its own folder",
    "eval 2048 --resume nowhere": "nowhere is not a run: cannot read",
    "eval --curriculum geospot-mixtrain --samples 2": "a curriculum cannot be repeated: remove --samples",
    "eval 2048 --policy oracle --skins": "--skins needs a model",
    "eval 2048 --all-rows": "which 2048 does not have",
    "repeats": "name at least one run",
    "bench nosuch": "nosuch",
    "check-vision --policy oracle": "sees no images",
}


@pytest.mark.parametrize("words", USAGE)
def test_usage_error_is_reported_in_one_sentence_and_writes_nothing(tmp_path, run, words):
    (tmp_path / "leaves.py").write_text("raise SystemExit(0)")
    before = names(tmp_path)
    done = run(*words.split())
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert USAGE[words] in done.err
    assert done.err_lines == 1
    assert [name for name in names(tmp_path) if name != "__pycache__"] == before


UNPARSED = [
    (["nonsense"], "error: unknown command 'nonsense'; the commands are eval, train, "),
    (["reprot"], "error: unknown command 'reprot' (did you mean report?); the commands are eval, train, "),
    (["eval", "2048", "--episode", "3"], "--episodes"),
    (["eval", "--episodes", "many"], "parsing --episodes: expected an integer, got 'many'"),
]
"""Arguments, and words in the error message; only the option's name where tyro writes the message."""


@pytest.mark.parametrize(("args", "message"), UNPARSED)
def test_words_that_cannot_be_parsed(monkeypatch, run, args, message):
    monkeypatch.setenv("COLUMNS", "200")
    done = run(*args)
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())


def test_policy_that_hangs_ends_the_process(tmp_path):
    options = [*BARE, "--policy", policy_file(tmp_path, "time.sleep(100)"), "--timeout", "0.5"]
    failed = process("eval", "2048", *options, cwd=tmp_path, stderr=subprocess.PIPE)
    _, stderr = failed.communicate(timeout=60)
    assert failed.returncode == 1, stderr
    assert "timed out after 0.5 s with 2 prompts" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("output", "code", "error"),
    [
        ("2>&-", 0, ""),
        ("| head -c 1", 0, ""),
        (">/dev/full", 1, "error: cannot write to standard output: No space left on device\n"),
    ],
)
def test_closed_and_full_output_causes_no_traceback(output, code, error):
    command = f"{sys.executable} -m vlmgym games {output}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr == error


def test_program_from_standard_input_has_no_workers():
    code = "from vlmgym.evaluation import evaluate\nevaluate('2048', 'random', 1, max_turns=1, workers=1)\n"
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, timeout=60)
    assert "read from standard input: use workers=0" in done.stderr
