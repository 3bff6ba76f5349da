"""Conformance tests for games::

    from vlmgym.testing import check_game
    check_game(MyGame)

or, with one pytest test per check::

    @pytest.mark.parametrize("check", CHECKS, ids=check_name)
    def test_my_game(check):
        run_check(check, MyGame(), seeds=(0, 1))

Games are checked in states reached by seeded random play; oracles are also checked in states that they reach
themselves. A failure names the check, the game and the fault. `check_game` and `run_check` return notes about what
could not be checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import is_dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import combinations, count, islice, product
from types import NoneType
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from vlmgym.errors import EpisodeEnded, IllegalAction, ParseError, StateError, UsageError, WorkerError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import DIFFICULTIES, LEVELS
from vlmgym.sandbox.core.episode import Episode, Snapshot
from vlmgym.sandbox.core.game import Game, Step, pick
from vlmgym.sandbox.core.reward import Outcome, score_action, score_response
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.registry import game_class, game_ids, make_game
from vlmgym.statistics import mean_and_stderr
from vlmgym.workers.process import WorkerProcess, receive_value

# Play -----------------------------------------------------------------------------------------------------------------

AnyGame = Game[Any, Any]
Seeds = Sequence[int]

TURNS = 8
"""Maximum number of moves to play per seed."""
ACTIONS = 300
"""Maximum number of actions to try in a state."""
MAX_TURNS_TO_END = 500
"""Maximum number of random moves to reach a final state."""


def at_level(game: str | type[AnyGame], perception: int = 3, reasoning: int = 3, **overrides: Any) -> AnyGame:
    """Create a game at these levels from its id, or from its class, which need not be registered."""
    if isinstance(game, str):
        return make_game(game, perception, reasoning, **overrides)
    return game(game.Config.at(perception, reasoning, **overrides))


def same_game_again(game: AnyGame) -> AnyGame:
    """Create another game object with the same config, without cached data."""
    return type(game)(game.config)


def walk(game: AnyGame, seed: int, turns: int | None = None) -> Iterator[Any]:
    """Yield the states of an episode of up to `turns` random legal moves, by default `TURNS`."""
    chooser, rng = np.random.default_rng([seed, 2]), np.random.default_rng(seed)
    state = game.start(rng)
    yield state
    for _ in range(TURNS if turns is None else turns):
        if (action := choose(game, state, chooser)) is None:
            return
        state = game.step(state, action, rng).state
        yield state


def sample_states(game: AnyGame, seeds: Seeds) -> Iterator[Any]:
    """Yield the states of one random episode per seed."""
    for seed in seeds:
        yield from walk(game, seed)


def choose(game: AnyGame, state: Any, chooser: np.random.Generator) -> Any:
    """Choose a random legal action; None in a final state."""
    legal = legal_actions(game, state)
    return pick(chooser, legal) if legal else None


def legal_actions(game: AnyGame, state: Any) -> list[Any]:
    """List the legal actions, or sample the action space if the game does not list them."""
    listed = game.legal_actions(state)
    return list(islice(sample_actions(game), 50)) if listed is None else list(listed)


def sample_actions(game: AnyGame) -> Iterator[Any]:
    """Yield all actions of a small space, or samples of a large one."""
    rng = np.random.default_rng(0)
    yield from game.answer.actions(ACTIONS) or (game.answer.sample(rng) for _ in range(ACTIONS))


def actions_out_of_range(game: AnyGame) -> list[Any]:
    """Return actions outside a discrete space, such as -1, which is a valid index in Python but not an action.

    Other spaces give an empty list.
    """
    space = game.answer.space
    if isinstance(space, spaces.Discrete):
        return [int(space.start) - 1, int(space.start + space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        inside = [0] * space.nvec.size
        edges = [(i, beyond) for i, n in enumerate(space.nvec.tolist()) for beyond in (-1, n, 10**6)]
        return [(*inside[:i], beyond, *inside[i + 1 :]) for i, beyond in edges]
    return []


def in_space(game: AnyGame, action: Any) -> bool:
    """Return whether an action has the right type and is in the action space."""
    try:
        is_equal = game.answer.to_action(action) == action
    except UsageError:
        return False
    return is_equal and game.answer.space.contains(np.asarray(action) if isinstance(action, tuple) else action)


def accepts(game: AnyGame, state: Any, action: Any) -> bool:
    """Return whether `step` accepts an action."""
    try:
        game.step(state, action, np.random.default_rng(0))
    except IllegalAction:
        return False
    return True


def transcript(game: AnyGame, seed: int) -> list[dict[str, Any]]:
    """Play random actions, legal and illegal, and return everything that the seed determines."""
    chooser = np.random.default_rng([seed, 1])
    episode: Episode[Any, Any] = Episode(game, seed)
    facts = [_facts(game, episode.state)]
    infos: list[Mapping[str, Any]] = []
    for turn in range(TURNS):
        if episode.ended is not None:
            break
        action = game.answer.sample(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
        facts.append(act_and_describe(episode, action))
        infos.append(json.loads(facts[-1]["info"]))
        facts[-1]["metrics"] = dict(game.metrics(episode.state, infos))
    return facts


def transcripts(game: type[AnyGame], config: str, seeds: Seeds) -> list[list[dict[str, Any]]]:
    """Return the transcripts of several seeds; called in another process, with the config as JSON."""
    instance = game(game.Config.model_validate_json(config))
    return [transcript(instance, seed) for seed in seeds]


def act_and_describe(episode: Episode[Any, Any], action: Any) -> dict[str, Any]:
    """Play an action and describe all its effects."""
    scored = episode.act(action)
    return {
        "action": repr(action),
        "reward": scored.total,
        "outcome": scored.outcome.value,
        "feedback": scored.feedback,
        "terminated": scored.terminated,
        "info": json.dumps(dict(scored.info)),
        "generator": repr(episode.rng.bit_generator.state),
        **_facts(episode.game, episode.state),
    }


def _facts(game: AnyGame, state: Any) -> dict[str, Any]:
    return {
        "state": game.to_json(state),
        "legal actions": repr(legal_actions(game, state)),
        "end": game.ended(state),
        "description": game.describe(state),
        "prompt": game.prompt(state),
        "pixels": digest(game, state),
    }


def digest(game: AnyGame, state: Any) -> tuple[str, ...]:
    """Hash the images of a state."""
    return tuple(
        hashlib.sha256(repr((p.shape, p.dtype)).encode() + p.tobytes()).hexdigest() for p in game.images(state)
    )


def assert_same(expected: Any, got: Any, location: str) -> None:
    """Assert that two nested values are equal, naming the first difference; a missing key counts as None."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in {**expected, **got}:
            assert_same(expected.get(key), got.get(key), f"{location}, {key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (item, other_item) in enumerate(zip(expected, got)):
            assert_same(item, other_item, f"{location}, {index}")
    else:
        assert expected == got, f"{location}: {expected!r} differs from {got!r}"


# Class and config -----------------------------------------------------------------------------------------------------

MOST_ALIKE = 0.9
"""Maximum similarity of the prompts of two games, as a share of equal words in sequence."""


def check_identity(game: AnyGame, seeds: Seeds) -> None:
    """Check that the id, if registered, refers to this class, and that the class has a docstring and frozen states.

    Games with the same config must be equal.
    """
    cls = type(game)
    if game.id in game_ids():
        assert game_class(game.id) is cls, f"the id {game.id} is registered for {game_class(game.id)}"
    assert (cls.__dict__.get("__doc__") or "").strip(), "the class has no docstring"
    frozen = is_dataclass(cls.State) and cls.State.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen, f"the state type {cls.State.__name__} is not a frozen dataclass"
    assert cls(game.config) == game, "two games with the same config are not equal"


def check_new_rules(game: AnyGame, seeds: Seeds) -> None:
    """Check that the prompt is not nearly that of a registered game of another class; subclasses may share it."""
    cls, words = type(game), getattr(game, "prompt_template", "").split()
    for other_id in game_ids():
        other = game_class(other_id)
        if issubclass(cls, other) or issubclass(other, cls) or not words:
            continue
        similarity = SequenceMatcher(None, words, getattr(other, "prompt_template", "").split(), autojunk=False).ratio()
        assert similarity <= MOST_ALIKE, (
            f"{similarity:.0%} of the prompt is that of {other_id}: write a subclass or a config field of that game"
        )


def check_levels(game: AnyGame, seeds: Seeds) -> None:
    """Check that both difficulties have five different levels, and that all 25 pairs have states that can be drawn."""
    for difficulty in DIFFICULTIES:
        configs = {level: game.Config.at(**{difficulty: level}) for level in LEVELS}
        equal = [
            f"{level} and {other_level}"
            for level, other_level in combinations(LEVELS, 2)
            if configs[level] == configs[other_level]
        ]
        assert not equal, f"levels {', '.join(equal)} of {difficulty} are equal, but all five must differ"
    for perception, reasoning in product(LEVELS, LEVELS):
        instance = at_level(type(game), perception, reasoning, size=game.config.size)
        shapes = [image.shape for image in instance.images(instance.start(np.random.default_rng(seeds[0])))]
        assert shapes == list(instance.image_shapes), (
            f"at levels {perception} and {reasoning} draw returns shapes {shapes}, expected {instance.image_shapes}"
        )


# Randomness -----------------------------------------------------------------------------------------------------------


def check_determinism_over_processes(game: AnyGame, seeds: Seeds) -> None:
    """Check that a new process, with another hash seed, gives the same states, rewards, text and pixels."""
    assert "<locals>" not in type(game).__qualname__, (
        "a class defined in a function cannot be imported by another process"
    )
    with closing(WorkerProcess()) as worker:
        try:
            worker.send(worker.pack(transcripts, (type(game), game.config.model_dump_json(), list(seeds)), {}))
            other_transcripts = receive_value(worker)
        except (UsageError, WorkerError) as error:
            raise AssertionError(
                "another process could not import the game: define it at module level, and call check_game "
                'under `if __name__ == "__main__":` in a script'
            ) from error
    for seed, other_transcript in zip(seeds, other_transcripts):
        assert_same(transcript(game, seed), other_transcript, f"seed {seed}, played in two processes")


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


def check_global_random_state(game: AnyGame, seeds: Seeds) -> None:
    """Check that no method uses the global random state of `random` or `numpy.random`."""
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - compared, not used
    copy = same_game_again(game)
    transcript(copy, seeds[0])
    for state in islice(walk(copy, seeds[0]), 3):
        copy.best_action(state)
        copy.answer.key("up")
        for action in legal_actions(copy, state)[:5]:
            score_response(copy, state, copy.respond(state, action), np.random.default_rng(0))
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    assert before[0] == after[0], "a method uses the global state of random"
    assert before[1] == after[1], "a method uses the global state of numpy.random"


# States as values -----------------------------------------------------------------------------------------------------


def check_json_round_trip(game: AnyGame, seeds: Seeds) -> None:
    """Check that states survive JSON unchanged, and that invalid text raises `StateError`."""
    for state in sample_states(game, seeds):
        text = game.to_json(state)
        assert "\n" not in text, f"the JSON of a state has several lines: {text!r}"
        copy = game.from_json(text)
        assert copy == state, f"{state!r} becomes {copy!r} through JSON"
        assert game.to_json(copy) == text, f"the JSON of {state!r} changes from {text} to {game.to_json(copy)}"
        assert hash(copy) == hash(state), f"{state!r} and its copy from JSON are equal but their hashes differ"
    for text in ("", "nonsense", "null", "[]", '{"no such field": 1}'):
        try:
            state = game.from_json(text)
        except StateError:
            continue
        raise AssertionError(f"from_json reads {text!r} as the state {state!r}")


def check_restored_episode(game: AnyGame, seeds: Seeds) -> None:
    """Check that an episode restored from JSON continues exactly as the original."""
    for seed in seeds:
        original: Episode[Any, Any] = Episode(game, seed)
        chooser, other_game = np.random.default_rng(seed), same_game_again(game)
        for turn in range(TURNS):
            snapshot = original.snapshot().model_dump_json()
            copy: Episode[Any, Any] = Episode.restore(other_game, Snapshot.model_validate_json(snapshot))
            action = choose(game, original.state, chooser)
            if action is None:
                break
            expected, got = (act_and_describe(episode, action) for episode in (original, copy))
            assert_same(expected, got, f"seed {seed}, turn {turn}, restored from a snapshot")


def check_purity(game: AnyGame, seeds: Seeds) -> None:
    """Check that no method changes the state or the config, and that the order of calls does not matter."""
    for state in sample_states(game, seeds):
        text, config = game.to_json(state), game.config.model_dump_json()
        methods: list[Callable[[Any], Any]] = [
            game.legal_actions,
            game.ended,
            game.describe,
            game.prompt,
            partial(game.metrics, infos=()),
            partial(digest, game),
            partial(_sampled_steps, game),
        ]
        first = [method(state) for method in methods]
        second = [method(state) for method in reversed(methods)][::-1]
        assert_same(first, second, f"methods called in a different order on {text}")
        assert game.to_json(state) == text, f"a method changed the state {text} to {game.to_json(state)}"
        assert game.config.model_dump_json() == config, "a method changed the config"


def _sampled_steps(game: AnyGame, state: Any) -> list[str]:
    """Return the state after each of up to five legal actions, as JSON."""
    legal = legal_actions(game, state)[:5]
    return [game.to_json(game.step(state, action, np.random.default_rng(0)).state) for action in legal]


# Rules ----------------------------------------------------------------------------------------------------------------

ORACLE_TURNS = 10
"""Maximum number of oracle moves per seed."""
MIN_SKILL_EPISODES, SKILL_EPISODES, SKILL_TURNS = 8, 200, 30
"""Fewest and most episodes, and turns of each, in which the oracle is compared with random legal moves."""


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
        assert in_space(game, action), f"the legal action {action!r} is not in {game.answer.space}"
        step = game.step(state, action, rng)
        _check_type("step", step, Step)
        _check_type("step", step.state, game.State)
        _check_type("step", step.reward, float)


def _check_type(method: str, value: object, *types: type[Any]) -> None:
    accepted = " or ".join(kind.__name__ for kind in types)
    assert isinstance(value, types), f"{method} returns {value!r}, expected {accepted}"


def check_legal_actions(game: AnyGame, seeds: Seeds) -> None:
    """Check that `step` accepts legal actions, and rejects all others with a reason, without using the generator."""
    for state in sample_states(game, seeds):
        if game.ended(state) is not None:
            continue
        listed, legal = game.legal_actions(state), legal_actions(game, state)
        assert listed is None or len(set(legal)) == len(legal), f"legal_actions contains duplicates: {legal}"
        for action in legal[:ACTIONS]:
            assert in_space(game, action), f"the legal action {action!r} is not in {game.answer.space}"
            parsed_action = game.answer.to_action(json.loads(json.dumps(action)))
            assert parsed_action == action, f"the action {action!r} becomes {parsed_action!r} through JSON"
        legal_set = set(legal)
        for action in [*legal[:ACTIONS], *sample_actions(game), *actions_out_of_range(game)]:
            rng = np.random.default_rng(0)
            before, reason = repr(rng.bit_generator.state), None
            try:
                game.step(state, action, rng)
            except IllegalAction as error:
                reason = str(error)
                assert reason, f"step rejects {action!r} without a reason"
                assert repr(rng.bit_generator.state) == before, f"the illegal action {action!r} used the generator"
            accepted = reason is None
            expected = in_space(game, action) if listed is None else action in legal_set
            assert accepted == expected, (
                f"step {'accepts' if accepted else 'rejects'} {action!r}, which is "
                f"{'in' if expected else 'not in'} legal_actions, in {game.to_json(state)}"
            )


def check_steps(game: AnyGame, seeds: Seeds) -> None:
    """Check that rewards are finite and `info` is JSON."""
    for state in sample_states(game, seeds):
        for action in legal_actions(game, state)[:20]:
            step = game.step(state, action, np.random.default_rng(0))
            location = f"step {action!r} in {game.to_json(state)}"
            assert math.isfinite(step.reward), f"{location} returns the reward {step.reward}"
            info = dict(step.info)
            assert json.loads(json.dumps(info)) == info, f"{location} returns an info that JSON changes: {info!r}"


def check_end(game: AnyGame, seeds: Seeds) -> list[str]:
    """Check that states have legal actions until the end, and that final states have none and cannot be scored."""
    unreached = []
    for state in sample_states(game, seeds):
        reason, legal = game.ended(state), game.legal_actions(state)
        assert reason is None or reason.strip(), f"ended returns an empty reason in {game.to_json(state)}"
        assert (reason is None) == (legal is None or len(legal) > 0), (
            f"ended returns {reason!r}, but the legal actions are {legal}, in {game.to_json(state)}"
        )
    for seed in seeds:
        *_, end = walk(game, seed, MAX_TURNS_TO_END)
        if game.ended(end) is None:
            unreached.append(str(seed))
            continue
        text = game.to_json(end)
        assert game.legal_actions(end) in ([], ()), f"the final state {text} has legal actions"
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
            metrics_from_json = dict(game.metrics(episode.state, stored))
            assert_same(metrics, metrics_from_json, f"metrics from JSON, seed {seed}, turn {turn}")
            action = game.answer.sample(chooser) if turn % 3 == 2 else choose(game, episode.state, chooser)
            if turn == TURNS or episode.ended is not None or action is None:
                break
            infos.append(episode.act(action).info)


def check_oracle(game: AnyGame, seeds: Seeds) -> list[str]:
    """Check that the oracle plays legally and deterministically, including in states that it reaches itself."""
    has_oracle = False
    for seed in seeds:
        for state in islice(walk(game, seed), 3):
            if game.ended(state) is None:
                has_oracle |= _checked_oracle(game, state) is not None
        rng = np.random.default_rng(seed)
        state = game.start(rng)
        for _ in range(ORACLE_TURNS):
            if game.ended(state) is not None or (best := _checked_oracle(game, state)) is None:
                break
            state = game.step(state, best, rng).state
    return [] if has_oracle else ["best_action returned no action in any state"]


def check_skill(game: AnyGame, seeds: Seeds) -> None:
    """Check that the oracle, if any, scores more than random legal moves, by over 3 standard errors.

    Both play the same seeds, until the difference is clear, but no more than `SKILL_EPISODES`.
    """
    differences, error = list[float](), 0.0
    for seed in range(SKILL_EPISODES):
        oracle = _score(game, seed, game.best_action)
        legal = _score(game, seed, partial(choose, game, chooser=np.random.default_rng([seed, 4])))
        if oracle is None or legal is None:
            return  # `check_oracle` notes it
        differences.append(oracle - legal)
        mean, stderr = mean_and_stderr(differences)
        error = stderr or 0.0
        if len(differences) >= MIN_SKILL_EPISODES and mean > 3 * error:
            return
    raise AssertionError(
        f"the oracle scores only {mean:.3g} ± {error:.2g} (standard error) more than random legal moves, in "
        f"{SKILL_EPISODES} episodes of {SKILL_TURNS} turns: give the game a score that separates them"
    )


def _score(game: AnyGame, seed: int, player: Callable[[Any], Any]) -> float | None:
    """Play an episode of up to `SKILL_TURNS` turns; return its score, or None if the player gives up."""
    episode = Episode(game, seed)
    while episode.ended is None and episode.turn < SKILL_TURNS:
        if (action := player(episode.state)) is None:
            return None
        episode.act(action)
    return episode.score


def _checked_oracle(game: AnyGame, state: Any) -> Any:
    """Check the oracle in one state, and return its action, or None if it has none."""
    text = game.to_json(state)
    best = game.best_action(state)
    assert game.to_json(state) == text, f"the oracle changed the state {text}"
    assert best is None or accepts(game, state, best), f"the oracle plays the illegal action {best!r} in {text}"
    second = same_game_again(game).best_action(state)
    assert second == best, f"the oracle plays {best!r}, then {second!r} in {text}"
    return best


# Text -----------------------------------------------------------------------------------------------------------------

DOUBTFUL = ("{0} or {0}", "{0} {0}", "not {0}", "maybe {0}", "{0}?", "{0}...", "~~{0}~~")
"""Answers that mention an action without clearly choosing it; `{0}` is the formatted action."""


def check_format_and_parse(game: AnyGame, seeds: Seeds) -> None:
    """Check that `parse` inverts `format`, and raises `ParseError` for malformed or ambiguous responses."""
    for action in sample_actions(game):
        text = game.answer.format(action)
        parsed = game.answer.parse(text)
        assert parsed == action, f"the action {action!r} is formatted as {text!r}, which is parsed as {parsed!r}"
        response = response_format.compose("", "", text)
        assert response_format.parse_response(response).action(game.answer) == action, (
            f"{response!r} is not parsed as {action!r}"
        )
        answer = response_format.answer_only(text)
        for wrong in (text, answer * 2, f"<answer>{text}", f"<think>{answer}"):
            _assert_unparsable(game, wrong)
        if not isinstance(game.answer.space, spaces.Text):
            for doubtful in DOUBTFUL:
                _assert_unparsable(game, response_format.answer_only(doubtful.format(text)))
    for answer in ("", "   ", "9" * 5000):
        _assert_unparsable(game, f"<answer>{answer}</answer>")
    if not isinstance(game.answer.space, spaces.Text):
        for answer in ("no action at all", "<answer>", "\u00b9", "\x00"):
            _assert_unparsable(game, f"<answer>{answer}</answer>")


def check_responses(game: AnyGame, seeds: Seeds) -> None:
    """Check that `respond` gives a response that plays the action with perfect format and perception."""
    for state in sample_states(game, seeds):
        if game.ended(state) is not None:
            continue
        legal = legal_actions(game, state)
        for action in [*legal[:5], *islice(sample_actions(game), 5)]:
            response = game.respond(state, action)
            scored = score_response(game, state, response, np.random.default_rng(0))
            expected = action if game.actions_per_turn == 1 else (action,)
            assert scored.action == expected, f"{response!r} plays {scored.action!r}, not {expected!r}"
            is_played = scored.outcome is Outcome.PLAYED
            assert is_played or action not in legal, f"{response!r} is {scored.outcome.value}, not played"
            assert scored.format == 1.0, f"the format of {response!r} scores {scored.format}"
            assert scored.perception in (None, (1.0, 1.0)), f"the perception of {response!r} scores {scored.perception}"
            assert all(scored.statements), f"the reasoning of {response!r} has statements that are not true"


def check_prompt(game: AnyGame, seeds: Seeds) -> None:
    """Check that the prompt names all sections of a response."""
    for state in sample_states(game, seeds):
        prompt = game.prompt(state)
        for section in ("perception", game.config.think_tag, "answer"):
            assert f"<{section}>" in prompt, f"the prompt does not mention <{section}>: {prompt!r}"


def _assert_unparsable(game: AnyGame, response: str) -> None:
    try:
        action = response_format.parse_response(response).action(game.answer)
    except ParseError as error:
        reason = str(error)
    else:
        raise AssertionError(f"parse reads {response[:80]!r} as the action {action!r}")
    assert reason, f"parse rejects {response[:80]!r} without a reason"


# Images ---------------------------------------------------------------------------------------------------------------


def check_images(game: AnyGame, seeds: Seeds) -> None:
    """Check that images are uint8 RGB with the declared shapes, and that writing into one does not change the next."""
    for state in islice(sample_states(game, seeds), 4):
        images = game.images(state)
        shapes = [image.shape for image in images]
        assert shapes == list(game.image_shapes), f"draw returns shapes {shapes}, expected {game.image_shapes}"
        for image in images:
            assert image.dtype == np.uint8, f"the image is {image.dtype}, not uint8"
        before = digest(game, state)
        for image in images:
            if image.flags.writeable:
                image[...] = 255 - image
        assert digest(game, state) == before, "writing into an image changes the next image"
        assert digest(same_game_again(game), state) == before, f"two games draw {game.to_json(state)} differently"


def check_image_and_description(game: AnyGame, seeds: Seeds) -> None:
    """Check that states with different descriptions have different images."""
    descriptions: dict[tuple[str, ...], str] = {}
    for state in sample_states(game, seeds):
        description = game.describe(state)
        assert description.strip(), f"the description of {game.to_json(state)} is empty"
        other = descriptions.setdefault(digest(game, state), description)
        assert other == description, f"one image has two descriptions, {other!r} and {description!r}"


def check_environment(game: AnyGame, seeds: Seeds) -> None:
    """Check that Gymnasium's environment checker accepts the environment without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(GameEnv(game), skip_render_check=True)  # other render modes require a registered id


# All checks -----------------------------------------------------------------------------------------------------------

__all__ = ["CHECKS", "CLASS_CHECKS", "GAME_CHECKS", "Check", "check_game", "check_name", "run_check"]

Check = Callable[[AnyGame, Seeds], list[str] | None]
"""A check raises `AssertionError` if the game has a fault, and returns notes about what could not be checked."""

CLASS_CHECKS: tuple[Check, ...] = (
    check_identity,
    check_types,
    check_new_rules,
    check_levels,
    check_skill,
)
"""Checks of a game class, which `check_game` runs at the first level only."""

GAME_CHECKS: tuple[Check, ...] = (
    check_determinism_over_processes,
    check_seeds,
    check_global_random_state,
    check_json_round_trip,
    check_restored_episode,
    check_purity,
    check_legal_actions,
    check_steps,
    check_end,
    check_metrics,
    check_oracle,
    check_format_and_parse,
    check_responses,
    check_prompt,
    check_images,
    check_image_and_description,
    check_environment,
)
"""Checks of a game object, which `check_game` runs at every level."""

CHECKS: tuple[Check, ...] = (*CLASS_CHECKS, *GAME_CHECKS)
"""All checks."""


def check_game(
    game: str | type[AnyGame] | AnyGame,
    levels: Sequence[tuple[int, int]] = ((3, 3), (1, 1), (5, 5)),
    seeds: Seeds = (0, 1),
) -> list[str]:
    """Check that a game satisfies the contract of `vlmgym.sandbox.core.game.Game`.

    Args:
        game: Id or class of a game, or a game object, which is checked with its own config.
        levels: Pairs of levels (perception, reasoning) at which the game is checked; ignored for a game object.
        seeds: Seeds of the episodes.

    Returns:
        Notes about what could not be checked, such as an end that random play does not reach. Empty if everything was
        checked.

    Raises:
        AssertionError: The game breaks the contract; the message has a line for each check that fails, with the game
            and the first fault.
    """
    games = [game] if isinstance(game, Game) else [at_level(game, *level) for level in levels]
    notes: list[str] = []
    failures: dict[Check, AssertionError] = {}
    for runs in ([(check, games[0]) for check in CLASS_CHECKS], list(product(GAME_CHECKS, games))):
        for check, game_object in runs:
            try:
                notes += [] if check in failures else run_check(check, game_object, seeds)
            except AssertionError as error:
                failures[check] = error
        if check_types in failures:  # on which the other checks rely
            break
    if failures:
        raise AssertionError("\n".join(map(str, failures.values()))) from next(iter(failures.values()))
    return notes


def run_check(check: Check, game: AnyGame, seeds: Seeds = (0, 1)) -> list[str]:
    """Run one check and return its notes; errors and notes start with the name of the check and the game."""
    try:
        notes = check(game, seeds) or []
    except Exception as error:  # any unexpected error is a fault of the game
        reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{check_name(check)} fails for {game!r}: {reason}") from error
    return [f"{check_name(check)} of {game!r}: {note}" for note in notes]


def check_name(check: Check) -> str:
    """Return the name of a check in messages and test ids."""
    return check.__name__.removeprefix("check_")
