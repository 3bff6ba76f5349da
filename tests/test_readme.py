"""Commands in the README and guides run in the order shown."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api_server import Answer, ApiServer, Request, completion, well_behaved
from tests.commands import in_process
from tests.doc_pages import blocks
from tests.sighted import Model
from tests.test_bench_model import streamed
from vlmgym.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
GUIDES = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("evaluating", "environments", "adding_a_game")]
PAGES = "\n".join([README, *GUIDES])
COMMANDS = list(
    dict.fromkeys(
        command.partition("  #")[0].strip()
        for block in re.split(r"^```.*?^```$", PAGES, flags=re.MULTILINE | re.DOTALL)
        for command in re.findall(r"^ {4}((?:\.venv|bash).*)$", block, re.MULTILINE)
    )
)
STAND_INS = {
    "http://localhost:8000/v1": "{server}",
    "--provider gemini": "--provider gemini --base-url {server}",
    "--provider ollama": "--provider ollama --base-url {server}",
    "bash setup.sh && ": "",  # tested by test_setup.py
}
"""Replacements for parts of commands."""
NOT_RUN = {
    'bash setup.sh --dev && .venv/bin/python -m pytest -n 3 --dist loadgroup -m "not slow"': "runs these tests",
    ".venv/bin/python -m pip install -e '.[openai]'": "changes the environment of the tests",
    ".venv-train/bin/python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-VL-3B-Instruct --port 8000": (
        "needs weights; tests/serving.py starts the same server with a tiny model"
    ),
    ".venv-train/bin/vlmgym eval --as-trained checkpoints/2048 --policy transformers": (
        "needs a checkpoint; tested by tests/in_training/test_as_trained.py"
    ),
    "bash training/scripts/evaluate.sh checkpoints/2048 Qwen/Qwen2.5-VL-7B-Instruct 100": (
        "needs weights; tested by test_easyr1.py"
    ),
    "bash setup.sh --train": "tested by test_setup.py",
    "bash training/scripts/local_2048.sh": "takes minutes; tested by test_training_scripts.py",
    "bash training/scripts/rl_shisensho.sh --check": "needs .venv-easyr1; tested by test_training_scripts.py",
    "bash training/scripts/rl_shisensho.sh": "needs 4 GPUs",
    ".venv/bin/vlmgym view logs": "serves until Ctrl-C; tested by test_view.py",
}
"""Commands that are not run, with the reason."""
MISSING = {
    ".venv-train/bin/vlmgym eval 2048 --policy vllm --model Qwen/Qwen2.5-VL-3B-Instruct": "the vllm policy needs vllm",
    ".venv-train/bin/vlmgym eval 2048 --policy transformers --model Qwen/Qwen2.5-VL-3B-Instruct": (
        "the transformers policy needs torch"
    ),
}
"""Commands that end with an error about a missing package, and how the error begins."""
SHORT = {
    r"vlmgym eval |/eval_\w+\.py": {"--episodes": 2, "--max-turns": 4, "--videos": 1},
    r"vlmgym eval (?!--curriculum)|/eval_\w+\.py": {"--size": 160},
    r"vlmgym (eval|report|verify|export|compare) |/eval_\w+\.py": {"--workers": 0},
    r"vlmgym bench-model (?!.*--prompt)": {"--seconds": 1},
}
"""Options that make commands faster, by pattern; added unless a command sets them itself."""


def model(request: Request) -> Answer:
    """Respond as a model would, streamed if requested."""
    if "Which digit" in str(request.body["messages"]):
        return Model()(request)
    if request.body.get("stream"):
        return streamed("<answer>", "up</answer>")
    return well_behaved(request) if "2048" in request.texts[0] else completion("<answer>(1, 1)</answer>")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the project, with a Python environment at the documented path."""
    ignore = shutil.ignore_patterns("__pycache__", "logs", "videos")
    shutil.copytree(ROOT / "vlmgym", tmp_path / "vlmgym", ignore=ignore)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    for code in blocks(ROOT / "docs" / "evaluating.md", "python"):
        if named := re.match(r"# (\w+\.py)$", code, re.MULTILINE):
            (tmp_path / named[1]).write_text(code)
    return tmp_path


@pytest.mark.slow
def test_commands_run_in_order(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run commands as documented, but with fewer episodes: vlmgym in this process, others in a shell."""
    assert {*NOT_RUN, *MISSING} <= {*COMMANDS}
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("GEMINI_API_KEY", "of-no-account")
    with ApiServer(model).running() as server:
        for command in COMMANDS:
            if command in NOT_RUN:
                continue
            pasted = command
            for part, stand_in in STAND_INS.items():
                pasted = pasted.replace(part, stand_in.replace("{server}", server.url))
            for pattern, options in SHORT.items():
                if re.search(pattern, pasted):
                    pasted += "".join(f" {option} {n}" for option, n in options.items() if option not in pasted)
            code, errors = run(pasted, capsys)
            if command in MISSING:
                assert errors.startswith(f"error: {MISSING[command]}"), command
            else:
                assert code == 0, f"{command}\n{errors}"
            assert "Traceback" not in errors, command


def run(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run a command line; return its exit code and its errors."""
    if match := re.match(r"\.venv(-train)?/bin/vlmgym ", command):
        done = in_process(lambda: main(shlex.split(command[match.end() :])), capsys)
        return done.code, done.err
    variables = {**os.environ, "PYTHONPATH": str(Path.cwd()), "PYTHONWARNINGS": "error"}
    finished = subprocess.run(command, shell=True, env=variables, capture_output=True, text=True, check=False)
    return finished.returncode, finished.stderr


def test_readme_and_the_site_show_the_same_adapters() -> None:
    index = (ROOT / "docs" / "integrations" / "index.md").read_text()
    shown, expected = (re.findall(r"^\| \[.*", page, re.MULTILINE) for page in (index, README))
    assert shown == [row.replace("docs/integrations/", "") for row in expected if "docs/integrations/" in row]


def test_links_of_the_readme_exist() -> None:
    """Sphinx checks the other pages."""
    links = re.findall(r"\]\((?!http)([^)#\s]+)", README) + re.findall(
        r"\b(?:assets|examples|vlmgym)/[\w/]+\.\w+", README
    )
    assert len(links) > 20
    assert [link for link in map("".join, links) if not (ROOT / link).exists()] == []
