"""Checks of the rules of a game (legal actions, steps, ends), its metrics and its oracle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import count, islice
from types import NoneType
from typing import Any

import numpy as np

from vlmgym.errors import EpisodeEnded, IllegalAction
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Step
from vlmgym.sandbox.core.reward import score_action
from vlmgym.testing.states import (
    ACTIONS,
    MAX_TURNS_TO_END,
    TURNS,
    AnyGame,
    Seeds,
    accepts,
    actions_out_of_range,
    choose,
    find_final_state,
    in_space,
    legal_actions,
    same_game_again,
    sample_actions,
    sample_states,
    walk,
)
from vlmgym.testing.transcript import assert_same

ORACLE_TURNS = 10
"""Maximum number of oracle moves per seed."""


def check_types(game: AnyGame, seeds: Seeds) -> None:
    """Check the types of the methods' return values, on which the other checks rely."""
    rng = np.random.default_rng(seeds[0])
    state = game.start(rng)
    _check_type("start", state, game.State)
    _check_type("prompt", game.prompt(state), str)
    _check_type("describe", game.describe(state), str)
    _check_type("ended", game.ended(state), str, NoneType)
    listed = game.legal_actions(state)
    _check_type("legal_actions", listed, Sequence, NoneType)
    for action in legal_actions(game, state)[:1]:
        assert in_space(game, action), f"the legal action {action!r} is not in {game.action_space}"
        step = game.step(state, action, rng)
        _check_type("step", step, Step)
        _check_type("step", step.state, game.State)
        _check_type("step", step.reward, float)
        _check_type("step", step.terminated, bool)


def _check_type(method: str, value: object, *types: type[Any]) -> None:
    accepted = " or ".join(each.__name__ for each in types)
    assert isinstance(value, types), f"{method} returns {value!r}, expected {accepted}"


def check_legal_actions(game: AnyGame, seeds: Seeds) -> None:
    """Check that `step` accepts legal actions, and rejects all others, inside and outside the action space."""
    for state in sample_states(game, seeds):
        listed, legal = game.legal_actions(state), legal_actions(game, state)
        assert listed is None or len(set(legal)) == len(legal), f"legal_actions contains duplicates: {legal}"
        for action in legal[:ACTIONS]:
            assert in_space(game, action), f"the legal action {action!r} is not in {game.action_space}"
            back = game.to_action(json.loads(json.dumps(action)))
            assert back == action, f"the action {action!r} becomes {back!r} through JSON"
        named = set(legal)
        for action in [*legal[:ACTIONS], *sample_actions(game), *actions_out_of_range(game)]:
            accepted = accepts(game, state, action)
            expected = in_space(game, action) if listed is None else action in named
            assert accepted == expected, (
                f"step {'accepts' if accepted else 'rejects'} {action!r}, which is "
                f"{'in' if expected else 'not in'} legal_actions, in {game.to_json(state)}"
            )


def check_illegal_actions(game: AnyGame, seeds: Seeds) -> None:
    """Check that an illegal action raises an error with a reason, and does not use the random generator."""
    for state in sample_states(game, seeds):
        for action in [*islice(sample_actions(game), 50), *actions_out_of_range(game)]:
            rng = np.random.default_rng(0)
            before = repr(rng.bit_generator.state)
            try:
                game.step(state, action, rng)
            except IllegalAction as error:
                reason = str(error)
            else:
                continue
            assert reason, f"step rejects {action!r} without a reason"
            assert repr(rng.bit_generator.state) == before, f"the illegal action {action!r} used the generator"


def check_steps(game: AnyGame, seeds: Seeds) -> None:
    """Check that rewards are finite, `info` is JSON, and `terminated` agrees with `ended`."""
    for state in sample_states(game, seeds):
        for action in legal_actions(game, state)[:20]:
            step = game.step(state, action, np.random.default_rng(0))
            where = f"step {action!r} in {game.to_json(state)}"
            assert isinstance(step.reward, float), f"{where} returns the reward {step.reward!r}, which is not a float"
            assert math.isfinite(step.reward), f"{where} returns the reward {step.reward}"
            ended = game.ended(step.state)
            assert step.terminated is (ended is not None), (
                f"{where} returns terminated={step.terminated!r}, but ended returns {ended!r}"
            )
            info = dict(step.info)
            assert json.loads(json.dumps(info)) == info, f"{where} returns an info that JSON changes: {info!r}"


def check_end(game: AnyGame, seeds: Seeds) -> list[str]:
    """Check that states have legal actions until the end, and that final states have none and reject all actions."""
    unreached = []
    for state in sample_states(game, seeds):
        reason, legal = game.ended(state), game.legal_actions(state)
        assert reason is None or reason.strip(), f"ended returns an empty reason in {game.to_json(state)}"
        assert (reason is None) == (legal is None or len(legal) > 0), (
            f"ended returns {reason!r}, but the legal actions are {legal}, in {game.to_json(state)}"
        )
    for seed in seeds:
        end = find_final_state(game, seed)
        if end is None:
            unreached.append(str(seed))
            continue
        text = game.to_json(end)
        assert game.legal_actions(end) in ([], ()), f"the final state {text} has legal actions"
        for action in islice(sample_actions(game), 50):
            assert not accepts(game, end, action), f"step accepts {action!r} in the final state {text}"
        try:
            score_action(game, end, next(sample_actions(game)), np.random.default_rng(0))
        except EpisodeEnded:
            pass
        else:
            raise AssertionError(f"an action can be scored in the final state {text}")
    note = f"{MAX_TURNS_TO_END} random moves reached no end with the seeds {', '.join(unreached)}"
    return [note] if unreached else []


def check_metrics(game: AnyGame, seeds: Seeds) -> None:
    """Check that metrics are finite numbers or strings after every turn, and unchanged if `info` comes from JSON."""
    for seed in seeds:
        chooser = np.random.default_rng([seed, 1])
        episode: Episode[Any, Any] = Episode(game, seed)
        infos: list[Mapping[str, Any]] = []
        for turn in count():
            metrics = dict(game.metrics(episode.state, tuple(infos)))
            for name, value in metrics.items():
                if isinstance(value, str):
                    continue
                assert isinstance(value, float | int), f"the metric {name} is {value!r}, expected a number or a string"
                assert math.isfinite(value), f"the metric {name} is {value!r}"
            stored = json.loads(json.dumps([dict(info) for info in infos]))
            again = dict(game.metrics(episode.state, stored))
            assert_same(metrics, again, f"metrics from JSON, seed {seed}, turn {turn}")
            action = game.random_action(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
            if turn == TURNS or episode.ended is not None or action is None:
                break
            infos.append(episode.act(action).info)


def check_oracle(game: AnyGame, seeds: Seeds) -> list[str]:
    """Check that the oracle plays legally and deterministically, including in states that it reaches itself."""
    found = False
    for seed in seeds:
        for state in islice(walk(game, seed), 3):
            if game.ended(state) is None:
                found |= _checked_oracle(game, state) is not None
        rng = np.random.default_rng(seed)
        state = game.start(rng)
        for _ in range(ORACLE_TURNS):
            if game.ended(state) is not None or (best := _checked_oracle(game, state)) is None:
                break
            state = game.step(state, best, rng).state
    return [] if found else ["best_action returned no action in any state"]


def _checked_oracle(game: AnyGame, state: Any) -> Any:
    """Check the oracle in one state, and return its action, or None if it has none."""
    text = game.to_json(state)
    best = game.best_action(state)
    assert game.to_json(state) == text, f"the oracle changed the state {text}"
    assert best is None or accepts(game, state, best), f"the oracle plays the illegal action {best!r} in {text}"
    again = same_game_again(game).best_action(state)
    assert again == best, f"the oracle plays {best!r}, then {again!r} in {text}"
    return best
