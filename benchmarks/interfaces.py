"""Train tiny models with other prompts and answers, and write docs/learning/interfaces.md.

    .venv-train/bin/python -m benchmarks.interfaces     # about an hour of two cores; afterwards the page alone

For each variant and seed, demonstrations of an imperfect player teach a model from scratch, and GRPO continues it. The
results of a run are a small file in `--results`, and are not measured again, so the command can be stopped and
continued.
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

from benchmarks.demo import GRPO, START, paired, read_part
from benchmarks.learning.parts import COLOURS, draw_arm, share, style_shares
from benchmarks.learning.running import once, train
from benchmarks.markdown import publish, table
from vlmgym.runs.store import read_run
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config

SEEDS = (0, 1, 2)
PLAIN = "plain"
PARTS = {START: "before", GRPO: "after"}


@dataclass(frozen=True)
class Game:
    """A game to train on.

    Attributes:
        title: Title in tables and figures.
        args: Options of all runs.
        variants: Options of each variant besides `plain`.
    """

    title: str
    args: tuple[str, ...]
    variants: Mapping[str, tuple[str, ...]]


BOARD = ("rows=3", "columns=3", "theme=dark", "similarity=0.0")
GAMES = {
    "2048": Game(
        "2048 on 3x3",
        (
            *("--config", *BOARD, "goal=64", "prompt={prompt}", "--states.moves", "0", "40"),
            *("--sft.accuracy", "0", "--evaluation.max-turns", "40"),
        ),
        {
            "no rules": ("--no-rules",),
            "no feedback": ("--no-feedback",),
            "legal actions": ("--show-legal",),
        },
    ),
    "lightsout": Game(
        "Lights out on 3x3",
        (
            *(
                "--config",
                *BOARD,
                "presses=2",
                "prompt=Write the lamps, the presses that switch them off, and a press.",
            ),
            *("--states.moves", "0", "0", "--states.no-informative", "--states.mover", "random-legal"),
            *("--sft.expert", "oracle", "--sft.accuracy", "0.4", "--evaluation.max-turns", "12"),
        ),
        {
            "goal image": ("--goal-image",),
            "clicks": ("--interface", "click"),
            "2 actions": ("--actions", "2"),
        },
    ),
}
COMMON = (
    *("--preset", "demo", "--processes", "1", "--record-interval", "0", "--sft.control-steps", "0"),
    *("--sft.steps", "600", "--steps", "40", "--rollout.max-tokens", "100"),
    *("--evaluation.states", "256", "--evaluation.episodes", "50"),
    *("--settings", "reward.reasoning_weight=0", "sft.target=2"),
)
PAGE = """\
# Other prompts and answers

Written by `.venv-train/bin/python -m benchmarks.interfaces`.

What changes if prompts say less or more ([scaffolding](../protocols.md#scaffolding)), or if answers are clicks or
several actions ([how](../protocols.md#actions-per-turn-and-clicks))? For each row and seed, a randomly initialised
Qwen3-VL of 0.3 million parameters learns from {sft} batches of demonstrations with these prompts and answers; in 2048,
all their moves are random, and in lights out {accuracy:.0%} are the oracle's and the others random. GRPO continues this
*start* for {steps} steps of {batch} responses, with a reward of 1 for a right response.

*Right* responses are those of 256 held-out states, sampled at temperature 1 or *greedy*, with 95% intervals over
states, pooled over {seeds} seeds. Whole games are 50 per seed on held-out boards, sampled, with up to {turns}
responses: their mean score, the share of responses that were played, and the responses per game.

![right responses before and after GRPO by row](interfaces.png)

{tables}

Differences from the row *plain* after GRPO, by seed, paired by state; the last column is the difference of the mean
scores of whole games, paired by game:

{differences}

{conclusion}
"""
CONCLUSION = """\
Two actions are the only variant that helps in all seeds: the score of lights out is 1.8 times as high, with 0.6 times
as many responses, although single responses are right about as often. Clicks are learned as well as cells: better in
two seeds, worse in one.

Rules and feedback make no difference that all seeds agree on, as one expects of a model that learns from scratch and
for which the rules are the same words in every prompt. In one seed, GRPO without feedback plays only half of the
responses of whole games (`played`) and loses a third of the score: nothing tells the model that its last answer was
illegal, and the same board comes again. A list of legal actions is worse or equal in all seeds: the model must learn
to read it, and responds no more often with a legal action than without it. A goal image, here the same dark lamps for
all boards, costs right responses in two seeds.

Seeds differ by up to 30 points, more than most variants, and the model is far from one that reads: what large models
gain from rules, lists or goal images, which VisGym and Gym-V measured ([protocols](../protocols.md#scaffolding)),
cannot be seen here.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and write the page."""

    jobs: int = 2
    """Runs in parallel."""
    output_dir: Path = Path("logs/interfaces")
    """Folder of training runs."""
    results: Path = Path("docs/learning/interfaces")
    """Folder of results; the page and its image are written next to it."""


Results = dict[str, dict[str, Any]]
"""Results of the parts of a run, start and GRPO: `states`, `greedy` and `games`."""


def run_args(name: str, variant: str, seed: int) -> tuple[str, ...]:
    """Return the options of a run."""
    game = GAMES[name]
    return (*COMMON, "--games", name, *game.args, *game.variants.get(variant, ()), "--seed", str(seed))


def run_variant(name: str, variant: str, seed: int, folder: Path) -> Results:
    """Train a variant and return its results."""
    train(folder, *run_args(name, variant, seed))
    return {
        title: read_part(folder, part) | {"games": read_games(folder / "evaluation" / part)}
        for title, part in PARTS.items()
    }


def read_games(run: Path) -> dict[str, list[float]]:
    """Return the score, the number of responses and the share of played ones of each whole game."""
    episodes = read_run(run).episodes
    played = [np.mean([turn.outcome is Outcome.PLAYED for turn in episode.turns]) for episode in episodes]
    return {
        "score": [episode.score for episode in episodes if episode.score is not None],
        "responses": [len(episode.turns) for episode in episodes],
        "played": [float(share) for share in played],
    }


def rows_of(game: Game) -> list[str]:
    return [PLAIN, *game.variants]


def pooled(runs: Sequence[Results], part: str, kind: str, name: str) -> list[float]:
    """Return values of all seeds: the successes in `states` or in `greedy` ones, or a fact of `games`."""
    return [float(value) for run in runs for value in run[part][kind][name]]


def mean(values: Sequence[float]) -> str:
    """Format a mean and its 95% interval."""
    interval = confidence_interval(values, unit_interval=False)
    return f"{np.mean(values):.3g}" + ("" if interval is None else " ({:.3g} to {:.3g})".format(*interval))


def write_page(results: Path) -> None:
    """Write the page and its image from the results of all games."""
    stored = {
        name: {
            row: [json.loads((results / stem(name, row, seed)).read_text()) for seed in SEEDS] for row in rows_of(game)
        }
        for name, game in GAMES.items()
    }
    tables, differences = [], []
    for name, rows in stored.items():
        lines = [
            [
                *(row, part),
                *(share(pooled(runs, part, kind, "successes")) for kind in ("states", "greedy")),
                f"{np.mean([run[part]['states']['perception'] for run in runs]):.1%}",
                *(mean(pooled(runs, part, "games", fact)) for fact in ("score", "played", "responses")),
            ]
            for row, runs in rows.items()
            for part in PARTS
        ]
        head = (GAMES[name].title, "", "right", "greedy", "perception", "score", "played", "responses")
        tables.append(table(head, lines))
        differences += [
            [
                *(GAMES[name].title, row, str(seed)),
                *(
                    paired(run[GRPO][kind]["successes"], plain[GRPO][kind]["successes"])
                    for kind in ("states", "greedy")
                ),
                mean(np.subtract(run[GRPO]["games"]["score"], plain[GRPO]["games"]["score"]).tolist()),
            ]
            for row in GAMES[name].variants
            for seed, run, plain in zip(SEEDS, rows[row], rows[PLAIN])
        ]
    draw(results.with_suffix(".png"), stored)
    config = read_config(run_args("lightsout", PLAIN, 0))
    text = PAGE.format(
        sft=config.sft.steps,
        accuracy=config.sft.accuracy,
        steps=config.steps,
        batch=config.batch_size,
        seeds=len(SEEDS),
        turns=" and ".join(f"{read_config(run_args(name, PLAIN, 0)).evaluation.max_turns}" for name in GAMES),
        tables="\n\n".join(tables),
        differences=table(["", "", "seed", "right", "greedy", "score"], differences),
        conclusion=CONCLUSION,
    )
    publish(results.with_suffix(".md"), text)


def draw(path: Path, stored: Mapping[str, Mapping[str, Sequence[Results]]]) -> None:
    """Draw the right responses of each row and seed: of the start in grey, and after GRPO in colour."""
    figure = Figure(figsize=(10.4, 3.8), dpi=120, layout="constrained")
    for axes, (name, rows) in zip(figure.subplots(1, len(stored)), stored.items()):
        for place, runs in enumerate(rows.values()):
            for number, run in enumerate(runs):
                x = place + 0.22 * (number - (len(runs) - 1) / 2)
                draw_arm(axes, x - 0.05, run[START], "tab:gray")
                draw_arm(axes, x + 0.05, run[GRPO], COLOURS[place % 4])
        axes.set_xticks(range(len(rows)), list(rows))
        axes.set_title(f"{GAMES[name].title}: right responses", loc="left", fontsize=10)
        style_shares(axes)
    figure.supxlabel("sampled (filled) and greedy (empty); start in grey, GRPO in colour; three seeds each", fontsize=9)
    figure.savefig(path)


def stem(name: str, variant: str, seed: int) -> str:
    """Return the name of a run's file of results."""
    return f"{name}-{variant.replace(' ', '-')}-{seed}.json"


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.interfaces")
    folder, results = options.output_dir.resolve(), options.results
    results.mkdir(parents=True, exist_ok=True)

    def run(item: tuple[int, str, str]) -> None:
        seed, name, variant = item
        path = results / stem(name, variant, seed)
        once(path, lambda: run_variant(name, variant, seed, folder / path.stem))

    with ThreadPoolExecutor(options.jobs) as pool:
        [*pool.map(run, [(seed, name, row) for seed in SEEDS for name in GAMES for row in rows_of(GAMES[name])])]
    write_page(results)


if __name__ == "__main__":
    with reporting_errors():
        main()
