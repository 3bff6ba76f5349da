"""Small Gymnasium environments for tests, registered on import."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces

import vlmgym
from vlmgym.sandbox.core.episode import Episode

TOY_TEXT = [
    max((spec for spec in gymnasium.registry.values() if spec.name == name), key=lambda spec: spec.version or 0).id
    for name in ("CliffWalking", "Taxi", "Blackjack")
]
"""Ids of the newest versions of some of Gymnasium's Toy Text environments."""


class Probe(gymnasium.Env[Any, Any]):
    """A counter whose action space, rendering, randomness and time limit can be chosen."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as in Env
    steps: ClassVar[int] = 0
    observation_space = spaces.Discrete(1000)

    def __init__(self, render_mode: str, kind: str = "discrete", flaw: str = "") -> None:
        self.render_mode, self.flaw = render_mode, flaw
        self.action_space = {
            "discrete": spaces.Discrete(3, start=-1),
            "multi": spaces.MultiDiscrete([2, 3]),
            "box": spaces.Box(-1, 1, (2,)),
            "wide box": spaces.Box(-1, 1, (9,)),
            "unbounded box": spaces.Box(-np.inf, 1, (1,)),
            "dict": spaces.Dict({"a": spaces.Discrete(2)}),
        }[kind]
        if flaw == "mode":
            self.metadata = {"render_modes": ["ansi"]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.shade = int(self.np_random.integers(256))
        self.played: list[Any] = []
        return self.shade, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        Probe.steps += 1
        assert self.action_space.contains(action), action
        rng = np.random.default_rng() if self.flaw == "random" else self.np_random
        self.shade = int(rng.integers(256))
        self.played.append(np.asarray(action).tolist())
        return (
            self.shade,
            self.shade / 10,
            len(self.played) == 25 and self.flaw != "endless",
            False,
            {"array": np.zeros(3), "played": "x"},
        )

    def render(self) -> Any:
        return "text" if self.flaw == "frame" else np.full((4, 6, 3), self.shade, np.uint8)


class Screen(Probe):
    """An imitation of ALE: it can clone its state, redraws only on steps, and with `sticky`, may repeat an action."""

    def __init__(self, render_mode: str, sticky: float = 0.0) -> None:
        super().__init__(render_mode)
        self.ale, self.sticky, self.last = self, sticky, 0

    def getFloat(self, name: str) -> float:
        return self.sticky

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        found = super().reset(seed=seed)
        self.last, self.screen = 0, self.shade
        return found

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        action, self.last = (self.last if self.sticky and self.np_random.random() < self.sticky else action), action
        result = super().step(action)
        self.screen = self.shade
        return result[0], result[1] + int(action), *result[2:]

    def render(self) -> Any:
        return np.full((4, 6, 3), self.screen, np.uint8)

    def clone_state(self, include_rng: bool) -> Any:
        return self.shade, [*self.played], self.np_random.bit_generator.state

    def restore_state(self, state: Any) -> None:
        self.shade, self.np_random.bit_generator.state = state[0], state[2]
        self.played = [*state[1]]


gymnasium.register("Probe-v0", entry_point=cast(Any, Probe), max_episode_steps=30)
gymnasium.register("Endless-v0", entry_point=cast(Any, Probe), kwargs={"kind": "discrete", "flaw": "endless"})
gymnasium.register("Unversioned", entry_point=cast(Any, Probe))
gymnasium.register("ShortProbe-v3", entry_point=cast(Any, Probe), max_episode_steps=5)
gymnasium.register("Screen-v0", entry_point=cast(Any, Screen), disable_env_checker=True)


def play(game: vlmgym.Game[Any, Any], seed: int, actions: list[int]) -> list[Any]:
    episode = Episode(game, seed)
    return [(episode.act(action).game, game.images(episode.state)[-1].tobytes(), episode.ended) for action in actions]
