"""A real vLLM server with a tiny checkpoint, in .venv-train."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.training import VARIABLES, training_python

START_SECONDS = 600.0
"""Time limit for starting, in seconds; starting takes 40 to 70 s on two idle cores."""


@dataclass(frozen=True)
class Server:
    """Address (up to /v1) of a server, and the name of its model."""

    base_url: str
    model: str = "tiny"


@contextmanager
def serve(checkpoint: Path, folder: Path) -> Iterator[Server]:
    """Start a server, with log and caches in `folder`; stop all its processes at the end."""
    port, python = _free_port(), str(training_python())
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint)]
    command += ["--served-model-name", Server.model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "float32", "--max-model-len", "4096", "--max-num-seqs", "32", "--enforce-eager"]
    command += ["--limit-mm-per-prompt", '{"image": 4, "video": 0}']
    command += ["--gpu-memory-utilization", "0.3"]  # on a CPU, this is the share of its memory that must be free
    log = folder / "vllm.log"
    environment = variables(VLLM_CACHE_ROOT=str(folder / "cache"), VLLM_CONFIG_ROOT=str(folder / "config"))
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}/health", log)
            yield Server(f"http://127.0.0.1:{port}/v1")
        finally:
            _stop(process)


def variables(**more: str) -> dict[str, str]:
    """Return the environment variables of a process that stays offline and sends no usage statistics."""
    quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return {**os.environ, **VARIABLES, **quiet, **more}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], health: str, log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with direct.open(health, timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    what = "does not answer" if process.poll() is None else f"ended with exit code {process.returncode}"
    pytest.fail(f"the server {what}; the end of its log:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # in case a process of the server is left
