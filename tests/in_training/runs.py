"""Command-line options for training runs of a few steps, and functions that read the runs' files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vlmgym.cli.main import main as run_command
from vlmgym.runs.record import EpisodeRecord

HERE = Path(__file__).parent
QUICK = ("--preset", str(HERE / "quick.toml"))
SMALL = ("--size", "96", "--config", "rows=3", "columns=3", "goal=16")
EPISODES = ("--max-turns", "2", "--history", "1", "--history-images", "1")
NO_EPISODES = ("--evaluation.episodes", "0")
SFT = ("--sft.steps", "2", "--settings", "sft.batch_size=4", "sft.gate=0")
PPO = ("--algorithm", "ppo", "--batch-size", "4")
VARIANTS = {
    "grpo": (*SMALL, *NO_EPISODES, "--update.kl-coef", "0.1"),
    "dr grpo, updates": (
        *(*SMALL, *NO_EPISODES, "--settings", "grpo.scale_rewards=false", "update.loss_over=constant"),
        *("--settings", "grpo.epochs=2", "grpo.minibatches=2", "grpo.clip_high=0.1", "grpo.entropy_coef=0.01"),
    ),
    "grpo, episodes": (
        *SMALL,
        *EPISODES,
        *NO_EPISODES,
        "--settings",
        "grpo.gamma=0.9",
        *("--update.micro-batch-size", "4", "--update.perception-coef", "0.1"),
    ),
    "ppo": (*SMALL, *EPISODES, *NO_EPISODES, *PPO, "--settings", "ppo.entropy_coef=0.01", "--observation", "text"),
    "ppo, tokens": (
        *(*SMALL, *NO_EPISODES, *PPO, "--settings", "ppo.gae_over=tokens"),
        *("--update.kl-coef", "0.1"),
    ),
    "lora, bfloat16": (
        *(*SMALL, *NO_EPISODES, "--lora", "4", "--dtype", "bfloat16", "--gradient-checkpointing"),
        *("--update.kl-coef", "0.1"),
    ),
    "distill": (*SMALL, *EPISODES, *NO_EPISODES, "--algorithm", "distill", "--distill.reward-coef", "0.5"),
    "dagger": (*SMALL, *EPISODES, *NO_EPISODES, "--algorithm", "dagger"),
    "blank": (*SMALL, *NO_EPISODES, "--control", "blank", "--update.schedule", "cosine"),
    "mixture": ("--games", "2048", "swap", "--reasoning", "1", "--size", "128", "--batch-size", "12"),
    "curriculum": ("--curriculum", str(HERE / "curriculum.toml"), *EPISODES, *NO_EPISODES, "--chat"),
}
"""Options of each variant of training."""


def main(args: Sequence[str]) -> None:
    """Run `vlmgym train`."""
    run_command(["train", *args])


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def curve(run: Path) -> list[dict[str, float]]:
    """Read the metrics of each step, except times."""
    lines = (run / "curve.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("seconds")} for line in lines]


def rollouts(run: Path) -> list[EpisodeRecord]:
    files = sorted((run / "rollouts").glob("step_*.jsonl"))
    return [EpisodeRecord.model_validate_json(line) for file in files for line in file.read_text().splitlines()]


def fail(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    """Run a command that fails; return its exit code and the last line of its standard error."""
    with pytest.raises(SystemExit) as raised:
        main(args)
    stderr = capsys.readouterr().err
    assert "Traceback" not in stderr
    return int(raised.value.code or 0), stderr.strip().splitlines()[-1]
