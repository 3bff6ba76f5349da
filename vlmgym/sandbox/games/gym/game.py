"""Play any Gymnasium environment that renders images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from PIL import Image

from vlmgym.errors import IllegalAction, StateError
from vlmgym.sandbox.core.config import GameConfig
from vlmgym.sandbox.core.game import NOT_DESCRIBED, Game, ImageArray, Infos, Metrics, Step
from vlmgym.sandbox.data.images import letterbox
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.gym.actions import Action, Actions, make_actions
from vlmgym.sandbox.games.gym.envs import (
    TRUTHS,
    GymConfig,
    Words,
    attribute_words,
    find_words,
    make_env,
    meanings_of,
)
from vlmgym.sandbox.games.gym.live import GymState, LiveEnvs

PREFIX = "gym:"

PROMPT_V1 = """\
{rules}{shown}{repeated}
Actions: {actions}.
{form}"""


class GymGame(Game[GymState, Action]):
    """Play a Gymnasium environment, for example `gym:FrozenLake-v1`.

    Description:
        Any environment with `rgb_array` rendering and a Discrete, MultiDiscrete or bounded one-dimensional Box action
        space of at most 4,096 actions. The environment sets the rules. An episode with seed n starts with
        `env.reset(seed=n)`, which determines all its randomness.

    Observation:
        The rendered frame, scaled to fit a square. With `frames` above 1, the most recent frames, oldest first.

    Action:
        The action space of the environment; each dimension of a Box becomes an index of `box_values` evenly spaced
        values.

    Reward:
        The environment's reward, summed over the repetitions of an action. An invalid response earns `frame_skip`
        times `invalid`, which the config or the family's file sets (default 0), and does not advance the environment.
        Atari games play noop instead, unless the config sets `invalid`.

    Episode end:
        The environment terminates or truncates the episode, for example at its time limit. Metric: success (a positive
        total reward), if the family's file sets `success`.
    """

    name = "gym"
    Config = GymConfig
    State = GymState
    prompt_template = PROMPT_V1
    replayed = True

    def __init__(self, config: GameConfig | None = None) -> None:
        super().__init__(config)
        c = self.config
        first = make_env(c.env, c.options, c.sticky)
        vars(self)["name"] = PREFIX + re.sub(r"-v[0-9]+$", "", c.env)
        self.words: Words = find_words(c.env)[1]
        self.answer: Actions = make_actions(
            c.env,
            first.action_space,
            c.actions or self.words.actions,
            meanings_of(first),
            c.box_values,
            self.words.keys,
        )
        self.illegal_reward = c.frame_skip * (self.words.invalid if c.invalid is None else c.invalid)
        self._noop = self.words.noop if c.invalid is None else None
        self.invalid_keeps_state = self._noop is None
        self.images_per_state = c.frames
        self._live = LiveEnvs(c, first, self.answer, self._read)

    @property
    def id(self) -> str:
        """`gym:` and the id of the environment."""
        return PREFIX + str(self.config.env)

    def start(self, rng: np.random.Generator) -> GymState:
        return self.start_at(int(rng.integers(2**31)), rng)

    def start_at(self, seed: int, rng: np.random.Generator) -> GymState:
        """Reset an environment with the seed; return the initial state."""
        self._live.start(seed)
        return GymState(seed)

    def on_invalid(self, state: GymState, rng: np.random.Generator) -> Step[GymState]:
        """Play the family's noop, if it has one and the config does not set `invalid`."""
        if self._noop is None:
            return super().on_invalid(state, rng)
        return self.step(state, self.answer.all[self._noop], rng)

    def legal_actions(self, state: GymState) -> tuple[Action, ...]:
        return () if state.end else self.answer.all

    def step(self, state: GymState, action: Action, rng: np.random.Generator) -> Step[GymState]:
        if not isinstance(action, int | tuple) or isinstance(action, bool) or action not in self.answer.codes:
            raise IllegalAction(f"{action!r} is not an action of {self.answer.space}")
        result = self._live.step(state, action)
        info = {name: plain for name, value in result.info.items() if (plain := _plain(value)) is not None}
        return Step(result.state, result.reward, {**info, "reward": result.reward})

    def ended(self, state: GymState) -> str | None:
        return state.end

    def metrics(self, state: GymState, infos: Infos) -> Metrics:
        if not self.words.success:
            return {}
        return {"success": float(sum(info.get("reward", 0.0) for info in infos) > 0)}

    def draw(self, state: GymState) -> list[ImageArray]:
        frames = self._live.view(state).frames
        size, seed = self.config.size, state.seed + self._steps(state)
        return [
            degrade(letterbox(Image.fromarray(frame), size), self.config, seed, index)
            for index, frame in enumerate(frames)
        ]

    def describe(self, state: GymState) -> str:
        if self.words.truth is None:
            return NOT_DESCRIBED
        return self._live.view(state).facts["truth"]

    @property
    def image_source(self) -> str:
        return f"frames of the Gymnasium environment {self.id.removeprefix(PREFIX)}"

    @property
    def no_text_observation(self) -> str | None:
        return "its image has no text description" if self.words.truth is None else None

    def prompt(self, state: GymState) -> str:
        c, facts = self.config, {"env": re.split("[:/]", self.name)[-1]}
        if c.rules is None and self.words.attributes:
            facts |= self._live.view(state).facts
        repeated = f" Each action is repeated {c.frame_skip} times." if c.frame_skip > 1 else ""
        shown = f" The {c.frames} images show the latest frames, oldest first." if c.frames > 1 else ""
        return self.fill_prompt(
            self.words.perception,
            rules=self.words.rules.format_map(facts) if c.rules is None else c.rules,
            shown=shown,
            repeated=repeated,
        )

    def check_state(self, state: GymState) -> None:
        """Check a state by replaying its actions, unless an environment is already in this state."""
        if (end := self._live.end(state)) != state.end:
            raise StateError(f"the episode is {end or 'running'}, not {state.end}")

    def check_restorable(self) -> None:
        self._live.check_deterministic()

    def to_record(self, state: GymState) -> dict[str, Any]:
        """Seed, number of actions, and digest of the actions."""
        digest = blake2b(state.actions.encode(), digest_size=16).hexdigest()
        return {"seed": state.seed, "steps": self._steps(state), "digest": digest}

    def _steps(self, state: GymState) -> int:
        return len(state.actions) // self.answer.code_length

    def _read(self, env: Any) -> Mapping[str, str]:
        """Read the attributes that the rules insert, and the description of the image if there is one."""
        facts = {name: attribute_words(getattr(env, name, None)) for name in self.words.attributes}
        return facts if self.words.truth is None else {**facts, "truth": TRUTHS[self.words.truth](env)}


def _plain(value: Any) -> Any:
    """Convert a finite number, boolean or string to a plain Python value; return None for any other value."""
    data = value.item() if isinstance(value, np.generic) else value
    if isinstance(data, float) and not np.isfinite(data):
        return None
    return data if isinstance(data, bool | int | float | str) else None
