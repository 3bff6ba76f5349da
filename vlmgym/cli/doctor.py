"""`vlmgym doctor`: print the versions that results depend on, the machine, and the extras with their missing
packages.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from rich.table import Table

from vlmgym.errors import pip_install
from vlmgym.runs.record import versions
from vlmgym.terminal import make_console

EXTRAS = {
    "openai": "models behind an OpenAI-compatible API",
    "data": "data in Parquet, at URLs and on the Hugging Face Hub",
    "cloud": "data in Amazon S3 and Google Cloud Storage",
    "tasks": "built-in photographs and handwritten digits",
    "atari": "Atari games (GPL-2.0)",
    "transformers": "local checkpoints without a server",
    "train": "training on one machine",
    "trl": "training with TRL",
    "verifiers": "evaluation and training with verifiers and prime-rl",
    "inspect": "evaluation with inspect_ai",
    "openenv": "serving games with OpenEnv",
    "skyrl": "training with SkyRL-gym",
    "verl": "training with verl",
    "lmms-eval": "evaluation with lmms-eval",
    "log": "live logging to TensorBoard and Weights & Biases",
    "ray": "worker processes on several machines",
}
"""Extras for users, and what each extra adds."""


@dataclass(frozen=True)
class DoctorConfig:
    """Options of `vlmgym doctor`."""


def doctor(config: DoctorConfig) -> None:
    """Run `vlmgym doctor`."""
    console = make_console()
    console.print(", ".join(f"{name} {number}" for name, number in versions().items()), soft_wrap=True)
    console.print(f"{platform.platform()}, {os.cpu_count()} cores, {_gpus()}", soft_wrap=True)
    table = Table("extra", "adds", "state")
    for extra, adds in EXTRAS.items():
        packages = missing(extra)
        table.add_row(extra, adds, f"missing: {', '.join(packages)}" if packages else "installed")
    console.print(table)
    console.print(f"Install an extra with {pip_install('vlmgym[NAME]')}", soft_wrap=True)


def missing(extra: str) -> list[str]:
    """Return the requirements of an extra that are missing, or installed in a version that does not meet them."""
    lacking = []
    for requirement in map(Requirement, requires("vlmgym") or ()):
        marker, requirement.marker = requirement.marker, None
        if marker is None or not marker.evaluate({"extra": extra}) or marker.evaluate({"extra": ""}):
            continue  # of another extra, or always required
        if requirement.name == "vlmgym":
            lacking += [package for other in requirement.extras for package in missing(other)]
            continue
        try:
            satisfied = requirement.specifier.contains(version(requirement.name), prereleases=True)
        except PackageNotFoundError:
            satisfied = False
        if not satisfied:
            lacking.append(str(requirement))
    return list(dict.fromkeys(lacking))


def _gpus() -> str:
    if (tool := shutil.which("nvidia-smi")) is None:
        return "no NVIDIA GPU"
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    gpus = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    return "; ".join(gpus) or "no NVIDIA GPU"
