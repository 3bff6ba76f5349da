"""The environment that workers run: a `GameEnv` that draws into shared memory."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from vlmgym.checks import check_instance
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored
from vlmgym.sandbox.drawing.encode import side_by_side
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray, SharedArray

OUTCOME_NAMES = ("", *(outcome.value for outcome in Outcome))
"""Names of the values 0, 1, ... of `outcome` in `STEP_DTYPE`; 0 stands for a reset."""
STEP_DTYPE = np.dtype(
    [
        ("reward", np.float64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
        ("over", np.bool_),
        ("score", np.float64),
        ("turn", np.int64),
        ("seed", np.int64),
        ("outcome", np.uint8),
    ]
)
"""Numeric results of one environment after a step or reset."""
StepNumbers = tuple[float, bool, bool, bool, float, int, int, int]
"""One element of an array of type `STEP_DTYPE`."""

_INTERNAL_ATTRIBUTES = frozenset({"settings", "frames", "over", "last_outcome"})
_ALTERNATIVES = {
    "game": "create another vector environment",
    "episode": "use set_states",
    "np_random": "use the seed of reset",
    "np_random_seed": "use the seed of reset",
    "render_mode": "use image or render",
    "action_space": "the game defines it",
    "observation_space": "the game defines it",
    "metadata": "the vector environment defines it",
    "spec": "the vector environment defines it",
}
"""Attributes that cannot be set, with advice for the error message."""


@dataclass(frozen=True, slots=True)
class EnvSettings:
    """Settings that all environments of a vector environment share."""

    reward: RewardConfig
    autoreset: AutoresetMode
    max_turns: int | None
    full_info: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything needed to restore an environment.

    Attributes:
        snapshot: Snapshot of the running episode.
        seeder: State of the generator that draws the seeds of later episodes.
        over: True if the episode is over. The next step then resets the environment, unless autoreset is disabled.
    """

    snapshot: Snapshot
    seeder: dict[str, Any]
    over: bool


class FrameBuffer:
    """Images of one environment, in the vector environment's memory. After the first frame, only changes are drawn."""

    def __init__(self, arrays: Sequence[PrivateArray], index: int, scratch: Sequence[ImageArray]) -> None:
        """Use the memory of one environment.

        Args:
            arrays: For each image of the game, the frames of all environments.
            index: Index of the environment.
            scratch: For each image, an array into which the first frame is drawn before it is written to shared memory.
        """
        self.images: list[ImageArray] = [array.array()[index] for array in arrays]
        self._shared = [array for array in arrays if isinstance(array, SharedArray)]
        self._index, self._scratch = index, scratch
        self._drawn: Any = None

    def draw(self, game: Game[Any, Any], state: Any) -> None:
        """Draw the images of a state."""
        if self._drawn is None and self._shared:
            game.draw_into(state, self._scratch)
            for array, image in zip(self._shared, self._scratch, strict=True):
                array.write_first(self._index, image)
        else:
            game.draw_into(state, self.images, self._drawn)
        self._drawn = state


class FrameEnv(GameEnv):
    """A `GameEnv` that draws into a `FrameBuffer` instead of returning observations."""

    def __init__(self, game: Game[Any, Any], settings: EnvSettings, frames: FrameBuffer | None) -> None:
        """Create an environment; without `frames` it does not draw."""
        super().__init__(game, reward=settings.reward, render_mode="rgb_array")
        self.settings, self.frames = settings, frames
        self.over = False
        self.last_outcome = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `GameEnv.reset`; the observation returned is None."""
        result = super().reset(seed=seed, options=options)
        self.over = self.episode.ended is not None or self._at_limit()
        return result

    def play(self, action: Any) -> tuple[float, bool, bool, dict[str, Any]]:
        """Take a turn with an action from `to_action`; return reward, terminated, truncated and info."""
        scored = self._take_turn(action)
        self._draw()
        truncated = not scored.terminated and self._at_limit()
        self.over = scored.terminated or truncated
        return scored.total, scored.terminated, truncated, self._info(scored)

    def _at_limit(self) -> bool:
        return self.settings.max_turns is not None and self.episode.turn >= self.settings.max_turns

    def render(self) -> ImageArray:
        """Draw and return the current image, even if steps are not drawn."""
        return side_by_side(self.game.images(self.episode.state))

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute that `check_attribute` accepts."""
        setattr(self, name, value)
        if name == "reward" and self._episode is not None:
            self._episode.reward = value

    def numbers(self, reward: float, terminated: bool, truncated: bool) -> StepNumbers:
        """Return the numeric results of the last step or reset, in the order of `STEP_DTYPE`."""
        episode, outcome = self.episode, OUTCOME_NAMES.index(self.last_outcome)
        return reward, terminated, truncated, self.over, episode.score, episode.turn, episode.seed, outcome

    def checkpoint(self) -> bytes:
        """Return a pickled `Checkpoint`."""
        return pickle.dumps(Checkpoint(self.snapshot(), dict(self.np_random.bit_generator.state), self.over))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore a checkpoint; the environment continues exactly as the original."""
        self.reset(options={"snapshot": checkpoint.snapshot})
        self.np_random.bit_generator.state = checkpoint.seeder
        self.over = checkpoint.over

    def keep_frame(self, out: Sequence[ImageArray]) -> None:
        """Copy the current images to `out`, before the next episode replaces them."""
        for target, frame in zip(out, self.frames.images if self.frames else (), strict=True):
            target[:] = frame

    def _draw(self) -> None:
        if self.frames is not None:
            self.frames.draw(self.game, self.episode.state)

    def _observation(self) -> None:
        return None

    def _info(self, scored: Scored[Any, Any] | None) -> dict[str, Any]:
        self.last_outcome = "" if scored is None else scored.outcome.value
        return super()._info(scored) if self.settings.full_info else {}


def check_attribute(name: str, value: Any) -> None:
    """Raise `UsageError` unless an attribute can be set: `reward`, or one that environments do not have."""
    if name in _ALTERNATIVES:
        raise UsageError(f"cannot set {name!r}: {_ALTERNATIVES[name]}")
    if name == "reward":
        check_instance("reward", value, RewardConfig)
    elif name.startswith("_") or hasattr(FrameEnv, name) or name in _INTERNAL_ATTRIBUTES:
        raise UsageError(f"cannot set {name!r}: it is an internal attribute of the environments")
