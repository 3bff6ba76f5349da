"""Estimate upper bounds for a critic: how well states predict returns, and what a lambda below 1 gains.

    .venv-train/bin/python -m benchmarks.critic --model RUN/model

A tiny model after SFT plays 2048 on the board of the preset `single_moves`, up to tile 16. Ridge regression,
cross-validated over episodes, predicts the return (gamma 0.9) of each state from the true board, which bounds any
critic, and from the inputs of the model's value head. Advantages are then estimated with each of these critics. The
table shows the effect of an illegal or unparsable answer and of a merge on the advantage, relative to a legal answer
without a merge on the same board, and its ratio to the standard error.
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

from vlmgym.runs.record import TurnRecord
from vlmgym.terminal import make_console, parse_options, reporting_errors
from vlmgym.training.algorithm import Floats, discounted_returns, explained_variance, gae
from vlmgym.training.config import TrainConfig, read_config
from vlmgym.training.engine.actor import Actor, roll_out
from vlmgym.training.engine.encoding import TrainSample
from vlmgym.training.engine.families import EncodedPrompt
from vlmgym.training.states import EpisodeRollout, start_rollouts

ARGS = (
    "--preset single_moves --max-turns 16 --states.no-informative --states.moves 0 12 --settings reward.shaping=raw "
    "--settings reward.game_weight=0.0625"
)
TILES = (0, 2, 4, 8)
GAMMA, LAMBDAS = 0.9, (1.0, 0.95, 0.9, 0.7, 0.5, 0.0)
FOLDS, PENALTY = 8, 100.0
"""Folds and penalty of the ridge regression on standardised features."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Play episodes and fit critics."""

    model: Path
    """Model folder."""
    seed: int = 11
    """Seed of states and tokens."""
    episodes: int = 256
    """Number of episodes."""


def play(actor: Actor, config: TrainConfig, count: int) -> tuple[list[EpisodeRollout], list[EncodedPrompt]]:
    """Roll out episodes; return them, and the prompts of all their turns."""
    curriculum = config.make_curriculum()
    episodes: list[EpisodeRollout] = []
    prompts: list[EncodedPrompt] = []
    for first in range(0, count, 64):
        picks = curriculum.picks(curriculum.begin(), config.seed, range(first, min(first + 64, count)))
        batch = list(start_rollouts(picks, config.seed, 1, config.play, config.states, config.reward))
        samples, _ = roll_out(actor, batch, config.rollout, (config.seed, 2))
        episodes += batch
        prompts += [sample.prompt for episode_samples in samples for sample in episode_samples]
    return episodes, prompts


def critic_features(actor: Actor, prompts: Sequence[EncodedPrompt]) -> Floats:
    """Return the inputs of the value head for each prompt: last hidden state and mean hidden state of image tokens."""
    assert actor.critic is not None
    hidden: list[torch.Tensor] = []
    hook = actor.critic.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0][:, 0]))
    with torch.no_grad():
        for first in range(0, len(prompts), 64):
            actor.compute_logprobs([TrainSample(prompt, [actor.encoder.end]) for prompt in prompts[first : first + 64]])
    hook.remove()
    features: Floats = torch.cat(hidden).double().numpy()
    return features


def board_features(turns: Sequence[TurnRecord]) -> Floats:
    """Return features of each turn's true state: tiles, counts, merges, turn, and whether the last answer failed."""
    return np.array([[*_features_of(turn)] for turn in turns], dtype=np.float64)


def _features_of(turn: TurnRecord) -> Iterator[float]:
    state: Any = turn.state
    board = np.array(state["board"])
    for tile in TILES:
        cells = board == tile
        yield from cells.ravel()
        yield from (cells.sum(), cells.sum() ** 2)
    merging = sum(any(a == b for a, b in pairwise(line[line > 0])) for line in (*board, *board.T))
    yield from (merging, merging**2, turn.turn, "was not played" in turn.prompt)


def predict(features: Floats, returns: Floats, episodes: Floats) -> Floats:
    """Predict returns from features by ridge regression, cross-validated over episodes."""
    ridge = make_pipeline(StandardScaler(), Ridge(PENALTY))
    folds = GroupKFold(FOLDS, shuffle=True, random_state=0)
    guess: Floats = cross_val_predict(ridge, features, returns, groups=episodes, cv=folds)
    return guess


def effects(advantages: Floats, actions: Floats, board: Floats, episodes: Floats) -> list[tuple[float, float]]:
    """Estimate the effect of each action on the advantage by linear regression, controlling for the board.

    Returns:
        For each column of `actions`, the effect and its standard error, which is cluster-robust over episodes (Liang
        and Zeger 1986).
    """
    design = np.hstack([actions, board, np.ones((len(board), 1))])
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ (design.T @ advantages)
    weighted_residuals = design * (advantages - design @ weights)[:, None]
    sums = np.array([weighted_residuals[episodes == episode].sum(0) for episode in np.unique(episodes)])
    errors = np.sqrt(np.diag(inverse @ sums.T @ sums @ inverse))
    return [(float(weights[place]), float(errors[place])) for place in range(actions.shape[1])]


def main() -> None:
    """Run the benchmark."""
    options = parse_options(Options, None, prog="python -m benchmarks.critic")
    torch.set_num_threads(1)
    config = read_config([*shlex.split(ARGS), "--model", str(options.model), "--seed", str(options.seed)])
    actor = Actor(options.model, config.model, critic=True)
    episodes, prompts = play(actor, config, options.episodes)
    turns = [turn for episode in episodes for turn in episode.turns]
    rows = np.repeat([episode.prompt_id for episode in episodes], [len(episode.turns) for episode in episodes])
    rewards = [[turn.reward.total for turn in episode.turns] for episode in episodes]
    returns = np.concatenate([discounted_returns(episode_rewards, GAMMA) for episode_rewards in rewards])
    board, hidden = board_features(turns), critic_features(actor, prompts)
    half = hidden.shape[1] // 2
    critics = {
        "nothing": np.full(len(returns), returns.mean()),
        "last token": predict(hidden[:, :half], returns, rows),
        "images": predict(hidden[:, half:], returns, rows),
        "both": predict(hidden, returns, rows),
        "true board": predict(board, returns, rows),
    }
    illegal = [turn.outcome != "played" for turn in turns]
    merged = [turn.reward.game > 0 for turn in turns]
    actions = np.array([illegal, merged], dtype=np.float64).T
    names = ("critic reads", "explained variance", "lambda", "std", "illegal", "/ stderr", "merge", "/ stderr")
    table = Table(*names, box=SIMPLE)
    for name, values in critics.items():
        episode_values = np.split(values, np.cumsum([len(episode_rewards) for episode_rewards in rewards])[:-1])
        explained = f"{explained_variance(values, returns):.2f}"
        for lam in LAMBDAS:
            advantages = np.concatenate([gae(r, v, GAMMA, lam)[0] for r, v in zip(rewards, episode_values)])
            estimates = effects(advantages, actions, board, rows)
            cells = [f"{number:.2f}" for effect, error in estimates for number in (effect, effect / error)]
            table.add_row(name, explained, f"{lam:g}", f"{advantages.std():.2f}", *cells)
    make_console().print(f"{len(episodes)} episodes, {len(turns)} turns")
    make_console().print(table)


if __name__ == "__main__":
    with reporting_errors():
        main()
