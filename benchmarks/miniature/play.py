"""Whole games on held-out seeds, played by a trained model or by a policy that knows the state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from vlmgym.evaluation import evaluate
from vlmgym.policies.base import identity
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.runs.record import TurnRecord
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.training.config import TrainConfig
from vlmgym.training.engine.actor import Actor
from vlmgym.training.states import blank
from vlmgym.training.validation import Images


def play_games(actor: Actor, config: TrainConfig, turns: int, count: int, images: Images) -> dict[str, Any]:
    """Play whole games with a model, sampled at temperature 1, and summarise them.

    Args:
        actor: The model.
        config: Options of its training.
        turns: Maximum number of turns.
        count: Number of games.
        images: Images shown; `shuffled` shows images of another game at the same turn, or the last images of another
            game if all others have ended.
    """
    (game,) = config.make_curriculum().games
    settings = EpisodeSettings(max_turns=turns, reward=config.reward)
    setup = GameSetup(game, settings, blank if images == "blank" else identity)
    games = [LiveEpisode(setup, FIRST_VALIDATION_SEED + number) for number in range(count)]
    played: list[list[TurnRecord]] = [[] for _ in games]
    latest = [live.observation.images for live in games]
    while running := [number for number, live in enumerate(games) if live.observation.end is None]:
        for number in running:
            latest[number] = games[number].observation.images
        # If a game runs alone, it shows the last images of another one.
        others = [*running[1:], running[0] if len(running) > 1 else running[0] - 1]
        shown = [latest[number] for number in (others if images == "shuffled" else running)]
        prompts = [actor.encoder.encode(games[number].observation.prompt, seen) for number, seen in zip(running, shown)]
        seeds = [_token_seed(number, len(played[number])) for number in running]
        responses = actor.generate(prompts, range(len(prompts)), seeds, config.rollout.max_tokens, 1.0)
        for number, prompt, response in zip(running, prompts, responses):
            played[number].append(games[number].respond(actor.reply(prompt, response)))
    return _summary(played)


def play_policy(config: TrainConfig, policy: str, turns: int, count: int) -> dict[str, Any]:
    """Play the same games with a policy that knows the state."""
    (game,) = config.make_curriculum().games
    records = evaluate(game, policy, episodes=count, max_turns=turns, seed=FIRST_VALIDATION_SEED)
    return _summary([record.turns for record in records])


def _token_seed(number: int, turn: int) -> int:
    return int(np.random.SeedSequence([number, turn]).generate_state(1)[0])


def _summary(games: Sequence[Sequence[TurnRecord]]) -> dict[str, Any]:
    """Summarise the turns of games.

    Returns:
        For each game, its `score` and its numbers of `turns` and of `played` turns; `actions` of the first game, None
        if unparsable; and means over turns: `perception`, `format`, and shares `illegal` and `unparsable`.
    """
    turns = [turn for game in games for turn in game]
    outcomes = Counter(turn.outcome for turn in turns)
    return {
        "score": [sum(turn.reward.game for turn in game) for game in games],
        "turns": [len(game) for game in games],
        "played": [sum(turn.outcome is Outcome.PLAYED for turn in game) for game in games],
        "actions": [turn.action for turn in games[0]],
        "perception": float(np.mean([turn.reward.perception or 0.0 for turn in turns])),
        "format": float(np.mean([turn.reward.format for turn in turns])),
        "illegal": outcomes[Outcome.ILLEGAL] / len(turns),
        "unparsable": outcomes[Outcome.UNPARSABLE] / len(turns),
    }
