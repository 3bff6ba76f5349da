"""End-to-end evaluations of a tiny checkpoint with a real vLLM, as a server and offline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import no_process_left, processes, read_proc
from tests.serving import START_SECONDS, Server, variables
from tests.training import ROOT, TRAIN, run_training, training_python
from vlmgym.evaluation import RunFolder, read_run
from vlmgym.runs.record import EpisodeRecord, TurnRecord

pytestmark = pytest.mark.slow

EPISODES, TOKENS = 4, 15
SAME = ["--size", "96", "--episodes", str(EPISODES), "--temperature", "0", "--max-tokens", str(TOKENS)]
SAME += ["--workers", "1", "--videos", "0", "--no-report", "--chat", "--history-images", "1"]
VLLM = ["--policy", "vllm", "--dtype", "float32", "--gpu-memory-utilization", "0.3", "--engine-args"]
VLLM += ['{"enforce_eager": true, "max_num_seqs": 16, "limit_mm_per_prompt": {"image": 2, "video": 0}}']
"""Options that make vLLM reserve little memory and compile nothing."""


def evaluation(program: Sequence[str], *args: str, code: int = 0) -> str:
    """Run an evaluation, check its exit code and return its standard error."""
    done = subprocess.run(
        [*program, *args], cwd=ROOT, env=variables(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def serving_vlmgym() -> list[str]:
    training_python()
    return [str(ROOT / TRAIN / "bin" / "vlmgym"), "eval"]


def records(folder: Path) -> Mapping[tuple[str, int], EpisodeRecord]:
    return {record.key: record for record in read_run(RunFolder(folder)).episodes}


def check_turns(turns: Sequence[TurnRecord], shortest: int = 200) -> None:
    """Check that all turns are unparsable, and have a finish reason, token counts and a latency."""
    for turn in turns:
        assert turn.outcome == "unparsable"
        assert turn.finish_reason in ("length", "stop")
        assert turn.completion_tokens is not None
        assert (turn.completion_tokens == TOKENS) == (turn.finish_reason == "length")
        assert turn.prompt_tokens is not None
        assert shortest < turn.prompt_tokens < 450
        assert turn.latency is not None


@pytest.fixture(scope="module")
def served(vllm_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run eval_2048.py on the server; return the folder of the run."""
    out = tmp_path_factory.mktemp("served") / "run"
    script = [sys.executable, "vlmgym/test/eval_2048.py", "--policy", "openai", "--base-url", vllm_server.base_url]
    evaluation(script, "--model", vllm_server.model, *SAME, "--max-turns", "2", "--output-dir", str(out))
    return out


def test_eval_2048_against_the_server(served: Path) -> None:
    played = records(served)
    assert [seed for _, seed in sorted(played)] == list(range(EPISODES))
    for record in played.values():
        assert (record.status, record.score, len(record.turns)) == ("turn limit", 0, 2)
        check_turns(record.turns)
        assert [turn.requests for turn in record.turns] == [1, 1]
    summary = json.loads((served / "summary.json").read_text())
    turns = [turn for record in played.values() for turn in record.turns]
    assert summary["games"]["2048-v0"]["completion_tokens"] == sum(turn.completion_tokens or 0 for turn in turns)
    assert summary["games"]["2048-v0"]["unfinished"] == {}


def test_transformers_matches_the_server(served: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--policy", "transformers", "--model", str(tiny_checkpoint), "--dtype", "float32", "--batch-size", "3"]
    evaluation(serving_vlmgym(), "2048", *options, *SAME, "--max-turns", "2", "--output-dir", str(out))
    local, remote = records(out), records(served)
    assert local.keys() == remote.keys()
    for key, record in local.items():
        check_turns(record.turns)
        for here, there in zip(record.turns, remote[key].turns, strict=True):
            # vLLM omits the first bytes of a character that exceeds the token limit.
            assert here.response.rstrip("�") == there.response.rstrip("�")
            assert (here.prompt_tokens, here.completion_tokens) == (there.prompt_tokens, there.completion_tokens)


def test_offline_vllm_matches_the_server_and_rejects_overlong_prompts(
    served: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    remote = records(served)
    # A context that is long enough for 2048, but not for Shisen-Sho.
    limit = TOKENS + max(record.turns[0].prompt_tokens or 0 for record in remote.values())
    options = [*VLLM, "--model", str(tiny_checkpoint), "--max-model-len", str(limit), *SAME, "--max-turns", "1"]
    with no_process_left() as mark:
        stderr = evaluation([*mark, *serving_vlmgym()], "2048", "shisensho", *options, "--output-dir", str(out), code=1)
    assert f"{EPISODES} episodes have no score" in stderr
    assert "Traceback" not in stderr
    for (game, seed), record in records(out).items():
        if game == "2048-v0":
            check_turns(record.turns)
            assert record.score == 0
            assert record.turns[0].response == remote[game, seed].turns[0].response
            assert record.turns[0].prompt_tokens == remote[game, seed].turns[0].prompt_tokens
        else:
            assert (record.status, record.score, record.turns) == ("error", None, ())
            assert record.end_reason.startswith(
                f"vLLM rejected the prompt: This model's maximum context length is {limit}"
            )


def test_qwen2_5_vl_plays_until_vllm_dies(tmp_path: Path) -> None:
    """Questions with a special token fail alone, and finished episodes are kept."""
    model, out = tmp_path / "model", tmp_path / "run"
    run_training("-m", "tests.tiny_model", "qwen2_5_vl", str(model))
    Image.new("RGB", (64, 64), (80, 0, 0)).save(tmp_path / "image.png")
    asked = ("Which colour has shape {}?", "Is shape {} red?", "What does the tag <|image_pad|> mean for shape {}?")
    rows = [{"image": "image.png", "question": asked[n % 3].format(n), "answer": "red"} for n in range(600)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    args = ["vqa", "--config", f"data={tmp_path / 'rows.jsonl'}", "--all-rows", *VLLM, "--model", str(model)]
    args += ["--max-tokens", str(TOKENS), "--size", "96", "--workers", "1", "--videos", "0", "--no-report"]
    args += ["--max-model-len", "1024", "--concurrency", "2", "--output-dir", str(out)]
    with no_process_left() as mark:
        command = [*mark, *serving_vlmgym(), *args]
        with subprocess.Popen(command, cwd=ROOT, env=variables(), stderr=subprocess.PIPE, text=True) as run:
            until = time.monotonic() + START_SECONDS
            while not (out / "episodes.jsonl").exists() or (out / "episodes.jsonl").read_bytes().count(b"\n") < 12:
                assert run.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
            (engine,) = [
                pid
                for pid in processes()
                if "EngineCore" in read_proc(pid, "cmdline") and f"\nPPid:\t{run.pid}\n" in read_proc(pid, "status")
            ]
            os.kill(engine, signal.SIGKILL)
            _, stderr = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "error: vLLM died" in stderr
    assert f"--resume {out}" in stderr
    played = list(records(out).values())
    finished = [record for record in played if record.score is not None]
    assert len(finished) >= 3
    for record in finished:
        check_turns(record.turns, shortest=20)
    errors = {record.end_reason for record in played if record.status == "error"}
    assert "the prompt contains <|image_pad|>, a special token of the model" in errors
