"""training/scripts/evaluate.sh with a real vLLM and a tiny checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.processes import no_process_left, processes, read_proc
from tests.training import ROOT, run_training, training_python
from vlmgym.evaluation import RunFolder, read_run

pytestmark = pytest.mark.slow

GAME = ["2048", "--size", "96", "--max-turns", "2", "--max-tokens", "8", "--temperature", "0"]
GAME += ["--workers", "1", "--videos", "0", "--no-report"]


def start(folder: Path, mark: list[str], *args: str | Path) -> subprocess.Popen[str]:
    """Start the script, with the mark in the environment of all its processes."""
    training_python()
    variables = {"VLLM_CACHE_ROOT": str(folder / "cache"), "VLLM_CONFIG_ROOT": str(folder / "config")}
    variables |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "OUT": str(folder / "out")}
    variables["HTTP_PROXY"] = "http://127.0.0.1:9"  # no proxy is there: this machine is reached directly
    command = [*mark, "bash", str(ROOT / "training" / "scripts" / "evaluate.sh"), *map(str, args)]
    return subprocess.Popen(
        command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_models_are_served_evaluated_and_compared(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The trained model is a Qwen3.5, whose linear attention vLLM runs on a CPU only in bfloat16, its default here."""
    qwen3_5 = tmp_path / "qwen3_5"
    run_training("-m", "tests.tiny_model", "qwen3_5", str(qwen3_5))
    with no_process_left() as mark:
        process = start(tmp_path, mark, qwen3_5, tiny_checkpoint, "2", *GAME)
        output, _ = process.communicate(timeout=900)
    assert process.returncode == 0, output[-3000:]
    for name in ("trained", "baseline"):
        run = read_run(RunFolder(tmp_path / "out" / name))
        assert run.config.policy.model == name
        assert [(episode.seed, episode.status) for episode in run.episodes] == [(0, "turn limit"), (1, "turn limit")]
    comparison = json.loads((tmp_path / "out" / "compare" / "compare.json").read_text())
    assert comparison["games"]["2048-v0"]["pairs"] == 2


def test_the_server_is_stopped_with_the_script(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with no_process_left() as mark:
        process = start(tmp_path, mark, tiny_checkpoint, tiny_checkpoint, "2", *GAME)
        until = time.monotonic() + 60
        while not any(
            "api_server" in read_proc(pid, "cmdline") and mark[1] in read_proc(pid, "environ") for pid in processes()
        ):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
