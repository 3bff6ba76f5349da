"""Interrupts and full disks end in one sentence and keep finished episodes."""

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vlmgym.evaluation import read_run

ROOT = Path(__file__).parent.parent
COMMANDS = {
    "script": [str(Path(sys.executable).with_name("vlmgym"))],
    "evaluation script": [str(ROOT / "vlmgym" / "test" / "eval_2048.py")],
}
ARGUMENTS = ["--size", "64", "--episodes", "30", "--max-turns", "20", "--workers", "0"]
IN_BACKGROUND = ["bash", "-c", "trap '' INT; exec \"$@\"", "bash"]
"""Start of a command line that ignores SIGINT, as commands that a shell script starts with & do."""


def catches_signals(process: subprocess.Popen[str]) -> bool:
    """Return True if the process handles SIGTERM, which Python itself does not."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) & 1 << signal.SIGTERM - 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see when the command has started")
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_interrupt_at_any_time_leaves_no_traceback(command: str, tmp_path: Path) -> None:
    moments = random.Random(command)
    for attempt in range(2):
        game = [] if command == "evaluation script" else ["eval", "2048"]
        words = [sys.executable, *COMMANDS[command], *game, *ARGUMENTS, "--output-dir", str(tmp_path / str(attempt))]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not catches_signals(process):
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 1.5))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGINT, 130, 0), stderr  # by the signal: the interpreter was exiting
        assert "Traceback" not in stderr
        assert "Exception ignored" not in stderr


def test_terminated_background_run_keeps_its_episodes(tmp_path: Path) -> None:
    options = ["eval", "2048", "--size", "64", "--max-turns", "60", "--policy", "random", "--workers", "1"]
    options += ["--concurrency", "4", "--videos", "0", "--no-report"]
    command = [sys.executable, "-m", "vlmgym", *options, "--episodes", "5000", "--output-dir", "o"]
    process = subprocess.Popen([*IN_BACKGROUND, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    log, until = tmp_path / "o" / "episodes.jsonl", time.monotonic() + 120
    while time.monotonic() < until and not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in stderr
    match = re.search(r"\ninterrupted; (\d+) finished episodes are in .*; continue with --resume .*\n$", stderr)
    assert match is not None
    finished = [episode.seed for episode in read_run(tmp_path / "o").episodes if episode.score is not None]
    assert len(finished) == int(match[1]) >= 3


@pytest.mark.slow
def test_interrupted_videos_are_written_by_resuming(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "vlmgym", "eval", "2048", "--policy", "random", "--workers", "1"]
    process = subprocess.Popen([*command, "--output-dir", "o"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("o/videos/*.mp4")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1].endswith(f"; write what is missing with --resume {tmp_path / 'o'}")


@pytest.mark.slow
def test_interrupted_samples_continue_in_their_folder(tmp_path: Path) -> None:
    options = ["eval", "2048", "--policy", "random", "--size", "64", "--videos", "0", "--no-report", "--samples", "2"]
    command = [sys.executable, "-m", "vlmgym", *options, "--episodes", "30"]
    process = subprocess.Popen([*command, "--output-dir", "o"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "o/2/episodes.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "interrupted; continue with the same options and --resume o"
    subprocess.run([*command, "--resume", "o"], cwd=tmp_path, check=True)
    assert [len(read_run(tmp_path / "o" / number).episodes) for number in "12"] == [30, 30]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder on a 600 kB disk, and a command prefix. Without root, the prefix limits file sizes instead."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mount.returncode:
        yield folder, ["bash", "-c", 'ulimit -f 8; exec "$@"', "bash"]
        return
    yield folder, []
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("arguments", "place", "workers"),
    [
        pytest.param(["--size", "64", "--max-turns", "30", "--episodes", "60"], "episodes.jsonl", 0, id="records"),
        pytest.param(
            ["--size", "320", "--max-turns", "40", "--episodes", "8"],
            "videos/2048_",
            2,
            id="videos",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_full_disk_is_reported_in_one_sentence(
    arguments: list[str], place: str, workers: int, small_disk: tuple[Path, list[str]]
) -> None:
    folder, start = small_disk
    command = [*start, sys.executable, "-m", "vlmgym", "eval", "2048", *arguments, "--workers", str(workers)]
    done = subprocess.run(
        [*command, "--output-dir", str(folder / "o")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot write {folder}/o/{place if not start else ''}")
    assert len(read_run(folder / "o").episodes) > 0
