"""Checks of randomness: everything follows from seeds."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np

from vlmgym.errors import UsageError, WorkerError
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import score_response
from vlmgym.testing.states import AnyGame, Seeds, in_space, legal_actions, same_game_again, walk
from vlmgym.testing.transcript import assert_same, transcript, transcripts
from vlmgym.workers.process import WorkerProcess, receive_value


def check_determinism(game: AnyGame, seeds: Seeds) -> None:
    """Check that the same seed and actions give the same episode in any game object with the same config."""
    for seed in seeds:
        assert_same(transcript(game, seed), transcript(same_game_again(game), seed), f"seed {seed}, played twice")


def check_determinism_over_processes(game: AnyGame, seeds: Seeds) -> None:
    """Check that a new process, with another hash seed, gives the same states, rewards, text and pixels."""
    assert "<locals>" not in type(game).__qualname__, (
        "a class defined in a function cannot be imported by another process"
    )
    with closing(WorkerProcess(_make_handler)) as worker:
        try:
            worker.send(worker.pack(type(game), game.config.model_dump_json(), list(seeds)))
            others = receive_value(worker)
        except (UsageError, WorkerError) as error:
            raise AssertionError(
                "another process could not import the game: define it at module level, and call check_game "
                'under `if __name__ == "__main__":` in a script'
            ) from error
    for seed, other in zip(seeds, others):
        assert_same(transcript(game, seed), other, f"seed {seed}, played in two processes")


def _make_handler() -> Callable[..., list[list[dict[str, Any]]]]:
    return transcripts


def check_seeds(game: AnyGame, seeds: Seeds) -> None:
    """Check that 8 seeds do not all give the same episode when the first legal action is played each time."""
    episodes = set()
    for seed in range(8):
        episode: Episode[Any, Any] = Episode(game, seed)
        states = [game.to_json(episode.state)]
        while episode.turn < 3 and episode.ended is None:
            episode.act(legal_actions(game, episode.state)[0])
            states.append(game.to_json(episode.state))
        episodes.add(tuple(states))
        if len(episodes) > 1:
            return
    raise AssertionError("8 different seeds give the same episode")


def check_random_actions(game: AnyGame, seeds: Seeds) -> None:
    """Check that random actions depend only on the generator, and are in the action space."""
    for seed in seeds:
        drawn, again = ([g.random_action(np.random.default_rng([seed, i])) for i in range(20)] for g in (game, game))
        assert drawn == again, f"random_action gives {drawn}, then {again} with the same generators"
        for action in drawn:
            assert in_space(game, action), f"the random action {action!r} is not in {game.action_space}"


def check_global_random_state(game: AnyGame, seeds: Seeds) -> None:
    """Check that no method uses the global random state of `random` or `numpy.random`."""
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - compared, not used
    again = same_game_again(game)
    transcript(again, seeds[0])
    for state in islice(walk(again, seeds[0]), 3):
        again.best_action(state)
        again.key_action(state, "up")
        for action in legal_actions(again, state)[:5]:
            score_response(again, state, again.respond(state, action), np.random.default_rng(0))
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    assert before[0] == after[0], "a method uses the global state of random"
    assert before[1] == after[1], "a method uses the global state of numpy.random"
