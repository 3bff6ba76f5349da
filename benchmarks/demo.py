"""Repeat the demo of `local_2048.sh` with other seeds, algorithms and controls, and write its page.

    .venv-train/bin/python -m benchmarks.demo                 # 5 seeds: about 40 minutes on two cores
    .venv-train/bin/python -m benchmarks.demo --seeds 7

For each seed, the preset `demo` trains a start by SFT, GRPO from it, and a control with more SFT. PPO and a control
with permuted rewards continue the same start. Another control learns from grey images throughout. Finished runs in the
output folder are not repeated. Writes docs/learning/demo.md and its image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.learning.parts import COLOURS
from benchmarks.learning.running import train
from benchmarks.markdown import table, wrapped
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import make_console, parse_options, reporting_errors

START, MORE, GRPO, PPO = "start", "more SFT", "GRPO", "PPO"
PERMUTED, BLANK = "GRPO, permuted rewards", "GRPO, grey images"
ARMS = (START, MORE, GRPO, PPO, PERMUTED, BLANK)
PAGE = """\
# What RL adds to a tiny model

Written by `.venv-train/bin/python -m benchmarks.demo`; `bash training/scripts/local_2048.sh --seed SEED` runs the first
three rows of a seed.

The model answers with a single move of 2048 on a 3x3 board with tiles up to 8, in states where the direction matters.
A response is right if its move merges tiles; half of all moves do. Demonstrations teach a tiny Qwen3-VL to read the
board, to reason and to answer. Three answers in ten are an expert's and the others are random, so that two thirds
merge tiles. All other rows of a seed continue this *start*, except the last:

| row | trained with |
|---|---|
| {MORE} | more demonstrations of the same player, for at least as much CPU time as GRPO |
| {GRPO}, {PPO} | {steps} steps of 128 responses, with a reward of 1 for a merge |
| {PERMUTED} | the same, but rewards are permuted among the eight responses to a state |
| {BLANK} | SFT and GRPO on grey images, also in evaluation |

Shares of right responses in {states} held-out states, the same for all rows of a seed, with 95% intervals. *Greedy* is
the most likely response. Where greedy responses are right from the start, RL makes sampling certain of what SFT taught;
it adds no new skill.

![shares of right responses by arm and seed](demo.png)

{table}

Gain of GRPO over more SFT, paired by state:

{gains}

The recipe was chosen on seeds 21 to 23.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and write the page."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Training seeds."""
    blank: int = 1
    """Number of seeds for which a model is also trained on grey images."""
    jobs: int = 2
    """Seeds to run in parallel."""
    output_dir: Path = Path("logs/demo")
    """Folder of all runs."""
    pages: Path = Path("docs/learning")
    """Folder of the page."""


Results = Mapping[str, Mapping[str, Any]]
"""Validation of each arm of a seed, with the keys `states` and `greedy`."""


def run_seed(seed: int, folder: Path, blank: bool) -> Results:
    """Train all arms of a seed; return their results on validation states."""
    common = ("--preset", "demo", "--processes", "1", "--seed", str(seed))
    demo = folder / f"{seed}"
    train(demo, *common)
    validation = read_validation(demo)
    results = {START: validation["before"], MORE: validation["control"], GRPO: validation["after"]}
    start = ("--model", str(demo / "sft" / "step_000000" / "model"), "--sft.steps", "0", "--sft.control-steps", "0")
    arms: dict[str, tuple[str, ...]] = {
        PPO: (*start, "--algorithm", "ppo"),
        PERMUTED: (*start, "--control", "permuted"),
    }
    if blank:
        arms[BLANK] = ("--control", "blank", "--sft.control-steps", "0", "--settings", "sft.gate=0")
    for arm, args in arms.items():
        run = folder / f"{seed}-{arm.lower().replace(', ', '-').replace(' ', '-')}"
        train(run, *common, *args)
        results[arm] = read_validation(run)["after"]
    return results


def read_validation(run: Path) -> Any:
    return json.loads((run / "result.json").read_text())["validation"]


def write_page(folder: Path, results: Mapping[int, Results], steps: int) -> Path:
    """Write the page and its image; return the path of the page."""
    rows, gains = [], []
    for seed, arms in results.items():
        for arm, result in arms.items():
            states, greedy = result["states"], result["greedy"]
            shares = [f"{states['perception']:.1%}", f"{states['format']:.1%}"]
            rows.append([arm, str(seed), shown(states), shown(greedy), *shares])
        gains.append([str(seed), paired(*(arms[arm]["states"]["successes"] for arm in (GRPO, MORE)))])
    draw(folder / "demo.png", results)
    text = PAGE.format(
        MORE=MORE,
        GRPO=GRPO,
        PPO=PPO,
        PERMUTED=PERMUTED,
        BLANK=BLANK,
        steps=steps,
        states=next(iter(results.values()))[START]["states"]["responses"],
        table=table(["", "seed", "sampled", "greedy", "perception", "format"], rows),
        gains=table(["seed", "GRPO minus more SFT"], gains),
    )
    page = folder / "demo.md"
    page.write_text(wrapped(text), encoding="utf-8")
    return page


def paired(treated: Sequence[float], control: Sequence[float]) -> str:
    """Format the mean difference of two arms in the same states, with its 95% interval."""
    differences = np.subtract(treated, control, dtype=float)
    low, high = confidence_interval([*map(float, differences)], unit_interval=False) or (np.nan, np.nan)
    return f"{np.mean(differences):+.1%} ({low:+.1%} to {high:+.1%})"


def shown(result: Mapping[str, Any]) -> str:
    low, high = result["success_ci"]
    return f"{result['success']:.1%} ({low:.1%} to {high:.1%})"


def draw(path: Path, results: Mapping[int, Results]) -> None:
    """Draw the share of right responses of each arm and seed: sampled as a filled point, greedy as an empty one."""
    figure = Figure(figsize=(8.6, 3.8), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for place, arm in enumerate(ARMS):
        for number, arms in enumerate(results.values()):
            if arm not in arms:
                continue
            x, states = place + 0.14 * (number - (len(results) - 1) / 2), arms[arm]["states"]
            low, high = states["success_ci"]
            axes.plot([x, x], [low, high], color=COLOURS[place], lw=1.4)
            axes.plot(x, states["success"], "o", ms=5, color=COLOURS[place])
            axes.plot(x, arms[arm]["greedy"]["success"], "o", ms=5, mfc="none", color=COLOURS[place], alpha=0.7)
    axes.set_xticks(range(len(ARMS)), [arm.replace(", ", ",\n") for arm in ARMS])
    axes.set_xlim(-0.5, len(ARMS) - 0.5)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_title("right responses, each point a seed: sampled (filled) and greedy (empty)", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, axis="y")
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.demo")
    folder = options.output_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        blank = options.seeds[: options.blank]
        results = [*pool.map(lambda seed: run_seed(seed, folder, seed in blank), options.seeds)]
    steps = json.loads((folder / f"{options.seeds[0]}" / "result.json").read_text())["total_steps"]
    page = write_page(options.pages, dict(zip(options.seeds, results)), steps)
    make_console().print(f"page    {page}", soft_wrap=True)


if __name__ == "__main__":
    with reporting_errors():
        main()
