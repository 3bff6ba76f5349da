"""Compare GRPO with and without rewards for <perception> and <prediction>, and write docs/learning/prediction.md.

    .venv-train/bin/python -m benchmarks.prediction                  # all games and seeds
    .venv-train/bin/python -m benchmarks.prediction --games 2048     # part of it: about 20 minutes of a CPU core

Demonstrations of an imperfect player teach one base model per game, which also states the board after its move. With
each seed, GRPO continues it with each combination of rewards, on the same states. The results of a run are a small file
in `--results`, and are not measured again, so the command can be stopped and continued.
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
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config

NONE, PERCEPTION, PREDICTION, BOTH = "none", "perception", "prediction", "both"
WEIGHT = 0.5
REWARDS: dict[str, tuple[str, ...]] = {
    NONE: (),
    PERCEPTION: (f"reward.perception_weight={WEIGHT}",),
    PREDICTION: (f"reward.prediction_weight={WEIGHT}",),
    BOTH: (f"reward.perception_weight={WEIGHT}", f"reward.prediction_weight={WEIGHT}"),
}
"""Settings of each run: what is rewarded besides the game's own reward, which is 1 for a right response."""
ARMS = (START, *REWARDS)
SEEDS = (0, 1, 2)
STATES = 192
RL = ("--sft.steps", "0", "--batch-size", "128", "--steps", "40", "--update.lr", "3e-4", "--update.schedule", "cosine")
BASE = (
    *("--steps", "0"),
    *("--settings", "sft.target=0.95", "sft.check_interval=50", "sft.random_turns=0"),
)
"""The base model reads 95% of the cells, so that rewards can still improve perception."""


@dataclass(frozen=True)
class Game:
    """A game to train on, with a reward of 1 for a right response and 0 for others.

    Attributes:
        title: Title in tables and figures.
        right: What a right response does.
        args: Options of `vlmgym train`.
        base_steps: Maximum number of batches of demonstrations of the base model.
    """

    title: str
    right: str
    args: tuple[str, ...]
    base_steps: int = 1500


GAMES = {
    "2048": Game(
        "2048 on 3x3",
        "merges tiles",
        ("--config", "prompt=Write the board, what merges, a move that merges, and the board after it."),
    ),
    "sliding": Game(
        "Sliding tiles on 3x3",
        "moves a tile closer to its goal",
        (
            *("--config", "rows=3", "columns=3", "shuffle=12", "theme=dark", "similarity=0.0"),
            "prompt=Write the board, a move that brings a tile closer to its goal, and the board after it.",
            *("--states.moves", "0", "0"),
        ),
        base_steps=3000,
    ),
    "sokoban": Game(
        "Sokoban on 5x5",
        "pushes the box onto the target",
        (
            *("--config", "rows=5", "columns=5", "boxes=1", "similarity=0.0"),
            "prompt=Write the room, a move that pushes the box onto the target, and the room after it.",
            *("--size", "160", "--rollout.max-tokens", "150", "--sft.lr", "1e-3"),
            *("--states.moves", "20", "20", "--states.mover", "oracle"),
        ),
        base_steps=3000,
    ),
}
PAGE = """\
# Rewards for reading the board and for predicting the next one

Written by `.venv-train/bin/python -m benchmarks.prediction`.

With `--prediction`, a response states the board after its move before it answers; the rules score this `<prediction>`,
as they score `<perception>` ([protocols](../protocols.md#predictions)). Does it help to reward either?

A randomly initialised Qwen3-VL of 0.3 million parameters first learns from demonstrations of an imperfect player,
{accuracy} of whose answers are right and the others random, until it reads 95% of the cells of 64 states. This model is
the *start*, one per game. With each seed, GRPO continues it for {steps} steps of {batch} responses, with a reward of 1
for a right response and, by row, {weight} x the share of cells read correctly (`reward.perception_weight`), {weight} x
the share of changed cells predicted correctly (`reward.prediction_weight`), both, or none. All rows of a seed train on
the same states.

A response is right if it {rights}. All figures are of the same {states} held-out states per seed, pooled over {seeds}
seeds, with one response each, sampled at temperature 1 unless it is the most likely one (*greedy*). *Prediction* is the
share of changed cells that are predicted correctly after legal answers; the reward also counts illegal answers, as 0,
and therefore rewards legal ones.

![right responses, cells read and cells predicted by reward](prediction.png)

{tables}

Differences from GRPO without further rewards, in percentage points, paired by state. Intervals are over states; seeds
share the base model, so they do not show how much another start would change:

{differences}

{conclusion}
"""
CONCLUSION = """\
In 2048, a move slides many tiles, and the start predicts poorly. Rewarding predictions makes sampled ones more
accurate, and rewarding both also makes perception more accurate, but no reward changes how often a sampled response is
right, as far as the intervals can show. Even sampled predictions only approach the greedy ones of the start, which no
reward improves in these few steps: GRPO makes certain what demonstrations taught.

In sliding tiles, a move changes two cells, and the start predicts nine of ten. GRPO without further rewards makes
perception and prediction slightly worse; each reward improves both, and greedy predictions beyond the start's. Right
responses gain one or two points, in some rows just outside the intervals, which are not corrected for the number of
comparisons. Rewarding perception or prediction alone does about the same: both need the board to be read.

In Sokoban, the start reads and predicts nearly all, and greedily chooses right in every state. GRPO without further
rewards makes sampled responses right, but in two of three seeds they stop describing the room: perception falls to 11%
and 79%, and in the latter seed only 78% of the responses are right, instead of 92% to 94%. Either reward prevents this
in all seeds; rewarding predictions does so at least as well as rewarding perception.

Other weights, longer runs and responses without `<prediction>` were not compared. Sokoban's base model was trained with
a lower learning rate and in a lighter theme than the others: on 6x6 in the dark theme, at 3e-3, one read no more than
69% of the cells, which guessing reaches, after 750 batches."""
MISSING = """
## Not run

{table}
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, measure and write the page."""

    games: tuple[str, ...] = tuple(GAMES)
    """Games to train on."""
    seeds: tuple[int, ...] = SEEDS
    """Training seeds."""
    output_dir: Path = Path("logs/prediction")
    """Folder of training runs."""
    results: Path = Path("docs/learning/prediction")
    """Folder of results; the page and its image are written next to it."""

    def __post_init__(self) -> None:
        if unknown := {*self.games} - {*GAMES} or {*self.seeds} - {*SEEDS}:
            raise UsageError(f"unknown: {unknown.pop()!r}; games are {', '.join(GAMES)}, seeds {SEEDS}")


def common_args(name: str) -> tuple[str, ...]:
    """Return the options that all runs of a game share."""
    # The number of processes affects rounding, and so the results.
    shared = ("--processes", "1", "--record-interval", "0", "--sft.control-steps", "0", "--sft.accuracy", "0.4")
    silent = (
        "--update.perception-coef",
        "0",
        "--evaluation.states",
        "0",
        "--evaluation.episodes",
        "0",
        "--settings",
        "reward.shaping=sign",
        "reward.reasoning_weight=0",
    )
    return ("--preset", "demo", "--games", name, "--prediction", *GAMES[name].args, *shared, *silent)


def base_args(name: str) -> tuple[str, ...]:
    """Return the options of the base model's run."""
    return (*common_args(name), "--seed", "100", "--sft.steps", str(GAMES[name].base_steps), *BASE)


def arm_args(name: str, seed: int, arm: str) -> tuple[str, ...]:
    """Return the options of the run of an arm, except for its model."""
    settings = ("--settings", *REWARDS[arm]) if REWARDS[arm] else ()
    return (*common_args(name), "--seed", str(seed), *RL, *settings)


Measured = Mapping[str, Mapping[str, Sequence[float]]]
"""For sampled and greedy responses: `right`, `legal`, `perception` and, if stated, `prediction` of each response."""


def measure(model: Path, args: Sequence[str]) -> dict[str, dict[str, list[float]]]:
    """Measure a model in the validation states of a seed."""
    measured: dict[str, dict[str, list[float]]] = {}
    for name, turns in sampled_and_greedy(model, args, STATES):
        measured[name] = {
            "right": [int(turn.is_rewarded) for turn in turns],
            "legal": [int(turn.outcome is Outcome.PLAYED) for turn in turns],
            "perception": [round(turn.reward.perception or 0.0, 4) for turn in turns],
        }
        if read_config(args).prediction:
            measured[name]["prediction"] = [round(turn.reward.prediction or 0.0, 4) for turn in turns]
    return measured


def run_arm(name: str, seed: int, arm: str, folder: Path) -> Measured:
    """Train and measure an arm; the start is only measured. The first arm of a game also trains the base model."""
    train_here(folder / f"{name}-base", *base_args(name))
    base, args = folder / f"{name}-base" / "model", arm_args(name, seed, NONE if arm == START else arm)
    if arm == START:
        return measure(base, args)
    run = folder / f"{name}-{seed}-{arm}"
    train_here(run, *args, "--model", str(base))
    return measure(run / "model", args)


def read_results(results: Path) -> dict[str, dict[str, dict[int, Measured]]]:
    """Read the results by game, arm and seed, of the seeds with results of all arms."""
    stored: dict[str, dict[str, dict[int, Measured]]] = {}
    for name in GAMES:
        for seed in SEEDS:
            paths = {arm: results / f"{name}-{seed}-{arm}.json" for arm in ARMS}
            if all(path.exists() for path in paths.values()):
                for arm, path in paths.items():
                    stored.setdefault(name, {}).setdefault(arm, {})[seed] = json.loads(path.read_text())
    return stored


def pooled(seeds: Mapping[int, Measured], decoding: str, skill: str) -> list[float]:
    """Return a skill in the states of all seeds."""
    return [value for seed in sorted(seeds) for value in seeds[seed][decoding][skill]]


def after_legal(seeds: Mapping[int, Measured], decoding: str = "sampled") -> list[float]:
    """Return the accuracy of predictions after legal answers."""
    pairs = zip(pooled(seeds, decoding, "prediction"), pooled(seeds, decoding, "legal"))
    return [value for value, legal in pairs if legal]


def write_page(results: Path) -> None:
    """Write the page and its image from all existing results."""
    stored = read_results(results)
    tables, differences, missing = [], [], []
    for name, game in GAMES.items():
        arms = stored.get(name, {})
        missing += [[game.title, str(seed)] for seed in SEEDS if seed not in arms.get(START, {})]
        rows = []
        for arm, seeds in arms.items():
            right = [pooled(seeds, decoding, "right") for decoding in ("sampled", "greedy")]
            skills = [pooled(seeds, "sampled", "legal"), pooled(seeds, "sampled", "perception")]
            skills += [after_legal(seeds), after_legal(seeds, "greedy")]
            rows.append([arm, *map(share, right), *(f"{np.mean(values):.1%}" for values in skills)])
            if arm not in (START, NONE):
                pairs = (
                    paired(*(pooled(runs, decoding, skill) for runs in (seeds, arms[NONE])))
                    for decoding, skill in MEASURES
                )
                differences.append([game.title, arm, *pairs])
        if rows:
            head = [game.title, "right, sampled", "right, greedy", "legal", "perception", "prediction", "greedy"]
            tables.append(table(head, rows))
    draw(results.with_suffix(".png"), stored)
    config = read_config(arm_args("2048", 0, NONE))
    text = PAGE.format(
        accuracy=f"{config.sft.accuracy:.0%}",
        steps=config.steps,
        batch=config.batch_size,
        weight=WEIGHT,
        rights=" or ".join(f"{GAMES[name].right} in {GAMES[name].title}" for name in stored),
        states=STATES,
        seeds=max(len(arms[START]) for arms in stored.values()),
        tables="\n\n".join(tables),
        differences=table(
            ["game", "rewarded", "right, sampled", "right, greedy", "perception", "prediction, 0 if illegal"],
            differences,
        ),
        conclusion=CONCLUSION,
    )
    if missing:
        text += MISSING.format(table=table(["game", "seed"], missing))
    publish(results.with_suffix(".md"), text)


MEASURES = (("sampled", "right"), ("greedy", "right"), ("sampled", "perception"), ("sampled", "prediction"))
"""Decoding and skill of each column of differences."""


def draw(path: Path, stored: Mapping[str, Mapping[str, Mapping[int, Measured]]]) -> None:
    """Draw right responses above, and cells read and predicted below, a column per game, each point a seed."""
    figure = Figure(figsize=(1 + 3.4 * len(stored), 6.0), dpi=120, layout="constrained")
    for column, (name, arms) in enumerate(stored.items()):
        above, below = (figure.add_subplot(2, len(stored), 1 + column + row * len(stored)) for row in range(2))
        for arm, seeds in arms.items():
            for number, seed in enumerate(sorted(seeds)):
                x, colour = ARMS.index(arm) + 0.2 * (number - (len(seeds) - 1) / 2), COLOURS[ARMS.index(arm)]
                of_seed = {seed: seeds[seed]}
                sampled = pooled(of_seed, "sampled", "right")
                above.plot([x, x], [*(confidence_interval(sampled, unit_interval=True) or ())], color=colour, lw=1.4)
                above.plot(x, np.mean(sampled), "o", ms=5, color=colour)
                above.plot(x, np.mean(pooled(of_seed, "greedy", "right")), "o", ms=5, mfc="none", color=colour)
                below.plot(x, np.mean(pooled(of_seed, "sampled", "perception")), "o", ms=5, color=colour)
                below.plot(x, np.mean(after_legal(of_seed)), "s", ms=5, mfc="none", color=colour)
        above.set_title(f"{GAMES[name].title}\nright: sampled (filled), greedy (empty)", loc="left", fontsize=9)
        below.set_title("cells read (points), predicted (squares)", loc="left", fontsize=9)
        for axes in (above, below):
            axes.set_xticks(range(len(ARMS)), ARMS, fontsize=8)
            axes.set_xlim(-0.5, len(ARMS) - 0.5)
            style_shares(axes)
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.prediction")
    torch.set_num_threads(1)
    folder = options.output_dir.resolve()
    options.results.mkdir(parents=True, exist_ok=True)

    def run(name: str, seed: int, arm: str) -> None:
        once(options.results / f"{name}-{seed}-{arm}.json", lambda: run_arm(name, seed, arm, folder))

    for seed in options.seeds:
        for name in options.games:
            for arm in ARMS:
                run(name, seed, arm)
    write_page(options.results)


if __name__ == "__main__":
    with reporting_errors():
        main()
