"""Does training on more games help on new games and skins? Train tiny models on 1, 4 and 16 games and write the page.

    .venv-train/bin/python -m benchmarks.transfer --results logs/transfer_results     # about an hour of a core
    .venv-train/bin/python -m benchmarks.transfer     # the page of the committed results

With each seed, a tiny model is trained by SFT on demonstrations of the oracles of 1, 4 or 16 games, for as many batches
in all, and then on three held-out games. The results of a seed are a small file in `--results`, and are not measured
again. Writes docs/learning/transfer.md and its image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.learning.parts import COLOURS, share, style_shares
from benchmarks.learning.running import once, train
from benchmarks.markdown import publish, table
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.drawing.skins import SkinName, apply_skin
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config
from vlmgym.training.engine.actor import Actor
from vlmgym.training.validation import validate, validation_episodes

GAMES = (
    *("lightsout", "tictactoe", "sudoku", "maze"),
    *("stacks", "packing", "nonogram", "laser", "pegs", "wordsearch", "solitaire", "minesweeper"),
    *("sokoban", "jigsaw", "2048", "corridors"),
)
HELD_OUT = ("sliding", "parking", "snake")
COUNTS = (0, 1, 4, 16)
"""Numbers of games to train on, the first of `GAMES`; with 0, the model starts at random on the held-out games."""
SKINS: tuple[SkinName, ...] = get_args(SkinName)
STATES = 192
BATCHES, TUNING = 600, 120
COMMON = (
    *("--preset", "tiny", "--size", "96", "--perception", "1", "--reasoning", "1", "--processes", "1"),
    *("--config", "prompt=Write the board, your reasons and a move.", "--states.mover", "random-legal"),
    *("--states.moves", "0", "4", "--states.no-informative", "--sft.expert", "oracle", "--sft.accuracy", "1"),
    *("--steps", "0", "--evaluation.states", "0", "--evaluation.episodes", "0", "--rollout.max-tokens", "160"),
    *("--settings", "sft.gate=0", "sft.random_turns=0", "reward.shaping=sign"),
)
TINY = ("tiny.vocabulary=1500", "tiny.words=400")
"""Further settings of the base model."""
PAGE = """\
# Does variety help?

Written by `.venv-train/bin/python -m benchmarks.transfer`.

A tiny Qwen3-VL (0.3 million parameters) is trained on demonstrations of oracles at level 1: of {first} alone, of 4
games, or of 16 ({games}), for {batches} batches in all cases, so more games mean fewer demonstrations of each. Then it
is trained on three games that it has not seen, {held_out}, for {tuning} batches. *0 games* starts there with a random
model. Vocabulary and prompt are the same for all. {seeds} seeds; intervals are 95% intervals over {states} held-out
states of each seed, pooled, with the most likely response to each.

## New games

{games_table}

*Cells read* is the share of cells in `<perception>` that are right, also by chance; *legal* is the share of responses
with a legal move. *Before* is without any demonstration of the new games.

## New skins

Share of cells of {first} that are read in five [skins](../evaluating.md), of which all models have seen only `flat`:

{skins_table}

![cells read in new games and skins, by number of games](transfer.png)

Variety helps somewhat in new games: with as few demonstrations of them, models that know 4 or 16 games read more of
their cells than one that knows only lights out, which does no better than a random model. 16 games are hardly better
than 4. Without demonstrations of a game, no model reads its board.

In new skins, 4 games do about as well as lights out alone. With 16, which leave lights out a sixteenth of the batches,
models are misled more, most by a photographed screen. Lights out alone with as few batches, more batches, larger
models, other orders of games, and training in several skins were not tried.

These results are from before level 1 had `relief`; today's command draws raised figures.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and write the page."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Training seeds."""
    jobs: int = 2
    """Seeds to run in parallel."""
    output_dir: Path = Path("logs/transfer")
    """Folder of training runs."""
    results: Path = Path("docs/learning/transfer")
    """Folder of results; the page and its image are written next to it."""


Skills = Mapping[str, Sequence[float]]
"""`read` and `legal` of each response."""
Results = Mapping[str, Mapping[str, Skills]]
"""By number of games: `before` and `after` training on the held-out games, and each skin."""


def run_seed(seed: int, folder: Path) -> Results:
    """Train and measure all models of a seed."""
    common, results = (*COMMON, "--seed", str(seed)), dict[str, dict[str, Skills]]()
    for count in COUNTS:
        model = folder / "base" / "tiny"
        skills = results[str(count)] = {}
        if count:
            run = folder / f"{seed}-{count}"
            train(run, *common, "--games", *GAMES[:count], "--model", str(model), "--sft.steps", str(BATCHES))
            model = run / "model"
            skills |= {skin: measure(model, (*common, "--games", GAMES[0]), skin) for skin in SKINS}
        new_games = (*common, "--games", *HELD_OUT)
        skills["before"] = measure(model, new_games)
        tuned_run = folder / f"{seed}-{count}-tuned"
        train(tuned_run, *new_games, "--model", str(model), "--sft.steps", str(TUNING))
        skills["after"] = measure(tuned_run / "model", new_games)
    return results


def measure(model: Path, args: Sequence[str], skin: SkinName = "flat") -> Skills:
    """Measure a model's most likely responses in the validation states of a seed, in a skin."""
    config = read_config(args)
    curriculum = config.make_curriculum()
    episodes = validation_episodes(config, curriculum, curriculum.begin(), STATES)
    for number, episode in enumerate(episodes):
        images = [apply_skin(image, skin, number) for image in episode.observation.images]
        episode.observation = episode.observation._replace(images=images)
    validate(Actor(model, config.model), config, episodes, temperature=0.0)
    turns = [episode.turns[0] for episode in episodes]
    return {
        "read": [round(turn.reward.perception or 0.0, 4) for turn in turns],
        "legal": [float(turn.outcome is Outcome.PLAYED) for turn in turns],
    }


def write_page(folder: Path) -> None:
    """Write the page and its image from all existing results."""
    results: list[Results] = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]

    def pooled(count: int, part: str, skill: str) -> list[float]:
        return [value for result in results for value in result[str(count)][part][skill]]

    columns = [(part, skill) for part in ("before", "after") for skill in ("read", "legal")]
    new_games = [[str(count), *(share(pooled(count, *column)) for column in columns)] for count in COUNTS]
    skins = [[str(count), *(share(pooled(count, skin, "read")) for skin in SKINS)] for count in COUNTS[1:]]
    draw(folder.with_suffix(".png"), results)
    text = PAGE.format(
        first=GAMES[0],
        games=", ".join(GAMES),
        batches=BATCHES,
        tuning=TUNING,
        held_out=", ".join(HELD_OUT),
        seeds=len(results),
        states=STATES,
        games_table=table(
            ["games", "cells read, before", "legal, before", "cells read, after", "legal, after"], new_games
        ),
        skins_table=table(["games", *SKINS], skins),
    )
    publish(folder.with_suffix(".md"), text)


def draw(path: Path, results: Sequence[Results]) -> None:
    """Draw the cells read by number of games, each point a seed: in new games on the left, in skins on the right."""
    figure = Figure(figsize=(9.6, 3.6), dpi=120, layout="constrained")
    games, skins = figure.subplots(1, 2)
    for axes, parts, counts in ((games, ("before", "after"), COUNTS), (skins, SKINS, COUNTS[1:])):
        for colour, part in zip(COLOURS, parts):
            means = np.array([[np.mean(result[str(count)][part]["read"]) for count in counts] for result in results])
            axes.plot(range(len(counts)), means.mean(0), color=colour, lw=1.6, label=part)
            axes.plot(range(len(counts)), means.T, "o", color=colour, ms=4)
        axes.set_xticks(range(len(counts)), counts)
        axes.set_xlabel("games trained on", fontsize=9)
        style_shares(axes)
        axes.legend(frameon=False, fontsize=8)
    games.set_title("cells read in new games", loc="left", fontsize=10)
    skins.set_title(f"cells of {GAMES[0]} read in skins", loc="left", fontsize=10)
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.transfer")
    torch.set_num_threads(1)
    folder = options.output_dir.resolve()
    options.results.mkdir(parents=True, exist_ok=True)
    missing = [seed for seed in options.seeds if not (options.results / f"{seed}.json").exists()]
    if missing:  # the untrained model, whose vocabulary covers all games
        train(folder / "base", *COMMON, *TINY, "--games", *GAMES, *HELD_OUT, "--seed", "100", "--sft.steps", "1")
    with ThreadPoolExecutor(options.jobs) as pool:
        [*pool.map(lambda seed: once(options.results / f"{seed}.json", lambda: run_seed(seed, folder)), missing)]
    write_page(options.results)


if __name__ == "__main__":
    with reporting_errors():
        main()
