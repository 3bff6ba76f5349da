"""Small Gymnasium environments for tests, registered on import."""

from __future__ import annotations

from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces

import vlmgym
from vlmgym.sandbox.core.episode import Episode


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


gymnasium.register("Probe-v0", entry_point=cast(Any, Probe), max_episode_steps=30)
gymnasium.register("Endless-v0", entry_point=cast(Any, Probe), kwargs={"kind": "discrete", "flaw": "endless"})
gymnasium.register("Unversioned", entry_point=cast(Any, Probe))
gymnasium.register("ShortProbe-v3", entry_point=cast(Any, Probe), max_episode_steps=5)


def play(game: vlmgym.Game[Any, Any], seed: int, actions: list[int]) -> list[Any]:
    episode = Episode(game, seed)
    return [(episode.act(action).game, game.images(episode.state)[-1].tobytes(), episode.ended) for action in actions]
