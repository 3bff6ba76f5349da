"""Rules: which actions are legal, what a step gives, how an episode ends, and what the oracle plays."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import count, islice
from typing import Any

import numpy as np

from vlmgym.errors import EpisodeEnded, IllegalAction
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.reward import score_action
from vlmgym.testing.positions import (
    ACTIONS,
    TURNS,
    TURNS_TO_THE_END,
    AnyGame,
    Seeds,
    accepts,
    actions_out_of_range,
    choose,
    ended_position,
    in_space,
    legal_actions,
    positions,
    same_game_again,
    sample_actions,
    walk,
)
from vlmgym.testing.transcript import assert_same

TURNS_OF_THE_ORACLE = 10
"""Moves that the oracle plays from the start of one seed."""


def check_legal_actions(game: AnyGame, seeds: Seeds) -> None:
    """`step` accepts exactly the legal actions, over samples of the whole action space and beyond its edges."""
    for state in positions(game, seeds):
        listed, legal = game.legal_actions(state), legal_actions(game, state)
        assert listed is None or len(set(legal)) == len(legal), f"legal_actions names an action twice: {legal}"
        for action in legal[:ACTIONS]:
            assert in_space(game, action), f"the legal action {action!r} is not in {game.action_space}"
            back = game.to_action(json.loads(json.dumps(action)))
            assert back == action, f"the action {action!r} comes back from JSON as {back!r}"
        named = set(legal)
        for action in [*legal[:ACTIONS], *sample_actions(game), *actions_out_of_range(game)]:
            accepted = accepts(game, state, action)
            expected = in_space(game, action) if listed is None else action in named
            assert accepted == expected, (
                f"step {'accepts' if accepted else 'refuses'} {action!r}, and legal_actions "
                f"{'names' if expected else 'does not name'} it, in {game.to_json(state)}"
            )


def check_illegal_actions(game: AnyGame, seeds: Seeds) -> None:
    """An illegal action says why, does not move, and leaves the generator as it was."""
    for state in positions(game, seeds):
        for action in [*islice(sample_actions(game), 50), *actions_out_of_range(game)]:
            rng = np.random.default_rng(0)
            before = repr(rng.bit_generator.state)
            try:
                game.step(state, action, rng)
            except IllegalAction as error:
                reason = str(error)
            else:
                continue
            assert reason, f"step refuses {action!r} without a reason"
            assert repr(rng.bit_generator.state) == before, f"the illegal action {action!r} used the generator"


def check_steps(game: AnyGame, seeds: Seeds) -> None:
    """Rewards are finite numbers, facts are JSON, and `terminated` says what `ended` says."""
    for state in positions(game, seeds):
        for action in legal_actions(game, state)[:20]:
            step = game.step(state, action, np.random.default_rng(0))
            where = f"the step {action!r} from {game.to_json(state)}"
            assert isinstance(step.reward, float), f"{where} has the reward {step.reward!r}, which is no float"
            assert math.isfinite(step.reward), f"{where} has the reward {step.reward}"
            ended = game.ended(step.state)
            assert step.terminated is (ended is not None), (
                f"{where} has terminated {step.terminated!r}, and ended says {ended!r}"
            )
            facts = dict(step.info)
            assert json.loads(json.dumps(facts)) == facts, f"{where} has facts that change through JSON: {facts!r}"


def check_end(game: AnyGame, seeds: Seeds) -> list[str]:
    """A position has legal actions until the episode has ended; then it has none, and refuses every step."""
    unreached = []
    for state in positions(game, seeds):
        reason, legal = game.ended(state), game.legal_actions(state)
        assert reason is None or reason.strip(), f"the reason of the end is empty in {game.to_json(state)}"
        assert (reason is None) == (legal is None or len(legal) > 0), (
            f"ended says {reason!r}, and the legal actions are {legal}, in {game.to_json(state)}"
        )
    for seed in seeds:
        end = ended_position(game, seed)
        if end is None:
            unreached.append(str(seed))
            continue
        text = game.to_json(end)
        assert game.legal_actions(end) in ([], ()), f"there are legal actions in the ended position {text}"
        for action in islice(sample_actions(game), 50):
            assert not accepts(game, end, action), f"step accepts {action!r} in the ended position {text}"
        try:
            score_action(game, end, next(sample_actions(game)), np.random.default_rng(0))
        except EpisodeEnded:
            pass
        else:
            raise AssertionError(f"a turn can be taken in the ended position {text}")
    what = f"random play of {TURNS_TO_THE_END} moves reached no end from the seeds {', '.join(unreached)}"
    return [what] if unreached else []


def check_metrics(game: AnyGame, seeds: Seeds) -> None:
    """Metrics are finite numbers or words, after any number of turns, and the same from facts read from JSON."""
    for seed in seeds:
        chooser = np.random.default_rng([seed, 1])
        episode: Episode[Any, Any] = Episode(game, seed)
        infos: list[Mapping[str, Any]] = []
        for turn in count():
            metrics = dict(game.metrics(episode.state, tuple(infos)))
            for name, value in metrics.items():
                if isinstance(value, str):
                    continue
                assert isinstance(value, float | int), f"the metric {name} is {value!r}, no number and no word"
                assert math.isfinite(value), f"the metric {name} is {value!r}"
            stored = json.loads(json.dumps([dict(info) for info in infos]))
            again = dict(game.metrics(episode.state, stored))
            assert_same(metrics, again, f"metrics from a record, seed {seed}, turn {turn}")
            action = game.random_action(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
            if turn == TURNS or episode.ended is not None or action is None:
                break
            infos.append(episode.act(action).info)


def check_oracle(game: AnyGame, seeds: Seeds) -> list[str]:
    """The oracle's action is legal wherever it knows one, and it always answers the same, also along its own play."""
    known = False
    for seed in seeds:
        for state in islice(walk(game, seed), 3):
            if game.ended(state) is None:
                known |= _checked_oracle(game, state) is not None
        rng = np.random.default_rng(seed)
        state = game.start(rng)
        for _ in range(TURNS_OF_THE_ORACLE):
            if game.ended(state) is not None or (best := _checked_oracle(game, state)) is None:
                break
            state = game.step(state, best, rng).state
    return [] if known else ["best_action knows no action in any position that was reached"]


def _checked_oracle(game: AnyGame, state: Any) -> Any:
    """The oracle's action in a position, None if it knows none."""
    text = game.to_json(state)
    best = game.best_action(state)
    assert game.to_json(state) == text, f"the oracle changed the position {text}"
    assert best is None or accepts(game, state, best), f"the oracle plays the illegal action {best!r} in {text}"
    again = same_game_again(game).best_action(state)
    assert again == best, f"the oracle plays {best!r} and then {again!r} in {text}"
    return best
