"""Conformance tests for games: what DESIGN.md promises of every game, checked on a game of yours.

    from vlmgym.testing import check_game
    check_game(MyGame)

or, with one test for each check under pytest:

    @pytest.mark.parametrize("check", CHECKS, ids=check_name)
    def test_my_game(check):
        run_check(check, MyGame(), seeds=(0, 1))

Everything is checked on positions that seeded random play reaches, and the oracle also on those that its own play
reaches; a failure names the check and what differed. What could not be looked at, because no such position was reached,
is told by the notes that `check_game` and `run_check` return.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import is_dataclass
from functools import partial
from itertools import count, islice, pairwise, product
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from vlmgym.errors import EpisodeEnded, IllegalAction, ParseError, StateError, UsageError
from vlmgym.sandbox import response_form
from vlmgym.sandbox.config import DIALS, LEVELS
from vlmgym.sandbox.env import GameEnv
from vlmgym.sandbox.episode import Episode, Snapshot
from vlmgym.sandbox.game import Game
from vlmgym.sandbox.registry import game_class, game_ids, make_game
from vlmgym.sandbox.reward import Outcome, score_action, score_response

AnyGame = Game[Any, Any]
Seeds = Sequence[int]
Check = Callable[[AnyGame, Seeds], list[str] | None]
"""Raises what is wrong, and returns what it could not look at."""

TURNS = 8
"""Legal moves played to reach the positions of one seed."""
ACTIONS = 300
"""Actions of a larger space that are tried in a position."""
TURNS_TO_THE_END = 500
"""Moves within which random play may reach an ended position."""
TURNS_OF_THE_ORACLE = 10
"""Moves that the oracle plays from the start of one seed."""


def check_game(
    game: str | type[AnyGame] | AnyGame,
    levels: Sequence[tuple[int, int]] = ((3, 3), (1, 1), (5, 5)),
    seeds: Seeds = (0, 1),
) -> list[str]:
    """Check that a game keeps the contract of `vlmgym.sandbox.game.Game`.

    Args:
        game: Id of a known game, a game's class, or a game, which is checked as it is configured.
        levels: Levels (perception, reasoning) to check at.
        seeds: Seeds of the episodes that are looked at.

    Returns:
        Notes on what was not reached and so not checked, one sentence each: an end that random play does not come to,
        an oracle that knows no action. Empty if everything was looked at.

    Raises:
        AssertionError: The game breaks the contract; the message names the check, the game and what is wrong.
    """
    games = [game] if isinstance(game, Game) else [at_level(game, *level) for level in levels]
    runs = [(check, games[0]) for check in CLASS_CHECKS] + [(check, each) for each in games for check in GAME_CHECKS]
    return [note for check, each in runs for note in run_check(check, each, seeds)]


def run_check(check: Check, game: AnyGame, seeds: Seeds = (0, 1)) -> list[str]:
    """Run one check, put its name and the game into the message of its failure, and return its notes likewise."""
    try:
        notes = check(game, seeds) or []
    except Exception as error:  # whatever a game raises where it must not is a finding about the game
        what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        raise AssertionError(f"{check_name(check)} fails for {game!r}: {what}") from error
    return [f"{check_name(check)} of {game!r}: {note}" for note in notes]


def check_name(check: Check) -> str:
    """The name of a check, for messages and test ids."""
    return check.__name__.removeprefix("check_")


def at_level(game: str | type[AnyGame], perception: int = 3, reasoning: int = 3, **knobs: Any) -> AnyGame:
    """A game at a difficulty, by its id or its class, which need not be registered."""
    if isinstance(game, str):
        return make_game(game, perception, reasoning, **knobs)
    return game(game.Config.at(perception, reasoning, **knobs))


# About the class ------------------------------------------------------------------------------------------------------


def check_identity(game: AnyGame, seeds: Seeds) -> None:
    """The id names this class, the class has a page, its positions are frozen values, and it is equal to its like."""
    found = type(game)
    if game.id in game_ids():
        assert game_class(game.id) is found, f"the id {game.id} is registered for {game_class(game.id)}"
    assert (found.__dict__.get("__doc__") or "").strip(), "the class has no docstring, which is its page in the docs"
    frozen = is_dataclass(found.State) and found.State.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert frozen, f"the positions' type {found.State.__name__} is no frozen dataclass"
    assert found(game.config) == game, "two games of the same configuration are not equal"


def check_knobs(game: AnyGame, seeds: Seeds) -> None:
    """Every knob is marked perceptual or reasoning, and a configuration cannot be changed."""
    knobs = game.Config.knobs()
    assert game.config.model_config.get("frozen"), "the configuration is not frozen"
    for dial in DIALS:
        for level in game.Config.dials.get(dial, {}).values():
            for name in level:
                assert name in knobs, f"the dial {dial} sets {name}, which is no knob"
                assert knobs[name] == dial, f"the dial {dial} sets {name}, which is marked {knobs[name]}"


def check_levels(game: AnyGame, seeds: Seeds) -> None:
    """Both dials have five different levels, the third is the default, and all 25 pairs start and draw at this size."""
    for dial in DIALS:
        levels = game.Config.dials.get(dial, {})
        assert sorted(levels) == list(LEVELS), f"the dial {dial} has levels {sorted(levels)}, not 1 to 5"
        configs = {level: game.Config.at(**{dial: level}) for level in LEVELS}
        for lower, higher in pairwise(LEVELS):
            assert configs[lower] != configs[higher], f"level {lower} of {dial} is the same as level {higher}"
    assert game.Config.at(3, 3) == game.Config(), "levels 3 and 3 are not the default configuration"
    for perception, reasoning in product(LEVELS, LEVELS):
        made = at_level(type(game), perception, reasoning, size=game.config.size)
        state = made.start(np.random.default_rng(seeds[0]))
        assert made.observation_space.contains(_observation(made, state)), (
            f"at levels {perception} and {reasoning} the picture is not in the observation space"
        )


# Chance ---------------------------------------------------------------------------------------------------------------


def check_determinism(game: AnyGame, seeds: Seeds) -> None:
    """The same seed and actions give the same episode, also in another game object of the same configuration."""
    for seed in seeds:
        _same(transcript(game, seed), transcript(_again(game), seed), f"seed {seed}, played twice")


def check_determinism_over_processes(game: AnyGame, seeds: Seeds) -> None:
    """A new process, with another hash seed, gives the same positions, rewards, words and pixels."""
    assert "<locals>" not in type(game).__qualname__, "another process cannot import a class made inside a function"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            theirs = pool.submit(_transcripts, type(game), game.config.model_dump_json(), list(seeds)).result()
        except BrokenProcessPool as error:
            raise AssertionError(
                "another process could not import the game: define it at the top of a module, and call check_game "
                'under `if __name__ == "__main__":` in a script'
            ) from error
    for seed, other in zip(seeds, theirs):
        _same(transcript(game, seed), other, f"seed {seed}, played in two processes")


def check_seeds(game: AnyGame, seeds: Seeds) -> None:
    """Different seeds give different episodes, where the same moves are chosen."""
    episodes = set()
    for seed in range(8):
        episode: Episode[Any, Any] = Episode(game, seed)
        states = [game.to_json(episode.state)]
        while episode.turn < 3 and episode.ended is None:
            episode.act(_legal(game, episode.state)[0])
            states.append(game.to_json(episode.state))
        episodes.add(tuple(states))
    assert len(episodes) > 1, "8 different seeds give the same episode"


def check_random_actions(game: AnyGame, seeds: Seeds) -> None:
    """Random actions come from the generator, and are of the action space's type."""
    for seed in seeds:
        drawn, again = ([g.random_action(np.random.default_rng([seed, i])) for i in range(20)] for g in (game, game))
        assert drawn == again, f"random_action gives {drawn} and then {again} from the same generators"
        for action in drawn:
            assert _in_space(game, action), f"the random action {action!r} is not in {game.action_space}"


def check_global_random_state(game: AnyGame, seeds: Seeds) -> None:
    """No method uses the random state of the module `random` or `numpy.random`."""
    before = random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - it must stay untouched
    again = _again(game)
    transcript(again, seeds[0])
    for state in islice(_walk(again, seeds[0]), 3):
        again.best_action(state)
        again.key_action(state, "up")
        for action in _legal(again, state)[:5]:
            score_response(again, state, again.respond(state, action), np.random.default_rng(0))
    after = random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    assert before[0] == after[0], "a method uses the global state of the module random"
    assert before[1] == after[1], "a method uses the global state of numpy.random"


# Positions are values -------------------------------------------------------------------------------------------------


def check_json_round_trip(game: AnyGame, seeds: Seeds) -> None:
    """A position survives JSON, and a text that is no position is refused with `StateError`."""
    for state in _positions(game, seeds):
        text = game.to_json(state)
        assert "\n" not in text, f"the JSON of a position has several lines: {text!r}"
        back = game.from_json(text)
        assert back == state, f"{state!r} comes back from JSON as {back!r}"
        assert game.to_json(back) == text, f"the JSON of {state!r} changes on the way: {text} and {game.to_json(back)}"
        assert hash(back) == hash(state), f"{state!r} and its copy from JSON are equal but their hashes differ"
    for text in ("", "nonsense", "null", "[]", '{"no such field": 1}'):
        try:
            state = game.from_json(text)
        except StateError:
            continue
        raise AssertionError(f"from_json takes {text!r} for the position {state!r}")


def check_restored_episode(game: AnyGame, seeds: Seeds) -> None:
    """An episode restored from JSON goes on exactly as the original."""
    for seed in seeds:
        original: Episode[Any, Any] = Episode(game, seed)
        chooser, other = np.random.default_rng(seed), _again(game)
        for turn in range(TURNS):
            stored = original.snapshot().model_dump_json()
            copy: Episode[Any, Any] = Episode.restore(other, Snapshot.model_validate_json(stored))
            action = _choose(game, original.state, chooser)
            if action is None:
                break
            expected, got = (_turn(episode, action) for episode in (original, copy))
            _same(expected, got, f"seed {seed}, turn {turn}, from a restored position")


def check_purity(game: AnyGame, seeds: Seeds) -> None:
    """No method changes the position or the configuration, and the order of calls does not matter."""
    for state in _positions(game, seeds):
        text, config = game.to_json(state), game.config.model_dump_json()
        methods: list[Callable[[Any], Any]] = [
            game.legal_actions,
            game.ended,
            game.describe,
            game.prompt,
            partial(game.metrics, infos=()),
            partial(_digest, game),
            partial(_sampled_steps, game),
        ]
        first = [method(state) for method in methods]
        second = [method(state) for method in reversed(methods)][::-1]
        _same(first, second, f"methods called in another order on {text}")
        assert game.to_json(state) == text, f"a method changed the position {text} to {game.to_json(state)}"
        assert game.config.model_dump_json() == config, "a method changed the configuration"


# Rules ----------------------------------------------------------------------------------------------------------------


def check_legal_actions(game: AnyGame, seeds: Seeds) -> None:
    """`step` accepts exactly the legal actions, over samples of the whole action space and beyond its edges."""
    for state in _positions(game, seeds):
        listed, legal = game.legal_actions(state), _legal(game, state)
        assert listed is None or len(set(legal)) == len(legal), f"legal_actions names an action twice: {legal}"
        for action in legal[:ACTIONS]:
            assert _in_space(game, action), f"the legal action {action!r} is not in {game.action_space}"
            back = game.to_action(json.loads(json.dumps(action)))
            assert back == action, f"the action {action!r} comes back from JSON as {back!r}"
        named = set(legal)
        for action in [*legal[:ACTIONS], *_actions(game), *_out_of_range(game)]:
            accepted = _accepts(game, state, action)
            expected = _in_space(game, action) if listed is None else action in named
            assert accepted == expected, (
                f"step {'accepts' if accepted else 'refuses'} {action!r}, and legal_actions "
                f"{'names' if expected else 'does not name'} it, in {game.to_json(state)}"
            )


def check_illegal_actions(game: AnyGame, seeds: Seeds) -> None:
    """An illegal action says why, does not move, and leaves the generator as it was."""
    for state in _positions(game, seeds):
        for action in [*islice(_actions(game), 50), *_out_of_range(game)]:
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
    for state in _positions(game, seeds):
        for action in _legal(game, state)[:20]:
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
    for state in _positions(game, seeds):
        reason, legal = game.ended(state), game.legal_actions(state)
        assert reason is None or reason.strip(), f"the reason of the end is empty in {game.to_json(state)}"
        assert (reason is None) == (legal is None or len(legal) > 0), (
            f"ended says {reason!r}, and the legal actions are {legal}, in {game.to_json(state)}"
        )
    for seed in seeds:
        end = _ended_position(game, seed)
        if end is None:
            unreached.append(str(seed))
            continue
        text = game.to_json(end)
        assert game.legal_actions(end) in ([], ()), f"there are legal actions in the ended position {text}"
        for action in islice(_actions(game), 50):
            assert not _accepts(game, end, action), f"step accepts {action!r} in the ended position {text}"
        try:
            score_action(game, end, next(_actions(game)), np.random.default_rng(0))
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
            _same(metrics, again, f"metrics from a record, seed {seed}, turn {turn}")
            action = game.random_action(chooser) if turn % 3 == 2 else _choose(game, episode.state, chooser)
            if turn == TURNS or episode.ended is not None or action is None:
                break
            infos.append(episode.act(action).info)


def check_oracle(game: AnyGame, seeds: Seeds) -> list[str]:
    """The oracle's action is legal wherever it knows one, and it always answers the same, also along its own play."""
    known = False
    for seed in seeds:
        for state in islice(_walk(game, seed), 3):
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
    assert best is None or _accepts(game, state, best), f"the oracle plays the illegal action {best!r} in {text}"
    again = _again(game).best_action(state)
    assert again == best, f"the oracle plays {best!r} and then {again!r} in {text}"
    return best


# Words ----------------------------------------------------------------------------------------------------------------


def check_format_and_parse(game: AnyGame, seeds: Seeds) -> None:
    """`parse` inverts `format` for every action, and anything else is refused with `ParseError`."""
    for action in _actions(game):
        words = game.format(action)
        back = game.parse_answer(words)
        assert back == action, f"the action {action!r} is written {words!r}, which is read as {back!r}"
        response = response_form.compose("", "", words)
        assert game.parse(response) == action, f"{response!r} is not read as {action!r}"
        for wrong in (words, f"{response}\n{response}", f"<answer>{words}"):
            _refuses_to_parse(game, wrong)
        if not isinstance(game.action_space, spaces.Text):
            _refuses_to_parse(game, f"<answer>{words} or {words}</answer>")
    for answer in ("", "   ", "9" * 5000):
        _refuses_to_parse(game, f"<answer>{answer}</answer>")
    if not isinstance(game.action_space, spaces.Text):
        for answer in ("no action at all", "<answer>", "\u00b9", "\x00"):
            _refuses_to_parse(game, f"<answer>{answer}</answer>")


def check_responses(game: AnyGame, seeds: Seeds) -> None:
    """`respond` gives a response that plays its action with perfect form and perception."""
    for state in _positions(game, seeds):
        for action in _legal(game, state)[:5]:
            response = game.respond(state, action)
            scored = score_response(game, state, response, np.random.default_rng(0))
            played = scored.outcome is Outcome.PLAYED and scored.action == action
            assert played, f"{response!r} is {scored.outcome.value} with {scored.action!r}, not {action!r} played"
            assert scored.format == 1.0, f"the form of {response!r} scores {scored.format}"
            assert scored.perception == (1.0, 1.0), f"the perception of {response!r} scores {scored.perception}"


def check_prompt(game: AnyGame, seeds: Seeds) -> None:
    """The prompt names the three sections of a response."""
    for state in _positions(game, seeds):
        prompt = game.prompt(state)
        for section in response_form.SECTIONS:
            assert f"<{section}>" in prompt, f"the prompt does not name <{section}>: {prompt!r}"


# Picture --------------------------------------------------------------------------------------------------------------


def check_pictures(game: AnyGame, seeds: Seeds) -> None:
    """Pictures are uint8 RGB of the announced shape; writing into one does not change the next."""
    for state in islice(_positions(game, seeds), 4):
        pictures = game.images(state)
        shapes = [picture.shape for picture in pictures]
        assert shapes == list(game.picture_shapes), f"draw returns shapes {shapes}, not {game.picture_shapes}"
        for picture in pictures:
            assert picture.dtype == np.uint8, f"the picture is {picture.dtype}, not uint8"
            assert picture.ndim == 3, f"the picture has {picture.ndim} axes, not 3"
            assert picture.shape[2] == 3, f"the picture has {picture.shape[2]} channels, not 3"
        assert game.observation_space.contains(_observation(game, state)), (
            f"pictures of shapes {[p.shape for p in pictures]} are not in {game.observation_space}"
        )
        before = _digest(game, state)
        for picture in pictures:
            if picture.flags.writeable:
                picture[...] = 255 - picture
        assert _digest(game, state) == before, "writing into a picture changes what is drawn next"
        assert _digest(_again(game), state) == before, f"two games draw {game.to_json(state)} differently"


def check_picture_and_description(game: AnyGame, seeds: Seeds) -> None:
    """Positions with different descriptions have different pictures."""
    seen: dict[tuple[str, ...], str] = {}
    for state in _positions(game, seeds):
        description = game.describe(state)
        assert description.strip(), f"the description of {game.to_json(state)} is empty"
        other = seen.setdefault(_digest(game, state), description)
        assert other == description, f"one picture has two descriptions, {other!r} and {description!r}"


def check_environment(game: AnyGame, seeds: Seeds) -> None:
    """Gymnasium's own checker accepts the environment without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(GameEnv(game), skip_render_check=True)  # other render modes need an id to make them by


CLASS_CHECKS: tuple[Check, ...] = (check_identity, check_knobs, check_levels)
"""Checks that look at the class, at whatever level the game is."""

GAME_CHECKS: tuple[Check, ...] = (
    check_determinism,
    check_determinism_over_processes,
    check_seeds,
    check_random_actions,
    check_global_random_state,
    check_json_round_trip,
    check_restored_episode,
    check_purity,
    check_legal_actions,
    check_illegal_actions,
    check_steps,
    check_end,
    check_metrics,
    check_oracle,
    check_format_and_parse,
    check_responses,
    check_prompt,
    check_pictures,
    check_picture_and_description,
    check_environment,
)
"""Checks that look at a game as it is configured."""

CHECKS: tuple[Check, ...] = (*CLASS_CHECKS, *GAME_CHECKS)


# How positions and actions are come by --------------------------------------------------------------------------------


def transcript(game: AnyGame, seed: int, turns: int = TURNS) -> list[dict[str, Any]]:
    """What an episode of random play shows in each turn, legal or not: everything that a seed decides."""
    chooser = np.random.default_rng([seed, 1])
    episode: Episode[Any, Any] = Episode(game, seed)
    shown = [_facts(game, episode.state)]
    infos: list[Mapping[str, Any]] = []
    for turn in range(turns):
        if episode.ended is not None:
            break
        action = game.random_action(chooser) if turn % 3 == 2 else _choose(game, episode.state, chooser)
        shown.append(_turn(episode, action))
        infos.append(json.loads(shown[-1]["info"]))
        shown[-1]["metrics"] = dict(game.metrics(episode.state, infos))
    return shown


def _transcripts(game: type[AnyGame], config: str, seeds: Seeds) -> list[list[dict[str, Any]]]:
    """Transcripts in another process; the configuration comes as JSON, as it does from a record."""
    made = game(game.Config.model_validate_json(config))
    return [transcript(made, seed) for seed in seeds]


def _turn(episode: Episode[Any, Any], action: Any) -> dict[str, Any]:
    scored = episode.act(action)
    return {
        "action": repr(action),
        "reward": scored.overall,
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
        "legal actions": repr(_legal(game, state)),
        "end": game.ended(state),
        "description": game.describe(state),
        "prompt": game.prompt(state),
        "pixels": _digest(game, state),
    }


def _walk(game: AnyGame, seed: int) -> Iterator[Any]:
    """The positions of an episode of random legal moves."""
    chooser, rng = np.random.default_rng([seed, 2]), np.random.default_rng(seed)
    state = game.start(rng)
    yield state
    for _ in range(TURNS):
        if (action := _choose(game, state, chooser)) is None:
            return
        state = game.step(state, action, rng).state
        yield state


def _positions(game: AnyGame, seeds: Seeds) -> Iterator[Any]:
    for seed in seeds:
        yield from _walk(game, seed)


def _choose(game: AnyGame, state: Any, chooser: np.random.Generator) -> Any:
    """A legal action by chance, None if there is none."""
    legal = _legal(game, state)
    return legal[int(chooser.integers(len(legal)))] if legal else None


def _legal(game: AnyGame, state: Any) -> list[Any]:
    """The legal actions, or samples of the space where they cannot be listed."""
    listed = game.legal_actions(state)
    return list(islice(_actions(game), 50)) if listed is None else list(listed)


def _ended_position(game: AnyGame, seed: int) -> Any:
    """An ended position that random play reaches, None if it does not."""
    chooser, rng = np.random.default_rng([seed, 3]), np.random.default_rng(seed)
    state = game.start(rng)
    for _ in range(TURNS_TO_THE_END):
        if game.ended(state) is not None:
            return state
        if (action := _choose(game, state, chooser)) is None:
            return None
        state = game.step(state, action, rng).state
    return None


def _actions(game: AnyGame) -> Iterator[Any]:
    """All actions of a small space, samples of a large one."""
    space = game.action_space
    if isinstance(space, spaces.Discrete) and space.n <= ACTIONS:
        yield from range(int(space.start), int(space.start + space.n))
    elif isinstance(space, spaces.MultiDiscrete) and space.nvec.prod() <= ACTIONS:
        yield from product(*map(range, space.nvec.tolist()))
    else:
        rng = np.random.default_rng(0)
        for _ in range(ACTIONS):
            yield game.random_action(rng)


def _out_of_range(game: AnyGame) -> list[Any]:
    """Actions of the space's type just beyond its edges; -1 is a valid index in Python, and no action."""
    space = game.action_space
    if isinstance(space, spaces.Discrete):
        return [int(space.start) - 1, int(space.start + space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        inside = [0] * space.nvec.size
        edges = [(i, beyond) for i, n in enumerate(space.nvec.tolist()) for beyond in (-1, n, 10**6)]
        return [(*inside[:i], beyond, *inside[i + 1 :]) for i, beyond in edges]
    return []


def _accepts(game: AnyGame, state: Any, action: Any) -> bool:
    try:
        game.step(state, action, np.random.default_rng(0))
    except IllegalAction:
        return False
    return True


def _sampled_steps(game: AnyGame, state: Any) -> list[str]:
    """Where some legal steps lead."""
    legal = _legal(game, state)[:5]
    return [game.to_json(game.step(state, action, np.random.default_rng(0)).state) for action in legal]


def _refuses_to_parse(game: AnyGame, response: str) -> None:
    try:
        action = game.parse(response)
    except ParseError as error:
        reason = str(error)
    else:
        raise AssertionError(f"parse takes {response[:80]!r} for the action {action!r}")
    assert reason, f"parse refuses {response[:80]!r} without a reason"


def _in_space(game: AnyGame, action: Any) -> bool:
    try:
        fits = game.to_action(action) == action
    except UsageError:
        return False
    return fits and game.action_space.contains(np.asarray(action) if isinstance(action, tuple) else action)


def _again(game: AnyGame) -> AnyGame:
    """Another game object of the same class and configuration, without what the first has cached."""
    return type(game)(game.config)


def _observation(game: AnyGame, state: Any) -> Any:
    pictures = game.images(state)
    return pictures[0] if len(pictures) == 1 else tuple(pictures)


def _digest(game: AnyGame, state: Any) -> tuple[str, ...]:
    """The pictures of a position as hashes."""
    return tuple(
        hashlib.sha256(repr((p.shape, p.dtype)).encode() + p.tobytes()).hexdigest() for p in game.images(state)
    )


def _same(expected: Any, got: Any, where: str) -> None:
    """Assert that two nested values are equal, naming the first part that differs."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in expected:
            _same(expected[key], got.get(key), f"{where}, {key}")
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for index, (one, other) in enumerate(zip(expected, got)):
            _same(one, other, f"{where}, {index}")
    else:
        assert expected == got, f"{where}: {expected!r} and {got!r} differ"
