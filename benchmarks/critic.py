"""What a critic can tell: how much of what episodes earn follows from the position, and what lambda below 1 brings.

    .venv-train/bin/python -m benchmarks.critic --model RUN/model

A tiny model, cold-started for episodes, plays 2048 on the board of the preset `tiny` up to the tile 16. From
each position, the sum of its later rewards (gamma 0.9) is estimated by ridge regression, in cross-validation over
episodes: from the true board, which bounds what any critic could tell, and from what the model's value head reads.
Then advantages are estimated with each of these critics. The table says how much more or less an illegal answer, and a
merge, is worth by them than a legal answer without a merge on the same board, and how many standard errors that is.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE
from rich.table import Table
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from training.core.advantages import Floats, discounted_returns, gae
from training.core.rollouts import start_rollouts
from training.local.actor import Actor, Sample
from training.local.config import TrainConfig, read_config
from training.local.ppo import explained_variance
from training.local.rollout import Answer, roll_out
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.terminal import make_console

ARGS = (
    "--preset tiny --play.max-turns 16 --states.no-informative --states.moves 0 12 --reward.shaping raw "
    "--reward.game-weight 0.0625"
)
TILES = (0, 2, 4, 8)
GAMMA, LAMBDAS = 0.9, (1.0, 0.95, 0.9, 0.7, 0.5, 0.0)
FOLDS, PENALTY = 8, 100.0
"""Of the ridge regression; features have mean 0 and standard deviation 1."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play, and see what a critic can tell."""

    model: Path
    """Folder of the model that plays."""
    seed: int = 11
    """Seed of the positions and of the tokens."""
    episodes: int = 256
    """Episodes."""


def play(actor: Actor, config: TrainConfig, episodes: int) -> list[Answer]:
    """All answers of all episodes, the turns of each in order."""
    curriculum = config.make_curriculum()
    answers: list[Answer] = []
    for first in range(0, episodes, 64):
        rows = range(first, min(first + 64, episodes))
        where = (curriculum, curriculum.begin(), config.seed, rows, 1)
        rollouts = list(start_rollouts(*where, config.play, config.states, config.reward))
        answers += roll_out(actor, rollouts, config.rollout, (config.seed, 2)).answers
    return answers


def read_by_critic(actor: Actor, answers: Sequence[Answer]) -> Floats:
    """What the value head reads before each answer: the last token's hidden state, and the mean of the images'."""
    assert actor.critic is not None
    read: list[torch.Tensor] = []
    hook = actor.critic.register_forward_pre_hook(lambda _, given: read.append(given[0][:, 0]))
    with torch.no_grad():
        for first in range(0, len(answers), 64):
            some = answers[first : first + 64]
            actor.measure([Sample(answer.sample.prompt, [actor.encoder.end]) for answer in some])
    hook.remove()
    together: Floats = torch.cat(read).double().numpy()
    return together


def told_by_board(answers: Sequence[Answer]) -> Floats:
    """The true position: each cell's tile, how many of each there are, what merges, and whether an answer failed."""
    return np.array([[*_of_position(answer)] for answer in answers], dtype=np.float64)


def _of_position(answer: Answer) -> Iterator[float]:
    state: Any = answer.turn.state
    board = np.array(state["board"])
    for tile in TILES:
        here = board == tile
        yield from here.ravel()
        yield from (here.sum(), here.sum() ** 2)
    merging = sum(any(a == b for a, b in pairwise(line[line > 0])) for line in (*board, *board.T))
    yield from (merging, merging**2, answer.turn.turn, "was not played" in answer.turn.prompt)


def estimated(features: Floats, wanted: Floats, episodes: Floats) -> Floats:
    """Ridge regression, each episode by one that was fitted to others."""
    ridge = make_pipeline(StandardScaler(), Ridge(PENALTY))
    folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
    guess: Floats = cross_val_predict(ridge, features, wanted, groups=episodes, cv=folds)
    return guess


def effects(advantages: Floats, actions: Floats, board: Floats, episodes: Floats) -> list[tuple[float, float]]:
    """Of each action, beside the others on the same board: effect and standard error, by linear regression.

    Errors of an episode may go together (cluster-robust errors: Liang and Zeger 1986).
    """
    design = np.hstack([actions, board, np.ones((len(board), 1))])
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ (design.T @ advantages)
    left = design * (advantages - design @ weights)[:, None]
    sums = np.array([left[episodes == one].sum(0) for one in np.unique(episodes)])
    errors = np.sqrt(np.diag(inverse @ sums.T @ sums @ inverse))
    return [(float(weights[place]), float(errors[place])) for place in range(actions.shape[1])]


def main() -> None:
    """The command line."""
    options = parse_options(Options, None, prog="python -m benchmarks.critic")
    torch.set_num_threads(1)
    config = read_config([*shlex.split(ARGS), "--model", str(options.model), "--seed", str(options.seed)])
    actor = Actor(options.model, config.model, critic=True)
    answers = play(actor, config, options.episodes)
    rows = np.array([answer.row for answer in answers])
    turns = [[answer.reward for answer in episode] for _, episode in groupby(answers, lambda answer: answer.row)]
    returns = np.concatenate([discounted_returns(rewards, GAMMA) for rewards in turns])
    board, read = told_by_board(answers), read_by_critic(actor, answers)
    half = read.shape[1] // 2
    critics = {
        "nothing": np.full(len(returns), returns.mean()),
        "last token": estimated(read[:, :half], returns, rows),
        "images": estimated(read[:, half:], returns, rows),
        "both": estimated(read, returns, rows),
        "true board": estimated(board, returns, rows),
    }
    illegal = [answer.turn.outcome != "played" for answer in answers]
    merged = [answer.turn.reward.game > 0 for answer in answers]
    actions = np.array([illegal, merged], dtype=np.float64).T
    names = ("critic reads", "explains", "lambda", "spread", "illegal", "in s.e.", "merge", "in s.e.")
    table = Table(*names, box=SIMPLE)
    for name, values in critics.items():
        judged = np.split(values, np.cumsum([len(rewards) for rewards in turns])[:-1])
        for lam in LAMBDAS:
            better = np.concatenate([gae(r, v, GAMMA, lam)[0] for r, v in zip(turns, judged)])
            found = effects(better, actions, board, rows)
            told = [f"{number:.2f}" for effect, error in found for number in (effect, effect / error)]
            table.add_row(name, f"{explained_variance(values, returns):.2f}", f"{lam:g}", f"{better.std():.2f}", *told)
    make_console().print(f"{len(turns)} episodes, {len(answers)} turns")
    make_console().print(table)


if __name__ == "__main__":
    with reporting_errors():
        main()
