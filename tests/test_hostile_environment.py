"""All commands work with unusual environment variables, without a home or a terminal, and in daemonic processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api_server import ApiServer

PROGRAM = """
import multiprocessing, sys
import numpy as np
from PIL import Image
from vlmgym.cli.main import main

PLAY = "--size 160 --episodes 2 --max-turns 3".split()

def commands(workers):
    yield ["eval", "2048", "swap", *PLAY, *workers, "--videos", "1", "--output-dir", "a"]
    yield ["eval", "2048", *PLAY, *workers, "--policy", "oracle", "--videos", "0", "--output-dir", "b"]
    server = ["--policy", "openai", "--base-url", sys.argv[2], "--model", "tiny"]
    yield ["eval", "2048", *PLAY, *workers, *server, "--no-report", "--videos", "0", "--output-dir", "c"]
    yield ["report", "a", *workers]
    yield ["verify", "a", *workers]
    yield ["rescore", "b", "--output-dir", "rescored"]
    yield ["compare", "a", "b", *workers, "--output-dir", "compared"]
    yield ["export", "b", *workers, "--format", "sharegpt", "--output-dir", "exported"]
    yield ["gallery", "2048", "--output", "gallery.html", "--size", "96"]
    yield ["bench", "2048", "--seconds", "0.1", "--envs", "2", *workers, "--size", "64"]
    yield ["data", "check", "vqa", "--config", "data=rows.csv"]
    yield ["games"]
    yield ["games", "2048"]
    yield ["doctor"]
    yield ["--help"]
    yield ["eval", "--help"]
    yield ["train", "--help"]

def run(workers):
    Image.new("RGB", (32, 32)).save("image.png")
    with open("rows.csv", "w") as rows:
        rows.write("image,question,answer\\nimage.png,What is it?,cat\\n")
    for words in commands(workers):
        try:
            main(words)
        except SystemExit as error:
            if error.code:
                raise SystemExit(f"{words}: {error.code}")
    from vlmgym.training.curves import draw_curves

    draw_curves([{"step": 1.0, "reward": 0.5}])

if __name__ == "__main__":
    if sys.argv[1] == "daemonic":
        process = multiprocessing.get_context("spawn").Process(target=run, args=([],), daemon=True)
        process.start()
        process.join()
        sys.exit(process.exitcode)
    run(["--workers", "0"])
"""
DEAD_PROXY = "http://127.0.0.1:9"
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy")
ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "minimal": {
        "HOME": None,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "0",
        "MPLBACKEND": "nonsense",
    },
    "notebook": {
        "HOME": "/proc",  # read-only
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        **dict.fromkeys(PROXIES, DEAD_PROXY),
    },
    "daemonic": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_all_commands_work(name: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **ENVIRONMENTS[name]}
    environment = {variable: value for variable, value in variables.items() if value is not None}
    with ApiServer().running() as server:
        command = [sys.executable, "program.py", name, server.url]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "a" / "report.html").is_file()
    assert "mean score" in done.stdout
