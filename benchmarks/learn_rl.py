"""Train with examples/grpo.py as docs/learn_rl.md does; write the figures of the page and print responses.

.venv-train/bin/python -m vlmgym train --preset demo --steps 0 --sft.control-steps 0 --output-dir logs/start
.venv-train/bin/python -m benchmarks.learn_rl --start logs/start/model
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from benchmarks.learning.running import ROOT
from vlmgym import Episode, RewardConfig, make_episodes
from vlmgym.policies.base import Reply
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.terminal import parse_options, reporting_errors

SIGN = RewardConfig(shaping="sign")
CONFIG: dict[str, Any] = {"rows": 3, "columns": 3, "goal": 16, "size": 96, "theme": "dark", "similarity": 0.0}
PROMPT = "Write the board, what merges, and a move that merges."


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and write the figures."""

    start: Path
    """Model to start from."""
    output_dir: Path = Path("logs/learn_rl")
    """Folder of the trained model and its log."""
    pages: Path = Path("docs/learning")
    """Folder of the figures."""


def main() -> None:
    """Run the example."""
    options = parse_options(Options, None, prog="python -m benchmarks.learn_rl")
    log = options.output_dir / "log.txt"
    config = CONFIG | {"prompt": PROMPT}
    if not log.exists():
        args = ["--model", str(options.start), "--config", json.dumps(config), "--reward", '{"shaping": "sign"}']
        args += ["--moves", "20", "--informative", "--tokens", "80", "--states", "16", "--lr", "3e-4", "--steps", "40"]
        args += ["--micro-batch", "128", "--output-dir", str(options.output_dir)]
        command = [sys.executable, str(ROOT / "examples" / "grpo.py"), *args]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        log.write_text(process.stdout)
    rewards = [float(reward) for reward in re.findall(r"reward (\S+),", log.read_text())]
    draw_rewards(options.pages / "learn_rl.png", rewards)
    states = {"moves": (0, 20), "informative": True}
    episodes = [*make_episodes("2048", 256, seed=10**9, states=states, reward=SIGN, **config)]
    requests = [GenerationRequest(episode.images, episode.prompt, seed=seed) for seed, episode in enumerate(episodes)]
    merges: dict[Path, list[bool]] = {}
    responses: dict[Path, list[str]] = {}
    for folder in (options.start, options.output_dir):
        replies = LocalModel(str(folder), device="cpu").generate(requests, 80, temperature=1.0)
        responses[folder] = [reply.text for reply in replies if isinstance(reply, Reply)]
        restored = [Episode.restore(episode.snapshot()) for episode in episodes]
        merges[folder] = [episode.respond(text).game > 0 for episode, text in zip(restored, responses[folder])]
    learned = np.greater(merges[options.output_dir], merges[options.start])
    example = int(np.argmax(learned))  # the first board that only the trained model solves
    board = Image.fromarray(episodes[example].images[0]).resize((288, 288), Image.Resampling.NEAREST)
    board.save(options.pages / "learn_rl_board.png")
    print(episodes[example].prompt)
    for folder, rights in merges.items():
        print(f"\n{folder}: {np.mean(rights):.0%} of {len(rights)} moves merge\n{responses[folder][example]}")


def draw_rewards(path: Path, rewards: list[float]) -> None:
    """Plot the mean reward of each step, and the mean of the last five."""
    figure = Figure(figsize=(7, 3.2), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    steps = range(1, len(rewards) + 1)
    axes.plot(steps, rewards, lw=0.9, alpha=0.4, color="tab:blue")
    axes.plot(steps, [np.mean(rewards[max(0, step - 5) : step]) for step in steps], lw=2.2, color="tab:blue")
    axes.set_ylim(0, 1)
    axes.set_xlabel("step")
    axes.set_title("mean reward of 128 responses", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(path)


if __name__ == "__main__":
    with reporting_errors():
        main()
