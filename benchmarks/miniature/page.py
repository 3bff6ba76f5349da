"""Write the page: tables and figures of all existing results, and a list of the missing ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.learning.parts import COLOURS
from benchmarks.markdown import table, wrapped
from vlmgym.statistics import confidence_interval

from .cells import CONTROLLED, Cell, cells, policies_of
from .games import DEMONSTRATIONS, G1, GAMES, TURNS

Results = Mapping[Cell, Mapping[str, Any]]

NAME, WINDOW = "whole_games", 40
COMPARED = (DEMONSTRATIONS, "SFT only")
PAGE = """\
# A tiny model learns to play whole games

Written by `.venv-train/bin/python -m benchmarks.miniature`.

A randomly initialised Qwen3-VL of 0.3 million parameters learns to play from images alone, on a CPU. *G1* and *G0* are
named after the two recipes of the [G1 paper](../g1.md), which trains larger models. The run *{start}* is supervised
fine-tuning (SFT): the model imitates a player, writing the board, the reasons and a move. The player follows a simple
rule, but in 2048 and Shisen-Sho it makes a quarter of its moves at random. The other runs are:

| run | starts from | continues with |
|---|---|---|
| *G1* | {start} | reinforcement learning (RL) with GRPO or PPO |
| *SFT only* | {start} | more demonstrations |
| *SFT only, perfect player* | {start} | demonstrations without random moves |
| *G0* | 300 updates on demonstrations with grey images | the same RL as *G1* |

Demonstrations with grey images cannot teach perception. They are meant to teach the response format, but are not always
enough even for that. The lengths of the runs are:

| game | updates of {start} | steps of every other run |
|---|---|---|
{steps}

A step is one update, except that PPO makes four updates per step.

Every model plays {episodes} whole games of up to {turns} turns on held-out seeds, sampled at temperature 1, without
history. *Blank* and *shuffled* test a trained model with other images: grey ones, or those of another episode of the
same game at the same turn. Results are means over games with 95% intervals, separately for each training seed.

![whole games by run]({name}.png)

Red lines are goals that were set in advance.

{table}

Invalid turns: share of turns with an illegal or unparsable answer. Such an answer changes nothing, and no other move is
substituted. A model often repeats an illegal move on the unchanged board, up to the end of the game. Perception: share
of cells read correctly. Format: share of responses in the exact format. Minutes: wall-clock time of a run, excluding
the run it starts from, on two cores shared with other work; all runs in the tables took {hours:.1f} hours in total.
Runs used different versions of the code. Because these round differently, they give different models for the same seed.

The next table compares the run *G1, GRPO* with the runs without RL, by score in 2048, turns in Shisen-Sho and legal
swaps in Swap. Each figure is the mean difference over the same games, with its 95% interval. In Shisen-Sho, fewer turns
are better, so negative differences are improvements.

{gains}

Settings of 2048 were chosen on seed 0, partly by inspecting 80 of its held-out games played by an earlier model. Those
of Shisen-Sho and Swap were chosen after measuring held-out games of both seeds, so their results may be optimistic. RL
in these two games differs from that in 2048: episodes have four turns, rewards are not divided by their standard
deviation, and there is a KL penalty. With episodes of a single answer, models learned to repeat illegal answers. The
log describes what did not work: [2048](../log.md#whole-games-of-2048-small-steps-of-reasoning),
[Shisen-Sho](../log.md#shisen-sho-6x6-with-more-batches), [Swap](../log.md#swap-compare-tiles-place-by-place).

## Training curves

![perception and reward over training]({name}_training.png)

Perception accuracy and reward per response during training, on seed 0. The demonstrations that *G0* starts from are not
shown. Curves of demonstrations show single responses in the same 64 held-out states at every check; curves of RL show a
moving average over the training responses of {window} steps. Do not compare the levels of the two: the states differ,
and in Shisen-Sho and Swap, RL also includes later turns, with boards that an illegal answer left unchanged.
"""
MISSING = """
## Not run

{table}
"""


def write_page(results: Path) -> Path:
    """Write the page and its figures next to the folder of results; return the path of the page."""
    wanted = cells()
    found = {cell: result for cell in wanted if (result := cell.result(results)) is not None}
    shown = [game for game in GAMES if any(cell.game == game for cell in found)]
    _draw_games(results.with_name(f"{NAME}.png"), found, results, shown)
    _draw_training(results.with_name(f"{NAME}_training.png"), found, shown)
    missing: dict[tuple[str, str], list[str]] = {}
    for cell in wanted:
        if cell not in found:
            missing.setdefault((GAMES[cell.game].title, cell.run), []).append(str(cell.seed))
    text = PAGE.format(
        start=DEMONSTRATIONS,
        episodes=" or ".join(
            str(count) for count in sorted({len(result["true"]["score"]) for result in found.values()})
        ),
        steps="\n".join(f"| {game.title} | {game.batches:,} | {game.steps} |" for game in GAMES.values()),
        turns=TURNS,
        name=NAME,
        window=WINDOW,
        table="\n\n".join(_table(game, found, results) for game in shown),
        gains=table(["game", "seed", *(f"G1 minus {run}" for run in COMPARED)], _gains(found)),
        hours=sum(result["minutes"] for result in found.values()) / 60,
    )
    if missing:
        rows = [[*names, ", ".join(seeds)] for names, seeds in missing.items()]
        text += MISSING.format(table=table(["game", "run", "seeds"], rows))
    page = results.with_name(f"{NAME}.md")
    page.write_text(wrapped(text), encoding="utf-8")
    return page


def _table(name: str, found: Results, results: Path) -> str:
    game = GAMES[name]
    head = [game.title, "seed", *game.measures.values(), "invalid turns", "perception", "format", "minutes"]

    def numbers(one: Mapping[str, Any]) -> list[str]:
        return [*(_mean(one[measure]) for measure in game.measures), f"{one['illegal'] + one['unparsable']:.1%}"]

    rows = [[policy, "", *numbers(one), "", "", ""] for policy, one in policies_of(name, results).items()]
    for cell, result in found.items():
        if cell.game != name:
            continue
        for images in ("true", "blank", "shuffled"):
            if images in result:
                one = result[images]
                run = cell.run if images == "true" else f"{cell.run}, {images}"
                minutes = f"{result['minutes']:.1f}" if images == "true" else ""
                shares = [f"{one['perception']:.1%}", f"{one['format']:.1%}"]
                rows.append([run, str(cell.seed), *numbers(one), *shares, minutes])
    return table(head, rows)


def _gains(found: Results) -> list[list[str]]:
    """Compare G1 with its start and with more demonstrations, for each game and seed with results of all three."""
    rows = []
    for cell in sorted(found, key=lambda cell: [*GAMES].index(cell.game)):
        others = [replace(cell, run=run) for run in COMPARED]
        if cell.run == G1 and found.keys() >= {*others}:
            measure = next(iter(GAMES[cell.game].measures))
            own, *rest = (np.array(found[each]["true"][measure]) for each in (cell, *others))
            rows.append([GAMES[cell.game].title, str(cell.seed), *(_mean(own - other) for other in rest)])
    return rows


def _mean(numbers: Sequence[float]) -> str:
    mean, interval = float(np.mean(numbers)), confidence_interval(numbers, unit_interval=False)
    digits = 0 if mean >= 100 else 1
    shown = "" if interval is None else f" ({interval[0]:.{digits}f} to {interval[1]:.{digits}f})"
    return f"{mean:.{digits}f}{shown}"


def _draw_games(path: Path, found: Results, results: Path, games: Sequence[str]) -> None:
    """Draw the mean of each run and seed as a point with an error bar, and the mean of each policy as a line."""
    figure = Figure(figsize=(1 + 4.6 * len(games), 4.4), dpi=130, layout="constrained")
    for number, name in enumerate(games):
        axes, game = figure.add_subplot(1, len(games), number + 1), GAMES[name]
        measure, label = next(iter(game.measures.items()))
        bars = [(run, "true") for run in game.runs if any((cell.game, cell.run) == (name, run) for cell in found)]
        if CONTROLLED in found and name == CONTROLLED.game:
            bars += [(G1, images) for images in ("blank", "shuffled")]
        for place, (run, images) in enumerate(bars):
            ones = [result[images] for cell, result in found.items()
                    if (cell.game, cell.run) == (name, run) and images in result]  # fmt: skip
            for shift, one in enumerate(ones):
                mean, interval = np.mean(one[measure]), confidence_interval(one[measure], unit_interval=False)
                x = place + 0.14 * (shift - (len(ones) - 1) / 2)
                colour = COLOURS[0 if run.startswith("G1") and images == "true" else 1 if "G0" in run else 4]
                axes.errorbar(x, mean, 0 if interval is None else interval[1] - mean, fmt="o", ms=4, color=colour)
        lines: dict[float, list[str]] = {}
        for policy, one in policies_of(name, results).items():
            lines.setdefault(float(np.mean(one[measure])), []).append(policy)
        for value, policies in lines.items():
            _line(axes, value, ", ".join(policies))
        if game.goal is not None:
            _line(axes, game.goal, "goal", "tab:red")
        axes.set_xticks(range(len(bars)), [run if images == "true" else f"{run}, {images}" for run, images in bars],
                        rotation=40, ha="right", fontsize=8)  # fmt: skip
        axes.set_xlim(-0.5, len(bars) - 0.5)
        axes.set_title(f"{game.title}: {label}", loc="left", fontsize=10, weight="bold")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _line(axes: Axes, value: float, label: str, colour: str = "black") -> None:
    axes.axhline(value, color=colour, lw=0.8, ls=":")
    axes.annotate(
        label, (1, value), xycoords=("axes fraction", "data"), fontsize=7, ha="right", va="bottom", color=colour
    )


def _draw_training(path: Path, found: Results, games: Sequence[str]) -> None:
    """Draw perception and reward of seed 0; the steps of a run are drawn after the run that it continues."""
    figure = Figure(figsize=(1 + 4.6 * len(games), 5.6), dpi=130, layout="constrained")
    for number, name in enumerate(games):
        runs = {cell.run: result["curve"] for cell, result in found.items() if cell.game == name and cell.seed == 0}
        for line, metric in enumerate(("perception", "reward")):
            axes = figure.add_subplot(2, len(games), 1 + number + line * len(games))
            for colour, (run, curve) in zip(COLOURS, runs.items()):
                first = runs.get(GAMES[name].runs[run].start or "", [{"step": 0}])[-1]["step"]
                steps, values = [row["step"] + first for row in curve], [row[metric] for row in curve]
                window = WINDOW if len(values) > WINDOW else 1
                smooth = np.convolve(values, np.ones(window) / window, mode="valid")
                axes.plot(steps[window - 1 :], smooth, color=colour, lw=1.6, label=run)
            axes.set_ylabel(metric)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.25)
        axes.set_xlabel("steps")
        figure.axes[2 * number].set_title(GAMES[name].title, loc="left", fontsize=10, weight="bold")
        if runs:
            figure.axes[2 * number].legend(frameon=False, fontsize=8)
    figure.savefig(path)
