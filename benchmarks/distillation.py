"""Compare on-policy distillation and DAgger with SFT and GRPO, and write docs/learning/distillation.md.

    .venv-train/bin/python -m benchmarks.distillation --results logs/distillation_results     # 80 minutes of a core
    .venv-train/bin/python -m benchmarks.distillation     # the page of the committed results

A tiny teacher learns 2048 on 3x3 from text. With each seed, a student learns from images until it reads most cells, but
moves at random; SFT on the teacher's demonstrations, GRPO and distillation continue it. The results of a seed are a
small file in `--results`, and are not measured again.
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
from numpy.typing import NDArray

from benchmarks.demo import (
    CONTROL_CURVE,
    GRPO,
    START,
    format_shares,
    gain,
    minutes_since_start,
    read_arm,
    read_part,
    read_seeds,
    read_validation,
)
from benchmarks.learning.parts import COLOURS, draw_arm, style_shares
from benchmarks.learning.running import once, train
from benchmarks.markdown import publish, table
from vlmgym.pages.training import CURVE, read_curve
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config

SFT, DAGGER, DISTILL, BOTH = "SFT", "DAgger", "distillation", "distillation and GRPO"
ARMS = (START, SFT, DAGGER, GRPO, DISTILL, BOTH)
DISTILL_ARGS = {DISTILL: (), BOTH: ("--distill.reward-coef", "1")}
DAGGER_ARGS = (
    *("--algorithm", "dagger", "--update.lr", "3e-3", "--update.perception-coef", "0"),
    *("--steps", "240", "--batch-size", "4", "--max-turns", "8"),
)
COMMON = (
    *("--preset", "demo", "--processes", "1", "--record-interval", "0", "--sft.control-steps", "0"),
    *("--config", "rows=3", "columns=3", "goal=64", "theme=dark", "similarity=0.0"),
    *("prompt=Write the board, what merges, and a move that merges.", "--states.moves", "0", "40"),
    *("--evaluation.episodes", "100", "--evaluation.max-turns", "60", "--settings", "reward.reasoning_weight=0"),
)
TEACHER = ("--observation", "text", "--sft.accuracy", "1", "--sft.steps", "600", "--steps", "0", "--seed", "100")
STUDENT = ("--sft.steps", "300", "--steps", "0", "--evaluation.states", "0", "--evaluation.episodes", "0")
READ = 0.95
"""Share of cells that a student must read."""
WINDOW = 5
"""Steps over which perception is averaged."""
PAGE = """\
# Learning from a teacher that reads

Written by `.venv-train/bin/python -m benchmarks.distillation`.

On-policy distillation ([Agarwal et al. 2024](https://arxiv.org/abs/2306.13649), [how](../training_local.md)) trains a
student on its own responses: a teacher, which reads the true state as text, says how likely each token should be. In
vlmgym, any state has a text, so a model that reads text can teach one that sees images.

The task is that of [the demo](demo.md), with tiles up to 32: a single move of 2048 on a 3x3 board that merges tiles.
The teacher, a tiny Qwen3-VL, learns from text and an expert's answers; {teacher} of its sampled responses are right.
The student, an equal model with the same tokens, sees images. Its *start* is 300 batches of demonstrations with random
moves. All other rows of a seed continue this start; except for DAgger, they take two to three minutes:

| row | trained with |
|---|---|
| {SFT} | 240 more batches of demonstrations, with the expert's answers that the teacher learned from |
| {DAGGER} | 240 steps of 32 of the expert's responses to the states that the student reaches in episodes of 8 turns \
(`--algorithm dagger`) |
| {GRPO} | 60 steps of 128 responses, with a reward of 1 for a merge and a supervised loss on the true board |
| {DISTILL} | 60 steps of 128 responses, without rewards: reverse KL divergence from the teacher |
| {BOTH} | the same, plus GRPO's loss (`--distill.reward-coef 1`), without the supervised loss |

Shares of right responses in 512 held-out states, with 95% intervals; *greedy* is the most likely response. *Whole
games* are mean scores of 100 held-out games up to the tile 64, with sampled responses, at most 60 of them; random play
scores {random}, the oracle {oracle}, and the teacher {teacher_games}. *Minutes* of training are those of two seeds at a
time on two cores, those of DAgger of three, beside other work; *minutes to read* are those until
{read:.0%} of the cells are read (mean of {window} steps except in SFT, which is checked every 60 batches).

![right responses by arm and seed, and cells read over time](distillation.png)

{table}

Difference of distillation from the other rows, paired by state:

{gains}

Where an expert's answers can be had, SFT on them is far better for the same time: each demonstration is right in every
token, and need not be sampled. Distillation teaches the student to read, without demonstrations, but in this time
hardly to choose; GRPO teaches neither to a start that misreads a quarter of the cells, unlike in [the demo](demo.md),
whose start reads all. Adding GRPO's loss to distillation changes little.

DAgger trains on as many of the expert's responses as SFT, but to states that the student reaches, in episodes. It is
nearly as good greedily (87% to 97% instead of 95% to 98%), but less certain of its moves (65% to 79% instead of 85% to
89% when sampled). One reason may be that the states of an episode resemble each other. Most of its time goes into
sampling the student's own moves.

Whole games agree: SFT reaches the teacher's score, DAgger 173 to 190 points, GRPO gains 16 to 31
points on its start, which plays no better than at random, and distillation gains nothing: -43, -15 and 1 points.

Distillation used a learning rate of 1e-3, the best of 3e-4, 1e-3 and 3e-3 in 30 steps of seed 0, with tiles up to 8;
GRPO used 3e-4, as in the demo. Longer runs, other mixtures of teacher and reward, and larger students were not tried.
All rows but DAgger were measured when the expert also chose illegal moves where no move merges.
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train and write the page."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Training seeds."""
    jobs: int = 2
    """Seeds to run in parallel."""
    output_dir: Path = Path("logs/distillation")
    """Folder of training runs."""
    results: Path = Path("docs/learning/distillation")
    """Folder of results; the page and its image are written next to it."""


Results = Mapping[str, Mapping[str, Any]]
"""Results of each arm of a seed: `states`, `greedy`, `minutes` and, except for the start, `reading`."""


def run_seed(seed: int, folder: Path) -> Results:
    """Train all arms of a seed; return their results."""
    teacher, student, common = folder / "teacher", folder / f"{seed}-start", (*COMMON, "--seed", str(seed))
    train(student, *common, "--model", str(teacher / "tiny"), *STUDENT)
    start = (*common, "--model", str(student / "model"), "--sft.steps", "0")
    grpo = folder / f"{seed}-grpo"
    train(grpo, *start, "--sft.accuracy", "1", "--sft.control-steps", "240")
    results = {
        START: read_part(grpo, "before") | whole_games(grpo, "before"),
        SFT: read_learner(grpo, "control", CONTROL_CURVE),
        GRPO: read_learner(grpo, "after", CURVE),
    }
    train(folder / f"{seed}-dagger", *start, *DAGGER_ARGS)
    results[DAGGER] = read_learner(folder / f"{seed}-dagger", "after", CURVE)
    for arm, args in DISTILL_ARGS.items():
        run = folder / f"{seed}-{arm.replace(' ', '-')}"
        teaching = ("--algorithm", "distill", "--distill.teacher", str(teacher / "model"), "--update.lr", "1e-3")
        train(run, *start, *teaching, "--update.perception-coef", "0", *args)
        results[arm] = read_learner(run, "after", CURVE)
    return results


def read_learner(run: Path, part: str, curve: str) -> dict[str, Any]:
    """Return the results of a part of a run: of its single moves, whole games, and reading over time."""
    return read_arm(run, part, curve) | whole_games(run, part) | {"reading": reading(run / curve)}


def whole_games(run: Path, part: str) -> dict[str, Any]:
    """Return the scores of whole games in a part of a run."""
    return {"games": read_validation(run)[part]["episodes"]["2048-v0"]}


def play() -> dict[str, Any]:
    """Score random play and the oracle on the games of the evaluation."""
    from vlmgym.training.evaluation import baseline_scores  # imports torch

    config = read_config(COMMON)
    curriculum = config.make_curriculum()
    return {policy: baseline_scores(config, curriculum, policy)["2048-v0"] for policy in ("random", "oracle")}


def reading(curve: Path) -> list[tuple[float, float]]:
    """Return the minutes since the start and the perception accuracy of each step or check."""
    rows = zip(minutes_since_start(curve), read_curve(curve))
    return [(round(minutes, 4), round(row["perception"], 4)) for minutes, row in rows]


def minutes_to_read(result: Mapping[str, Any], arm: str) -> str:
    """Format the minutes until `READ` of the cells are read, over `WINDOW` steps."""
    minutes, means = smoothed_reading(result, arm)
    reached = np.flatnonzero(means >= READ)
    return f"{minutes[reached[0]]:.1f}" if reached.size else "not reached"


def smoothed_reading(result: Mapping[str, Any], arm: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the minutes and the perception accuracy, averaged over `WINDOW` steps, except of the checks of SFT."""
    window = 1 if arm == SFT else WINDOW
    minutes, perception = np.array(result["reading"]).T
    return minutes[window - 1 :], np.convolve(perception, np.ones(window) / window, mode="valid")


def write_page(folder: Path) -> None:
    """Write the page and its image from all existing results."""
    results = read_seeds(folder)
    teacher, players = (json.loads((folder / f"{name}.json").read_text()) for name in ("teacher", "players"))
    rows, gains = [], []
    for seed, arms in results.items():
        for arm, result in arms.items():
            states, greedy = result["states"], result["greedy"]
            minutes = ["", ""] if arm == START else [f"{result['minutes']:.1f}", minutes_to_read(result, arm)]
            scores = [f"{states['perception']:.1%}", format_score(result["games"])]
            rows.append([arm, str(seed), format_shares(states), format_shares(greedy), *scores, *minutes])
        gains += [
            [str(seed), other, *(gain(arms, part, DISTILL, other) for part in ("states", "greedy"))]
            for other in (SFT, GRPO, BOTH)
        ]
    draw(folder.with_suffix(".png"), results)
    text = PAGE.format(
        SFT=SFT,
        DAGGER=DAGGER,
        GRPO=GRPO,
        DISTILL=DISTILL,
        BOTH=BOTH,
        teacher=f"{teacher['states']['success']:.0%}",
        teacher_games=format_score(teacher["games"]),
        random=format_score(players["random"]),
        oracle=format_score(players["oracle"]),
        read=READ,
        window=WINDOW,
        table=table(["", "seed", "sampled", "greedy", "perception", "whole games", "minutes", "minutes to read"], rows),
        gains=table(["seed", "distillation minus", "sampled", "greedy"], gains),
    )
    publish(folder.with_suffix(".md"), text)


def format_score(games: Mapping[str, Any]) -> str:
    return "{:.0f} ({:.0f} to {:.0f})".format(games["score"], *games["score_ci"])


def draw(path: Path, results: Mapping[int, Results]) -> None:
    """Draw right responses of each arm and seed, and the perception of each arm over time."""
    figure = Figure(figsize=(10.4, 3.8), dpi=120, layout="constrained")
    bars, curves = figure.subplots(1, 2)
    for place, arm in enumerate(ARMS):
        colour = COLOURS[place]
        for number, arms in enumerate(results.values()):
            draw_arm(bars, place + 0.16 * (number - (len(results) - 1) / 2), arms[arm], colour)
            if arm != START:
                points = smoothed_reading(arms[arm], arm)
                curves.plot(*points, color=colour, lw=1.2, alpha=0.7, label=None if number else arm)
    bars.set_xticks(range(len(ARMS)), [arm.replace(" and ", "\nand ") for arm in ARMS], fontsize=8)
    bars.set_title("right responses: sampled (filled), greedy (empty)", loc="left", fontsize=10)
    curves.set_title("share of cells read", loc="left", fontsize=10)
    curves.set_xlabel("minutes", fontsize=9)
    curves.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (bars, curves):
        style_shares(axes)
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.distillation")
    folder, results = options.output_dir.resolve(), options.results
    results.mkdir(parents=True, exist_ok=True)

    def run(seed: int) -> None:
        once(results / f"{seed}.json", lambda: run_seed(seed, folder))

    def teach() -> dict[str, Any]:
        train(folder / "teacher", *COMMON, *TEACHER)
        return read_part(folder / "teacher", "after") | whole_games(folder / "teacher", "after")

    if not all((results / f"{seed}.json").exists() for seed in options.seeds):
        once(results / "teacher.json", teach)
        once(results / "players.json", play)
    with ThreadPoolExecutor(options.jobs) as pool:
        [*pool.map(run, options.seeds)]
    write_page(results)


if __name__ == "__main__":
    with reporting_errors():
        main()
