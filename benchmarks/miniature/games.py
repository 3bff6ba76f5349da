"""Games to train on, with options that override the preset `tiny`, and the runs to compare."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Game:
    """A game to train on.

    Attributes:
        title: Title in tables and figures.
        args: Options of `vlmgym train` for all of its runs.
        rl_args: Further options of its RL runs.
        measures: Titles of table columns, by measure: score, turns, or played (legal turns). The first is plotted.
        goal: Target for the first measure, if any.
        batches: Batches of expert demonstrations in the run `DEMONSTRATIONS`.
        steps: Steps of each run that continues another one; PPO makes several updates per step.
        seeds: Training seeds.
        runs: Runs by name, in order.
    """

    title: str
    args: list[str]
    rl_args: list[str]
    measures: Mapping[Literal["score", "played", "turns"], str]
    goal: float | None
    batches: int
    steps: int
    seeds: tuple[int, ...]
    runs: Mapping[str, Run]


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        start: Run whose model is trained further; None creates a new model.
        sft: True to train on demonstrations instead of by RL.
        args: Further options.
        every_seed: True to train with every seed of the game, not only the first.
    """

    start: str | None
    sft: bool
    args: list[str]
    every_seed: bool = True


GREY_DEMONSTRATIONS, DEMONSTRATIONS = "response form", "demonstrations"
"""Runs that the others continue. Demonstrations on grey images cannot teach perception."""
G1 = "G1, GRPO"
MORE = ["--sft.lr", "1e-3"]
RUNS = {
    DEMONSTRATIONS: Run(None, True, []),
    G1: Run(DEMONSTRATIONS, False, ["--algorithm", "grpo"]),
    "SFT only": Run(DEMONSTRATIONS, True, MORE),
    GREY_DEMONSTRATIONS: Run(None, True, ["--control", "blank", "--settings", "sft.gate=0", "--sft.steps", "300"]),
    "G0, GRPO": Run(GREY_DEMONSTRATIONS, False, ["--algorithm", "grpo"]),
}
PERFECT = {"SFT only, perfect player": Run(DEMONSTRATIONS, True, ["--sft.accuracy", "1", *MORE], every_seed=False)}
PPO = {
    "G1, PPO": Run(DEMONSTRATIONS, False, ["--algorithm", "ppo"], every_seed=False),
    "G0, PPO": Run(GREY_DEMONSTRATIONS, False, ["--algorithm", "ppo"], every_seed=False),
}
OWN_PLAY = shlex.split(
    "--max-turns 4 --settings grpo.gamma=0 --batch-size 16 --settings grpo.scale_rewards=false --update.kl-coef 0.05"
)
"""Options for episodes of four turns, which include boards that an illegal answer left unchanged."""
GAMES = {
    "2048": Game(
        "2048 on 4x4", [], [], {"score": "score in 100 turns"}, 940, 1500, 400, (0, 1, 2), {**RUNS, **PERFECT, **PPO}
    ),
    "shisensho": Game(
        "Shisen-Sho on 6x6",
        shlex.split(
            "--config rows=6 columns=6 copies=2 colours=6 shapes=3 theme=dark similarity=0.0 "
            "'prompt=Write the board, equal tiles, and a pair that a path joins.' --size 192 --states.moves 0 17 "
            "--states.mover random-legal --states.no-informative --rollout.max-tokens 360 "
            "--settings reward.perception_weight=1"
        ),
        OWN_PLAY,
        {"turns": "turns for 18 pairs (fewer is better)", "played": "pairs removed"},
        None,
        2000,
        200,
        (0, 1),
        RUNS,
    ),
    "swap": Game(
        "Swap on 5x5",
        shlex.split(
            "--config rows=5 columns=5 colours=4 shapes=1 theme=dark similarity=0.0 "
            "'prompt=Write the board, tiles in a line, and a swap.' --size 160 --states.moves 0 20 "
            "--states.mover random-legal --states.no-informative --rollout.max-tokens 260 --sft.accuracy 1 "
            "--settings reward.perception_weight=1"
        ),
        OWN_PLAY,
        {"played": "legal swaps in 100 turns"},
        60,
        3000,
        200,
        (0, 1),
        RUNS,
    ),
}
"""Games by name."""
POLICIES = ("random", "random-legal", "oracle")
"""Policies that need no images."""
TURNS = 100
"""Maximum number of turns of a game."""


def run_args(name: str, seed: int, run: str) -> list[str]:
    """Return all options of a run except its folder and the model that it continues."""
    game, one = GAMES[name], GAMES[name].runs[run]
    args = ["--preset", "tiny", "--games", name, "--seed", str(seed), *game.args]
    args += ["--evaluation.episodes", "0", "--evaluation.states", "0", "--record-interval", "0"]
    args += ["--processes", "1"]  # their number affects rounding, and so the results
    if one.start is None:
        args += ["--steps", "0", "--sft.steps", str(game.batches)]
    elif one.sft:  # another seed, or demonstrations would be repeated
        args += ["--seed", str(seed + 1000), "--steps", "0", "--sft.steps", str(game.steps)]
    else:
        args += ["--sft.steps", "0", "--steps", str(game.steps), *game.rl_args]
    return [*args, *one.args]
