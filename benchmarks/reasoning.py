"""Compare GRPO with and without a reward for true statements, and write docs/learning/reasoning.md.

    .venv-train/bin/python -m benchmarks.reasoning --results logs/reasoning_results     # about half an hour of a core
    .venv-train/bin/python -m benchmarks.reasoning     # the page of the committed results

With each seed, the preset `demo` makes a start by SFT, and GRPO continues it with and without the reward, on the same
states. The results of a run are a small file in `--results`, and are not measured again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.demo import START, paired
from benchmarks.learning.parts import COLOURS, share, style_shares
from benchmarks.learning.running import once, sampled_and_greedy, train_here
from benchmarks.markdown import publish, table
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config

OUTCOME, REASONING = "outcome", "outcome and statements"
REWARDS: dict[str, tuple[str, ...]] = {OUTCOME: ("--settings", "reward.reasoning_weight=0"), REASONING: ()}
ARMS = (START, *REWARDS)
SEEDS = (0, 1, 2)
STATES = 512
SILENT = ("--sft.control-steps", "0", "--evaluation.states", "0", "--evaluation.episodes", "0")
PAGE = """\
# A reward for true reasoning

Written by `.venv-train/bin/python -m benchmarks.reasoning`.

Responses in [the demo](demo.md) state for every row and column of a 3x3 board of 2048 what merges, and then answer.
These statements are [checked](../protocols.md#checked-statements). If GRPO rewards the move alone, it may get right
moves out of false statements. What if `reward.reasoning_weight` 0.5, as in the demo, also rewards the share of true
statements?

With each seed, demonstrations with random moves teach a start, and GRPO continues it with either reward for {steps}
steps of {batch} responses, on the same states. All figures are of {states} held-out states per seed, with one response
each, pooled over {seeds} seeds, sampled at temperature 1 or the most likely one (*greedy*). *True statements* is their
share in a response, 0 without any; *all true* is the share of responses with true statements only, and *wrong reason*
the share with a false one among right responses that make statements.

![share of responses that are right, and of right ones with a false statement](reasoning.png)

{tables}

Differences that the reward for statements makes, paired by state:

{differences}

**Rewarding the move alone makes the reasoning false**: more than half of the right responses then state something
false, and so do half of the greedy ones, nearly all of which stated the truth before. **With statements rewarded, they
stay about as true as they were**, and as many responses are right. They also state as much.

Other weights, other games, longer training and EasyR1 were not tried. Statements do not always matter: in 2048, a false
one about a row does not prevent the right choice of a column.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, measure and write the page."""

    output_dir: Path = Path("logs/reasoning")
    """Folder of training runs."""
    results: Path = Path("docs/learning/reasoning")
    """Folder of results; the page and its image are written next to it."""


Measured = Mapping[str, Mapping[str, Sequence[float]]]
"""For sampled and greedy responses: `right`, `true` (share of true statements, 0 without any) and `statements` (their
number) of each response."""


def arm_args(seed: int, arm: str) -> tuple[str, ...]:
    """Return the options of the run of an arm, except for its model."""
    common = ("--preset", "demo", "--processes", "1", "--record-interval", "0", "--seed", str(seed), *SILENT)
    return (*common, "--steps", "0") if arm == START else (*common, "--sft.steps", "0", *REWARDS[arm])


def measure(model: Path, seed: int) -> dict[str, dict[str, list[float]]]:
    """Measure a model in the validation states of a seed."""
    return {
        name: {
            "right": [float(turn.is_rewarded) for turn in turns],
            "true": [round(turn.reasoning_accuracy or 0.0, 4) for turn in turns],
            "statements": [float(turn.statements.checked) if turn.statements else 0.0 for turn in turns],
        }
        for name, turns in sampled_and_greedy(model, arm_args(seed, OUTCOME), STATES)
    }


def run_seed(seed: int, folder: Path, results: Path) -> None:
    """Train and measure the start and both arms."""
    start = folder / f"{seed}-start"
    for number, arm in enumerate(ARMS):
        run, model = (start, ()) if arm == START else (folder / f"{seed}-{number}", ("--model", str(start / "model")))
        train_here(run, *arm_args(seed, arm), *model)
        once(results / f"{seed}-{number}.json", lambda run=run: measure(run / "model", seed))  # type: ignore[misc]


def pooled(arms: Sequence[Measured], decoding: str, skill: str) -> list[float]:
    """Return a skill of all responses, or of all right ones if it is `wrong reason`."""
    values = []
    for arm in arms:
        parts = arm[decoding]
        all_true = [float(true == 1) for true in parts["true"]]
        if skill == "wrong reason":
            responses = zip(all_true, parts["right"], parts["statements"])
            values += [1 - true for true, right, count in responses if right and count]
        else:
            values += all_true if skill == "all true" else parts[skill]
    return values


def write_page(results: Path) -> None:
    """Write the page and its image."""
    stored: dict[str, list[Measured]] = {arm: [] for arm in ARMS}
    for seed in SEEDS:
        for number, arm in enumerate(ARMS):
            stored[arm].append(json.loads((results / f"{seed}-{number}.json").read_text()))
    tables, differences = [], []
    for decoding in ("sampled", "greedy"):
        rows = [
            [
                arm,
                *(share(pooled(arms, decoding, skill)) for skill in ("right", "true", "all true", "wrong reason")),
                f"{np.mean(pooled(arms, decoding, 'statements')):.1f}",
            ]
            for arm, arms in stored.items()
        ]
        head = [decoding, "right", "true statements", "all true", "wrong reason", "statements"]
        tables.append(table(head, rows))
        for seed in SEEDS:
            pairs = (
                paired(*(pooled([stored[arm][seed]], decoding, skill) for arm in (REASONING, OUTCOME)))
                for skill in ("right", "true", "all true")
            )
            differences.append([decoding, str(seed), *pairs])
    draw(results.with_suffix(".png"), stored)
    config = read_config(arm_args(0, OUTCOME))
    text = PAGE.format(
        steps=config.steps,
        batch=config.batch_size,
        states=STATES,
        seeds=len(SEEDS),
        tables="\n\n".join(tables),
        differences=table(["", "seed", "right", "true statements", "all true"], differences),
    )
    publish(results.with_suffix(".md"), text)


def draw(path: Path, stored: Mapping[str, Sequence[Measured]]) -> None:
    """Draw right responses on the left, and right ones for a wrong reason on the right, each point a seed."""
    figure = Figure(figsize=(9.0, 3.6), dpi=120, layout="constrained")
    titles = {"right": "right responses", "wrong reason": "right responses with a false statement"}
    for axes, (skill, title) in zip(figure.subplots(1, 2), titles.items()):
        for place, arms in enumerate(stored.values()):
            for number, measured in enumerate(arms):
                x, colour = place + 0.14 * (number - (len(arms) - 1) / 2), COLOURS[place]
                axes.plot(x, np.mean(pooled([measured], "sampled", skill)), "o", ms=5, color=colour)
                axes.plot(x, np.mean(pooled([measured], "greedy", skill)), "o", ms=5, mfc="none", color=colour)
        axes.set_xticks(range(len(ARMS)), [arm.replace(" and ", "\nand ") for arm in ARMS], fontsize=9)
        axes.set_xlim(-0.5, len(ARMS) - 0.5)
        axes.set_title(f"{title}\nsampled (filled), greedy (empty)", loc="left", fontsize=9)
        style_shares(axes)
        axes.set_ylim(-0.02, 1.02)
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.reasoning")
    torch.set_num_threads(1)
    options.results.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        if any(not (options.results / f"{seed}-{number}.json").exists() for number in range(len(ARMS))):
            run_seed(seed, options.output_dir.resolve(), options.results)
    write_page(options.results)


if __name__ == "__main__":
    with reporting_errors():
        main()
