"""Commands, options and Python code in README and the guides are correct, and the links of all pages."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api_server import Answer, ApiServer, Request, completion, well_behaved
from tests.test_bench_model import streamed
from vlmgym.evaluation.config import EvalConfig
from vlmgym.rollout.limits import Budget

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
GUIDES = [(ROOT / "docs" / f"{name}.md").read_text() for name in ("evaluating", "environments", "adding_a_game")]
PAGES = "\n".join([README, *GUIDES])
PYTHON = list(dict.fromkeys(re.findall(r"^```python\n(.*?)^```$", PAGES, re.MULTILINE | re.DOTALL)))
COMMANDS = list(
    dict.fromkeys(
        command.partition("  #")[0].strip()
        for block in re.split(r"^```.*?^```$", PAGES, flags=re.MULTILINE | re.DOTALL)
        for command in re.findall(r"^ {4}((?:\.venv|bash).*)$", block, re.MULTILINE)
    )
)
STAND_INS = {
    "http://localhost:8000/v1": "{server}",
    "bash setup.sh && ": "",  # tested by test_setup.py
}
"""Replacements in commands."""
NOT_RUN = {
    "bash setup.sh --dev && .venv/bin/python -m pytest -n 2 --dist loadgroup": "runs these tests",
    ".venv/bin/python -m pip install -e '.[openai]'": "changes the environment of the tests",
    ".venv-serve/bin/python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-VL-3B-Instruct --port 8000": (
        "needs weights; tests/serving.py starts the same server with a tiny model"
    ),
    ".venv-serve/bin/vlmgym eval --as-trained checkpoints/2048 --policy transformers": (
        "needs a checkpoint; tested by tests/in_training/test_as_trained.py"
    ),
    "bash training/scripts/evaluate.sh checkpoints/2048 Qwen/Qwen2.5-VL-7B-Instruct 100": (
        "needs weights; tested by test_evaluate_script.py"
    ),
    "bash setup.sh --train": "tested by test_setup.py",
    "bash training/scripts/local_2048.sh": "takes minutes; tested by test_local_training.py",
    "bash training/scripts/rl_shisensho.sh --check": "needs .venv-train; tested by test_training_scripts.py",
    "bash training/scripts/rl_shisensho.sh": "needs 4 GPUs",
}
"""Commands that are not run, with the reason."""
MISSING = {
    ".venv-serve/bin/vlmgym eval 2048 --policy vllm --model Qwen/Qwen2.5-VL-3B-Instruct": "the vllm policy needs vllm",
    ".venv-serve/bin/vlmgym eval 2048 --policy transformers --model Qwen/Qwen2.5-VL-3B-Instruct": (
        "the transformers policy needs torch"
    ),
}
"""Commands that end with an error about a missing package."""
MOST_SECONDS = 600


def model(request: Request) -> Answer:
    """Answer as a model, streamed if requested."""
    if request.body.get("stream"):
        return streamed("<answer>", "up</answer>")
    return well_behaved(request) if "2048" in request.texts[0] else completion("<answer>(1, 1)</answer>")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the project, with environments at the documented paths."""
    ignore = shutil.ignore_patterns("__pycache__", "logs", "videos")
    shutil.copytree(ROOT / "vlmgym", tmp_path / "vlmgym", ignore=ignore)
    for environment in (".venv", ".venv-serve"):
        folder = tmp_path / environment / "bin"
        folder.mkdir(parents=True)
        python = shlex.quote(sys.executable)
        for name, command in (("python", python), ("vlmgym", f"{python} -m vlmgym")):
            (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (folder / name).chmod(0o755)
    for code in PYTHON:
        if named := re.match(r"# (\w+\.py)$", code, re.MULTILINE):
            (tmp_path / named[1]).write_text(code)
    return tmp_path


@pytest.mark.slow
def test_commands_run_in_order(checkout: Path) -> None:
    assert {*NOT_RUN, *MISSING} <= {*COMMANDS}
    variables = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONWARNINGS": "error"}
    with ApiServer(model).running() as server:
        for command in COMMANDS:
            if command in NOT_RUN:
                continue
            pasted = command
            for part, stand_in in STAND_INS.items():
                pasted = pasted.replace(part, stand_in.replace("{server}", server.url))
            done = subprocess.run(
                pasted,
                shell=True,
                cwd=checkout,
                env=variables,
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
                check=False,
            )
            if command in MISSING:
                assert done.stderr.startswith(f"error: {MISSING[command]}"), command
            else:
                assert done.returncode == 0, f"{command}\n{done.stderr}"
            assert "Traceback" not in done.stderr, command


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")], ids=lambda page: page.stem)
def test_links_and_anchors_exist(page: Path) -> None:
    text = re.sub(r"^(```|    ).*?$", "", page.read_text(), flags=re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("https://"):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_named_files_exist() -> None:
    named = re.findall(r"\b(?:vlmgym|assets|examples|docs|tests)/[\w/]+\.\w+", README)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_options_and_defaults() -> None:
    fields = [*dataclasses.fields(EvalConfig), *dataclasses.fields(Budget)]
    defaults = {field.name.replace("_", "-"): field.default for field in fields if field.name != "budget"}
    table = re.findall(r"^\| (`--.*?) \| (.*?) \|", PAGES, re.MULTILINE)
    documented: set[str] = set()
    for names, default in table:
        for option in re.findall(r"`--([a-z-]+)", names):
            documented.add(option.removeprefix("no-"))
            if default.isdecimal():
                assert defaults[option] == int(default), option
    options = {"config" if name == "overrides" else name for name in defaults}
    assert documented == options


def test_custom_game_is_the_example() -> None:
    example = (ROOT / "examples" / "lamps.py").read_text()
    assert example in PYTHON
    assert len(example.splitlines()) < 60


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.splitlines()[0])
def test_python_code_runs(code: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    environment = {"PYTHONPATH": str(ROOT / "examples")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
