"""Train tiny models by RL and by its controls, let them play whole games, and write docs/learning/whole_games.md.

    .venv-train/bin/python -m benchmarks.miniature --results logs/whole_games     # all games and seeds: about 3 hours
    .venv-train/bin/python -m benchmarks.miniature --results logs/whole_games --games 2048 --seeds 0     # part of it
    .venv-train/bin/python -m benchmarks.miniature     # the page of the committed results

Demonstrations of an imperfect player teach a base model per game, and in 2048 per seed. With each seed, more
demonstrations, GRPO and its controls continue it. The results of a run are a small file in `--results`, and are not
measured again, so the command can be stopped and continued.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from benchmarks.demo import BLANK, GRPO, MORE, PERMUTED, PPO, START, format_shares, gain, read_part
from benchmarks.learning.parts import COLOURS, draw_arm, style_shares
from benchmarks.learning.running import once, train
from benchmarks.markdown import publish, table
from vlmgym.errors import UsageError
from vlmgym.evaluation import evaluate
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.runs.record import EpisodeRecord
from vlmgym.runs.store import read_run
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval
from vlmgym.terminal import parse_options, reporting_errors
from vlmgym.training.config import read_config

ARMS = (START, MORE, GRPO, PPO, PERMUTED, BLANK)
SEEDS = (0, 1, 2)
EPISODES = 100
RL = ("--batch-size", "128", "--steps", "80", "--update.lr", "3e-4", "--update.schedule", "cosine")
PPO_ARGS = ("--update.lr", "5e-5")


@dataclass(frozen=True)
class Game:
    """A game to train on.

    Attributes:
        title: Title in tables and figures.
        measure: What whole games are measured by: their score or their number of legal turns.
        label: Title of the measure.
        max_turns: Maximum number of turns of a whole game.
        base_steps: Batches of demonstrations of the base model.
        control_steps: Further batches in the run with more demonstrations.
        args: Options of `vlmgym train` for all runs.
        rl_args: Options for all runs but the base model's, which override those of `RL`.
        base_seeds: Training seed of each seed's base model.
    """

    title: str
    measure: Literal["score", "played"]
    label: str
    max_turns: int
    base_steps: int
    control_steps: int
    args: tuple[str, ...]
    rl_args: tuple[str, ...] = ()
    base_seeds: tuple[int, ...] = (100, 100, 100)


BOARD = ("theme=dark", "similarity=0.0")
STATES = ("--states.mover", "random-legal", "--states.no-informative")
GAMES = {
    "2048": Game(
        "2048 on 4x4",
        "score",
        "score in 100 turns",
        100,
        1200,
        400,
        ("--sft.accuracy", "0"),
        ("--steps", "120", "--update.perception-coef", "0.1"),
        (100, 101, 102),
    ),
    "shisensho": Game(
        "Shisen-Sho on 6x6",
        "played",
        "pairs of 18 removed in 40 turns",
        40,
        3000,
        400,
        (
            *("--config", "rows=6", "columns=6", "copies=2", "colours=6", "shapes=3", *BOARD),
            "prompt=Write the board, equal tiles, and a pair that a path joins.",
            *("--size", "192", "--states.moves", "0", "17", *STATES),
            *("--rollout.max-tokens", "360", "--sft.accuracy", "0.45"),
        ),
        ("--update.lr", "2e-4", "--update.perception-coef", "0.1"),
    ),
    "swap": Game(
        "Swap on 5x5",
        "played",
        "legal swaps in 40 turns",
        40,
        3000,
        200,
        (
            *("--config", "rows=5", "columns=5", "colours=4", "shapes=1", *BOARD),
            "prompt=Write the board, tiles in a line, and a swap.",
            *("--size", "160", "--states.moves", "0", "20", *STATES),
            *("--rollout.max-tokens", "420", "--sft.accuracy", "0.5", "--settings", "reward.shaping=sign"),
        ),
        ("--update.perception-coef", "0.1"),
    ),
}
PAGE = """\
# What RL adds in whole games

Written by `.venv-train/bin/python -m benchmarks.miniature`.

A randomly initialised Qwen3-VL of 0.3 million parameters learns to play from images alone, on a CPU. Demonstrations of
an imperfect player teach a base model for each game, the *start*: it writes the board, the reasons and an answer. In
2048, all answers are random; in Shisen-Sho, 45% are right, and in Swap half. The others are random, and mostly illegal;
in Shisen-Sho, they follow a list of all pairs, none of which is chosen. With each seed, all other rows continue this
model with other states:

| row | trained with |
|---|---|
| {MORE} | more demonstrations of the same player, for about as much time as GRPO |
| {GRPO} | 80 steps, in 2048 120, of 128 single responses, with a supervised loss on the true board \
(`--update.perception-coef 0.1`); the learning rate is 3e-4, in Shisen-Sho 2e-4 |
| {PPO} | the same, with a learning rate of 5e-5 and four updates a step |
| {PERMUTED} | as GRPO, but rewards are permuted among the eight responses to a state |
| {BLANK} | as GRPO, but all images are grey, also in evaluation |

*Right responses* are sampled at temperature 1 in {states} held-out states; a right response is legal and, in 2048,
merges tiles. *Greedy* is the most likely response. Whole games are {episodes} games on held-out seeds, sampled at
temperature 1; an illegal answer costs a turn, and the same board is shown again. Intervals are 95% intervals over
states or games. In 2048, each seed has its own base model; in Shisen-Sho and Swap, they share one, so that their
differences show the variation of what follows, not of the start.

![right responses and whole games by arm](whole_games.png)

{tables}

In 2048, no move merges tiles in a fifth of the states. Demonstrations say what merges, and then move at random; GRPO
teaches the model to act on what it says. In Shisen-Sho, the most likely response of the start lists all pairs and
guesses, as most demonstrations do. GRPO makes it choose, and more carefully: it calls more pairs blocked that are free,
and fewer free that are blocked ([log](../log.md)).

Grey images show what GRPO makes of this start without seeing: less than random play in 2048, hardly a pair in
Shisen-Sho, and a seventh of right responses in Swap, where one and the same swap is legal in about a third of the
states. Permuted rewards show what the noise of the updates costs: in 2048, seed 0 keeps what it could do, seed 1 loses
a quarter of the response formats and most legal moves of whole games, and seed 2 nearly everything; whole games of
Shisen-Sho lose 20% to 37% of the pairs, those of Swap about two thirds of the swaps. True rewards must repay this noise
first.

Greedy responses of these starts are unstable, because most of their demonstrations guess: in Swap, more SFT moves them
from about 10% to 60%, 3% and 58%, so the gain over it depends on the seed.

Gains depend on the start. The start of Swap reads 99.6% of the cells and finds a legal swap in three of ten responses;
an earlier start, taught by as many batches, found one in nine, and GRPO reached 23% ([log](../log.md)).

Gains of GRPO over more SFT, paired by state and by game:

{gains}
"""
Results = Mapping[str, Mapping[str, Any]]
"""Results of each arm of a seed: `states`, `greedy` and `games`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train, play whole games, and write the page."""

    games: tuple[str, ...] = tuple(GAMES)
    """Games to train on."""
    seeds: tuple[int, ...] = SEEDS
    """Training seeds."""
    arms: tuple[str, ...] = (GRPO, PERMUTED, BLANK, PPO)
    """Runs, of which GRPO's includes more SFT. PPO is only run in 2048, with seed 0."""
    jobs: int = 2
    """Games and seeds to run in parallel."""
    output_dir: Path = Path("logs/miniature")
    """Folder of training runs."""
    results: Path = Path("docs/learning/whole_games")
    """Folder of results; the page and its image are written next to it."""

    def __post_init__(self) -> None:
        for name, values, choices in (
            ("game", self.games, [*GAMES]),
            ("seed", self.seeds, [*SEEDS]),
            ("run", self.arms, [GRPO, PERMUTED, BLANK, PPO]),
        ):
            for value in values:
                if value not in choices:
                    raise UsageError(f"unknown {name} {value!r}, choose from: {', '.join(map(repr, choices))}")


def common_args(name: str) -> tuple[str, ...]:
    """Return the options that all runs of a game share."""
    # The number of processes affects rounding, and so the results.
    shared = ("--processes", "1", "--record-interval", "0", "--evaluation.max-turns", str(GAMES[name].max_turns))
    return ("--preset", "tiny", "--games", name, *GAMES[name].args, *shared)


def base_stem(name: str, seed: int) -> str:
    """Return the name of the folder of the base model that a seed's runs continue."""
    return f"{name}-base-{GAMES[name].base_seeds[seed]}"


def base_args(name: str, seed: int) -> tuple[str, ...]:
    """Return the options of the base model's run."""
    seed_args = ("--seed", str(GAMES[name].base_seeds[seed]))
    lengths = ("--steps", "0", "--sft.steps", str(GAMES[name].base_steps))
    return (*common_args(name), *seed_args, *lengths, "--evaluation.states", "0", "--evaluation.episodes", "0")


def arm_args(name: str, seed: int, arm: str) -> tuple[str, ...]:
    """Return the options of the run of an arm, except for its model; GRPO's run includes more SFT."""
    arm_options: dict[str, tuple[str, ...]] = {
        GRPO: ("--sft.control-steps", str(GAMES[name].control_steps)),
        PPO: ("--algorithm", "ppo", *PPO_ARGS),
        PERMUTED: ("--control", "permuted"),
        BLANK: ("--control", "blank"),
    }
    evaluation = ("--evaluation.states", "512", "--evaluation.episodes", str(EPISODES))
    shared = (*common_args(name), "--seed", str(seed), "--sft.steps", "0", *RL, *GAMES[name].rl_args, *evaluation)
    return (*shared, *arm_options[arm])


def file_stem(name: str, seed: int, arm: str) -> str:
    """Return the name of the folder and of the result file of an arm's run."""
    return f"{name}-{seed}-{arm.lower().replace(', ', '-').replace(' ', '-')}"


def trained_arms(name: str, seed: int) -> list[str]:
    """List the arms that are trained with a seed: PPO only in 2048, with the first."""
    return [GRPO, PERMUTED, BLANK, *([PPO] if name == "2048" and seed == 0 else [])]


def run_arm(name: str, seed: int, arm: str, folder: Path) -> Results:
    """Train an arm and return its results; GRPO's run also has those of the start and of more SFT."""
    run = folder / file_stem(name, seed, arm)
    train(run, *arm_args(name, seed, arm), "--model", str(folder / base_stem(name, seed) / "model"))
    parts = {START: "before", MORE: "control", GRPO: "after"} if arm == GRPO else {arm: "after"}
    results = {}
    for title, part in parts.items():
        games = summarise(read_run(run / "evaluation" / part).episodes)
        results[title] = read_part(run, part) | {"games": games}
    return results


def read_results(results: Path) -> dict[str, dict[int, Results]]:
    """Read all existing results by game and seed."""
    stored: dict[str, dict[int, Results]] = {}
    for name in GAMES:
        for seed in SEEDS:
            arms: dict[str, Any] = {}
            for arm in trained_arms(name, seed):
                if (path := results / f"{file_stem(name, seed, arm)}.json").exists():
                    arms |= json.loads(path.read_text())
            if arms:
                stored.setdefault(name, {})[seed] = {arm: arms[arm] for arm in ARMS if arm in arms}
    return stored


def summarise(episodes: Sequence[EpisodeRecord]) -> dict[str, Any]:
    """Return the score and the number of legal turns of each game, and the actions of the first."""
    return {
        "score": [episode.score for episode in episodes],
        "played": [sum(turn.outcome is Outcome.PLAYED for turn in episode.turns) for episode in episodes],
        "actions": [turn.action for turn in episodes[0].turns],
    }


def play_baselines(name: str) -> dict[str, Any]:
    """Play the same whole games with policies that need no images."""
    (game,) = read_config(common_args(name)).make_curriculum().games
    turns, seed = GAMES[name].max_turns, FIRST_VALIDATION_SEED
    return {
        policy: summarise(evaluate(game, policy, EPISODES, max_turns=turns, seed=seed, workers=0))
        for policy in ("random", "random-legal", "oracle")
    }


def write_page(results: Path) -> None:
    """Write the page and its image from all existing results."""
    tables, gains = [], []
    stored = read_results(results)
    for name in stored:
        game = GAMES[name]
        rows = []
        baselines = results / f"{name}-baselines.json"
        for policy, games in json.loads(baselines.read_text()).items() if baselines.exists() else ():
            rows.append([policy, "", "", "", "", describe(games[game.measure])])
        for seed, arms in stored[name].items():
            for arm, result in arms.items():
                states, greedy = result["states"], result["greedy"]
                cells = [format_shares(states), f"{greedy['success']:.1%}", f"{states['perception']:.1%}"]
                rows.append([arm, str(seed), *cells, describe(result["games"][game.measure])])
            if GRPO not in arms:
                continue
            shares = [gain(arms, part, GRPO, MORE) for part in ("states", "greedy")]
            played, control = (np.array(arms[arm]["games"][game.measure]) for arm in (GRPO, MORE))
            gains.append([game.title, str(seed), *shares, describe(played - control)])
        tables.append(table([game.title, "seed", "right responses", "greedy", "perception", game.label], rows))
    draw(results.with_suffix(".png"), stored)
    text = PAGE.format(
        MORE=MORE,
        GRPO=GRPO,
        PPO=PPO,
        PERMUTED=PERMUTED,
        BLANK=BLANK,
        states=512,
        episodes=EPISODES,
        tables="\n\n".join(tables),
        gains=table(["game", "seed", "right responses", "greedy", "whole games"], gains),
    )
    publish(results.with_suffix(".md"), text)


def describe(values: Sequence[float] | np.ndarray[Any, Any]) -> str:
    """Format a mean and its 95% interval, if any."""
    mean, interval = float(np.mean(values)), confidence_interval([*map(float, values)], unit_interval=False)
    digits = 0 if abs(mean) >= 100 else 1
    return f"{mean:.{digits}f}" + ("" if interval is None else " ({:.{d}f} to {:.{d}f})".format(*interval, d=digits))


def draw(path: Path, stored: Mapping[str, Mapping[int, Results]]) -> None:
    """Draw right responses above and whole games below, a column per game, each point a seed."""
    figure = Figure(figsize=(1 + 3.6 * len(stored), 6.2), dpi=120, layout="constrained")
    for column, (name, seeds) in enumerate(stored.items()):
        game = GAMES[name]
        arms = [arm for arm in ARMS if any(arm in results for results in seeds.values())]
        for row, title in enumerate(("right responses: sampled (filled), greedy (empty)", game.label)):
            axes = figure.add_subplot(2, len(stored), 1 + column + row * len(stored))
            for number, results in enumerate(seeds.values()):
                for arm, result in results.items():
                    x = arms.index(arm) + 0.14 * (number - (len(seeds) - 1) / 2)
                    colour = COLOURS[ARMS.index(arm)]
                    if row == 0:
                        draw_arm(axes, x, result, colour)
                        continue
                    values = result["games"][game.measure]
                    if interval := confidence_interval(values, unit_interval=False):
                        axes.plot([x, x], interval, color=colour, lw=1.4)
                    axes.plot(x, np.mean(values), "o", ms=5, color=colour)
            axes.set_xticks(
                range(len(arms)),
                [
                    arm.replace(", ", ",\n").replace("permuted ", "permuted\n").replace("grey ", "grey\n")
                    for arm in arms
                ],
            )
            axes.tick_params(axis="x", labelsize=8)
            axes.set_xlim(-0.5, max(len(arms), 1) - 0.5)
            if row == 0:
                style_shares(axes)
            else:
                axes.spines[["top", "right"]].set_visible(False)
                axes.grid(alpha=0.25, axis="y")
            axes.set_title(f"{game.title}\n{title}" if row == 0 else title, loc="left", fontsize=9)
    figure.savefig(path)


def main(args: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parse_options(Options, args, prog="python -m benchmarks.miniature")
    folder = options.output_dir.resolve()
    options.results.mkdir(parents=True, exist_ok=True)

    def run(name: str, seed: int, arm: str) -> None:
        once(options.results / f"{file_stem(name, seed, arm)}.json", lambda: run_arm(name, seed, arm, folder))

    runs = [
        (name, seed, arm)
        for seed in options.seeds
        for name in options.games
        for arm in trained_arms(name, seed)
        if arm in options.arms
    ]
    missing = [parts for parts in runs if not (options.results / f"{file_stem(*parts)}.json").exists()]
    bases = {base_stem(name, seed): base_args(name, seed) for name, seed, _ in missing}
    with ThreadPoolExecutor(options.jobs) as pool:
        [*pool.map(lambda stem: train(folder / stem, *bases[stem]), bases)]
        [*pool.map(lambda parts: run(*parts), runs)]
    for name in options.games:
        once(options.results / f"{name}-baselines.json", lambda name=name: play_baselines(name))  # type: ignore[misc]
    write_page(options.results)


if __name__ == "__main__":
    with reporting_errors():
        main()
