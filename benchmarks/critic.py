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
from itertools import pairwise
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

from training.core.advantages import Floats, discounted_returns, explained_variance, gae
from training.core.states import start_rollouts
from training.local.actor import Actor
from training.local.config import TrainConfig
from training.local.encoding import EncodedPrompt, TrainSample
from training.local.options import read_config
from training.local.rollout import roll_out
from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.records.episode import TurnRecord
from vlmgym.rollout.episode import EpisodeRollout
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


def play(actor: Actor, config: TrainConfig, count: int) -> tuple[list[EpisodeRollout], list[EncodedPrompt]]:
    """Roll out episodes; return them, and the prompts of all their turns."""
    curriculum = config.make_curriculum()
    episodes: list[EpisodeRollout] = []
    prompts: list[EncodedPrompt] = []
    for first in range(0, count, 64):
        args = (curriculum, curriculum.begin(), config.seed, range(first, min(first + 64, count)), 1)
        batch = list(start_rollouts(*args, config.play, config.states, config.reward))
        samples, _ = roll_out(actor, batch, config.rollout, (config.seed, 2))
        episodes += batch
        prompts += [sample.prompt for each in samples for sample in each]
    return episodes, prompts


def read_by_critic(actor: Actor, prompts: Sequence[EncodedPrompt]) -> Floats:
    """What the value head reads before each response: the last token's hidden state, and the mean of the images'."""
    assert actor.critic is not None
    read: list[torch.Tensor] = []
    hook = actor.critic.register_forward_pre_hook(lambda _, given: read.append(given[0][:, 0]))
    with torch.no_grad():
        for first in range(0, len(prompts), 64):
            actor.compute_logprobs([TrainSample(each, [actor.encoder.end]) for each in prompts[first : first + 64]])
    hook.remove()
    together: Floats = torch.cat(read).double().numpy()
    return together


def told_by_board(turns: Sequence[TurnRecord]) -> Floats:
    """The true position: each cell's tile, how many of each there are, what merges, and whether an answer failed."""
    return np.array([[*_of_position(turn)] for turn in turns], dtype=np.float64)


def _of_position(turn: TurnRecord) -> Iterator[float]:
    state: Any = turn.state
    board = np.array(state["board"])
    for tile in TILES:
        here = board == tile
        yield from here.ravel()
        yield from (here.sum(), here.sum() ** 2)
    merging = sum(any(a == b for a, b in pairwise(line[line > 0])) for line in (*board, *board.T))
    yield from (merging, merging**2, turn.turn, "was not played" in turn.prompt)


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
    episodes, prompts = play(actor, config, options.episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    rows = np.repeat([episode.prompt_id for episode in episodes], [len(episode.turns) for episode in episodes])
    rewards = [[turn.reward.total for turn in episode.turns] for episode in episodes]
    returns = np.concatenate([discounted_returns(each, GAMMA) for each in rewards])
    board, read = told_by_board(turns), read_by_critic(actor, prompts)
    half = read.shape[1] // 2
    critics = {
        "nothing": np.full(len(returns), returns.mean()),
        "last token": estimated(read[:, :half], returns, rows),
        "images": estimated(read[:, half:], returns, rows),
        "both": estimated(read, returns, rows),
        "true board": estimated(board, returns, rows),
    }
    illegal = [turn.outcome != "played" for turn in turns]
    merged = [turn.reward.game > 0 for turn in turns]
    actions = np.array([illegal, merged], dtype=np.float64).T
    names = ("critic reads", "explains", "lambda", "spread", "illegal", "in s.e.", "merge", "in s.e.")
    table = Table(*names, box=SIMPLE)
    for name, values in critics.items():
        judged = np.split(values, np.cumsum([len(each) for each in rewards])[:-1])
        for lam in LAMBDAS:
            better = np.concatenate([gae(r, v, GAMMA, lam)[0] for r, v in zip(rewards, judged)])
            found = effects(better, actions, board, rows)
            told = [f"{number:.2f}" for effect, error in found for number in (effect, effect / error)]
            table.add_row(name, f"{explained_variance(values, returns):.2f}", f"{lam:g}", f"{better.std():.2f}", *told)
    make_console().print(f"{len(episodes)} episodes, {len(turns)} turns")
    make_console().print(table)


if __name__ == "__main__":
    with reporting_errors():
        main()
