"""The environments that one process of a vector runner owns: stepped one after another, drawn into shared memory."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vlmgym.checks import check_instance
from vlmgym.errors import GenerationError, UsageError
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored
from vlmgym.sandbox.envs.single import GameEnv
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray, SharedArray
from vlmgym.sandbox.rendering.images import side_by_side

OUTCOMES = ("", *(outcome.value for outcome in Outcome))
"""Words of `Row.outcome`; the first stands for a reset."""

ROW = np.dtype(
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
"""The numbers of one environment after a step."""

CHECKPOINT_EVERY = 32
"""Steps of an environment between two checkpoints, from which it can be restored by playing at most so many again."""


Row = tuple[float, bool, bool, bool, float, int, int, int]
"""One element of `ROW`."""

_OWN = frozenset({"settings", "frames", "over", "last_outcome"})
"""Attributes of `FrameEnv`."""
_INSTEAD_OF_SETTING = {
    "game": "make another runner",
    "episode": "use set_states",
    "np_random": "use the seed of reset",
    "np_random_seed": "use the seed of reset",
    "render_mode": "use image or render",
    "action_space": "it is the game's",
    "observation_space": "it is the game's",
    "metadata": "it is the runner's",
    "spec": "it is the runner's",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What all environments of a vector runner have in common."""

    reward: RewardConfig
    autoreset: AutoresetMode
    max_turns: int | None
    words: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An environment as a value.

    Attributes:
        snapshot: Its episode.
        seeder: State of the generator that draws the seeds of the episodes that follow.
        over: Whether the episode is over and the next step resets.
    """

    snapshot: Snapshot
    seeder: dict[str, Any]
    over: bool


@dataclass(slots=True)
class Reply:
    """What does not fit into the table of numbers; environments are numbered within the worker.

    Attributes:
        words: Description, legal actions and the like, if asked for.
        final_info: Info of episodes that ended in this step, where the step also reset them.
        checkpoints: New ones, pickled `Checkpoint`s: most are replaced without ever being looked at.
    """

    words: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_info: dict[int, dict[str, Any]] = field(default_factory=dict)
    checkpoints: dict[int, bytes] = field(default_factory=dict)


class Frames:
    """The frames of one environment: drawn once, and then only what changed."""

    def __init__(self, arrays: Sequence[PrivateArray], index: int, scratch: Sequence[ImageArray]) -> None:
        """Take the memory.

        Args:
            arrays: For each image, those of all environments.
            index: Number of the environment in there.
            scratch: Images that may be overwritten at any time, to write shared memory from for the first time.
        """
        self.images: list[ImageArray] = [array.array()[index] for array in arrays]
        self._shared = [array for array in arrays if isinstance(array, SharedArray)]
        self._index, self._scratch = index, scratch
        self._shown: Any = None

    def draw(self, game: Game[Any, Any], state: Any) -> None:
        """Show a position."""
        if self._shown is None and self._shared:
            game.draw_into(state, self._scratch)
            for array, image in zip(self._shared, self._scratch, strict=True):
                array.write_first(self._index, image)
        else:
            game.draw_into(state, self.images, self._shown)
        self._shown = state


class FrameEnv(GameEnv):
    """A `GameEnv` that draws what changed into memory it is given, instead of making observations."""

    def __init__(self, game: Game[Any, Any], settings: Settings, frames: Frames | None) -> None:
        """Make an environment.

        Args:
            game: The game.
            settings: Reward, turn limit, kind of info.
            frames: Where to draw; None: do not draw.
        """
        super().__init__(game, reward=settings.reward, render_mode="rgb_array")
        self.settings, self.frames = settings, frames
        self.over = False
        self.last_outcome = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As `GameEnv.reset`, without an observation."""
        result = super().reset(seed=seed, options=options)
        self.over = self.episode.ended is not None or self._at_limit()
        return result

    def play(self, action: Any) -> tuple[float, bool, bool, dict[str, Any]]:
        """Take a turn with what `to_action` made of an action: reward, terminated, truncated at the limit, and info."""
        scored = self._take_turn(action)
        self._draw()
        truncated = not scored.terminated and self._at_limit()
        self.over = scored.terminated or truncated
        return scored.total, scored.terminated, truncated, self._info(scored)

    def _at_limit(self) -> bool:
        return self.settings.max_turns is not None and self.episode.turn >= self.settings.max_turns

    def render(self) -> ImageArray:
        """The image of the position, also where steps do not draw."""
        return side_by_side(self.game.images(self.episode.state))

    def set_attribute(self, name: str, value: Any) -> None:
        """Set an attribute that `check_attribute` lets pass."""
        setattr(self, name, value)
        if name == "reward" and self._episode is not None:
            self._episode.reward = value

    def row(self, reward: float, terminated: bool, truncated: bool) -> Row:
        """The numbers after a step."""
        episode, outcome = self.episode, OUTCOMES.index(self.last_outcome)
        return reward, terminated, truncated, self.over, episode.score, episode.turn, episode.seed, outcome

    def checkpoint(self) -> bytes:
        """The environment as a pickled `Checkpoint`."""
        return pickle.dumps(Checkpoint(self.snapshot(), dict(self.np_random.bit_generator.state), self.over))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint exactly as the environment that it is of would have."""
        self.reset(options={"snapshot": checkpoint.snapshot})
        self.np_random.bit_generator.state = checkpoint.seeder
        self.over = checkpoint.over

    def keep_frame(self, out: Sequence[ImageArray]) -> None:
        """Copy what is shown, for an episode that ended, before its next one is drawn."""
        for target, frame in zip(out, self.frames.images if self.frames else (), strict=True):
            target[:] = frame

    def _draw(self) -> None:
        if self.frames is not None:
            self.frames.draw(self.game, self.episode.state)

    def _observation(self) -> None:
        return None

    def _info(self, scored: Scored[Any, Any] | None) -> dict[str, Any]:
        self.last_outcome = "" if scored is None else scored.outcome.value
        return super()._info(scored) if self.settings.words else {}


def check_attribute(name: str, value: Any) -> None:
    """Refuse to set what the environments live by: all but `reward`, and names that they do not have.

    Raises:
        UsageError: The message says what to do instead.
    """
    if name in _INSTEAD_OF_SETTING:
        raise UsageError(f"{name!r} cannot be set: {_INSTEAD_OF_SETTING[name]}")
    if name == "reward":
        check_instance("reward", value, RewardConfig)
    elif name.startswith("_") or hasattr(FrameEnv, name) or name in _OWN:
        raise UsageError(f"{name!r} cannot be set: the environments have it for themselves")


class EnvWorker:
    """Environments numbered from 0, the numbers of their last step in a table, their images in frames."""

    def __init__(
        self,
        games: Sequence[Game[Any, Any]],
        settings: Settings,
        attributes: Sequence[Mapping[str, Any]],
        first: int,
        table: NDArray[Any],
        frames: Sequence[PrivateArray] | None,
        final_frames: Sequence[NDArray[np.uint8]] | None,
    ) -> None:
        """Make the environments.

        Args:
            games: The game of each environment.
            settings: What they have in common.
            attributes: What is set of each environment, see `FrameEnv.set_attribute`.
            first: Number in the runner of the first one.
            table: Array of `ROW`, shape (environments,).
            frames: For each image of the games, the frames of all environments of the runner, uint8 of shape
                (environments of the runner, size, size, 3); None: do not draw.
            final_frames: For each image, uint8 of shape (environments, size, size, 3): the last images of episodes
                that are reset in the step that ends them.
        """
        self.settings, self.first, self.table = settings, first, table
        self.final_frames = final_frames
        scratch = [np.empty(array.shape[1:], np.uint8) for array in frames or ()]
        self.envs = [
            FrameEnv(game, settings, None if frames is None else Frames(frames, first + i, scratch))
            for i, game in enumerate(games)
        ]
        self._steps = [0] * len(games)
        for i, given in enumerate(attributes):
            for name, value in given.items():
                self.envs[i].set_attribute(name, value)

    def reset(self, ids: Sequence[int], seeds: Sequence[int | None], snapshots: Sequence[Snapshot | None]) -> Reply:
        """Start or restore episodes; see `GameEnv.reset`.

        Raises:
            GenerationError: A game could not start an episode; other environments may have started theirs.
        """
        reply, rows = Reply(), []
        for i, seed, snapshot in zip(ids, seeds, snapshots, strict=True):
            self._start(i, reply, seed, snapshot)
            rows.append(self.envs[i].row(0.0, False, False))
            self._steps[i] = 0
            reply.checkpoints[i] = self.envs[i].checkpoint()
        self.table[ids] = rows
        return reply

    def step(self, ids: Sequence[int], actions: Sequence[Any]) -> Reply:
        """Take a turn in some environments, with what `to_action` made of the actions.

        Raises:
            GenerationError: A game could not start the next episode; other environments may have taken their turns.
        """
        reply, rows = Reply(), []
        for i, action in zip(ids, actions, strict=True):
            rows.append(self._step(i, action, reply))
            self._steps[i] += 1
            # Environments take turns, so that no step makes the checkpoints of all.
            if (self._steps[i] + i) % CHECKPOINT_EVERY == 0:
                reply.checkpoints[i] = self.envs[i].checkpoint()
        self.table[ids] = rows  # at once: setting one row of a structured array takes longer than most rules
        return reply

    def restore(self, checkpoints: Sequence[bytes | None], actions: Sequence[Sequence[Any]]) -> Reply:
        """Bring all environments to where a lost process had them: from a checkpoint, by the actions since."""
        reply = Reply()
        for i, (checkpoint, since) in enumerate(zip(checkpoints, actions, strict=True)):
            if checkpoint is None:
                continue
            self.envs[i].restore(pickle.loads(checkpoint))
            row = self.envs[i].row(0.0, False, False)
            for action in since:
                row = self._step(i, action, reply)
            self.table[i] = row
            self._steps[i] = len(since)
            reply.checkpoints[i] = self.envs[i].checkpoint()
        return reply

    def call(self, ids: Sequence[int], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """An attribute of each environment, called if it can be."""
        results = []
        for i in ids:
            if not hasattr(self.envs[i], name):
                raise UsageError(f"the environments have no attribute {name!r}")
            attribute = getattr(self.envs[i], name)
            if i == ids[0] and callable(attribute):
                try:
                    inspect.signature(attribute).bind(*args, **kwargs)
                except TypeError as error:
                    raise UsageError(f"{name!r} does not take these arguments: {error}") from None
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def set_attributes(self, ids: Sequence[int], values: Sequence[Any], name: str) -> None:
        """Set an attribute of each environment; see `FrameEnv.set_attribute`."""
        for i, value in zip(ids, values, strict=True):
            self.envs[i].set_attribute(name, value)

    def _step(self, i: int, action: Any, reply: Reply) -> Row:
        env = self.envs[i]
        if env.over:
            # AutoresetMode.NEXT_STEP: the action is not looked at.
            self._start(i, reply)
            return env.row(0.0, False, False)
        reward, terminated, truncated, info = env.play(action)
        if env.over and self.settings.autoreset is AutoresetMode.SAME_STEP:
            episode = env.episode
            numbers = {"score": episode.score, "turn": episode.turn, "seed": episode.seed}
            reply.final_info[i] = {**numbers, "outcome": env.last_outcome, **info}
            if self.final_frames is not None:
                env.keep_frame([images[i] for images in self.final_frames])
            self._start(i, reply)
        elif self.settings.words:
            reply.words[i] = info
        return env.row(reward, terminated, truncated)

    def _start(self, i: int, reply: Reply, seed: int | None = None, snapshot: Snapshot | None = None) -> None:
        try:
            _, info = self.envs[i].reset(seed=seed, options=None if snapshot is None else {"snapshot": snapshot})
        except GenerationError as error:
            how = "" if seed is None else f" with seed {seed}"
            raise GenerationError(
                f"environment {self.first + i} could not start an episode{how}, and the runner is closed: {error}"
            ) from None
        if self.settings.words:
            reply.words[i] = info
