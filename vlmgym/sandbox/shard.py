"""The environments that one process of a vector runner owns: stepped one after another, drawn into shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from vlmgym.errors import UsageError
from vlmgym.sandbox.drawing.pictures import side_by_side
from vlmgym.sandbox.env import GameEnv
from vlmgym.sandbox.episode import Snapshot
from vlmgym.sandbox.game import Game, Picture
from vlmgym.sandbox.reward import Outcome, RewardConfig, Scored

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
    """What does not fit into the table of numbers; environments are numbered within the shard.

    Attributes:
        words: Description, legal actions and the like, if asked for.
        final_info: Info of episodes that ended in this step, where the step also reset them.
        checkpoints: New checkpoints.
    """

    words: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_info: dict[int, dict[str, Any]] = field(default_factory=dict)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)


class FrameEnv(GameEnv):
    """A `GameEnv` that draws what changed into memory it is given, instead of making observations."""

    def __init__(self, game: Game[Any, Any], settings: Settings, frames: Sequence[Picture] | None) -> None:
        """Make an environment.

        Args:
            game: The game.
            settings: Reward, turn limit, kind of info.
            frames: Arrays of the game's `picture_shapes` to draw into; None: do not draw.
        """
        super().__init__(game, reward=settings.reward, render_mode="rgb_array")
        self.settings, self.frames = settings, frames
        self.over = False
        self.last_outcome = ""
        self._shown: Any = None

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
        return scored.overall, scored.terminated, truncated, self._info(scored)

    def _at_limit(self) -> bool:
        return self.settings.max_turns is not None and self.episode.turn >= self.settings.max_turns

    def render(self) -> Picture:
        """The picture of the position, also where steps do not draw."""
        return side_by_side(self.game.images(self.episode.state))

    def checkpoint(self) -> Checkpoint:
        """The environment as a value."""
        return Checkpoint(self.snapshot(), dict(self.np_random.bit_generator.state), self.over)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint exactly as the environment that it is of would have."""
        self.reset(options={"snapshot": checkpoint.snapshot})
        self.np_random.bit_generator.state = checkpoint.seeder
        self.over = checkpoint.over

    def keep_frame(self, out: Sequence[Picture]) -> None:
        """Copy what is shown, for an episode that ended, before its next one is drawn."""
        for target, frame in zip(out, self.frames or (), strict=True):
            target[:] = frame

    def _draw(self) -> None:
        if self.frames is not None:
            state = self.episode.state
            self.game.draw_into(state, self.frames, self._shown)
            self._shown = state

    def _observation(self) -> None:
        return None

    def _info(self, scored: Scored[Any, Any] | None) -> dict[str, Any]:
        self.last_outcome = "" if scored is None else scored.outcome.value
        return super()._info(scored) if self.settings.words else {}


class Shard:
    """Environments numbered from 0, the numbers of their last step in a table, their pictures in frames."""

    def __init__(
        self,
        games: Sequence[Game[Any, Any]],
        settings: Settings,
        table: NDArray[Any],
        frames: Sequence[NDArray[np.uint8]] | None,
        final_frames: Sequence[NDArray[np.uint8]] | None,
    ) -> None:
        """Make the environments.

        Args:
            games: The game of each environment.
            settings: What they have in common.
            table: Array of `ROW`, shape (environments,).
            frames: For each picture of the games, uint8 of shape (environments, size, size, 3); None: do not draw.
            final_frames: As frames, for the last pictures of episodes that are reset in the step that ends them.
        """
        self.settings, self.table = settings, table
        self.final_frames = final_frames
        self.envs = [
            FrameEnv(game, settings, None if frames is None else [pictures[i] for pictures in frames])
            for i, game in enumerate(games)
        ]
        self._steps = [0] * len(games)

    def reset(self, ids: Sequence[int], seeds: Sequence[int | None], snapshots: Sequence[Snapshot | None]) -> Reply:
        """Start or restore episodes; see `GameEnv.reset`."""
        reply = Reply()
        for i, seed, snapshot in zip(ids, seeds, snapshots, strict=True):
            options = None if snapshot is None else {"snapshot": snapshot}
            _, info = self.envs[i].reset(seed=seed, options=options)
            self._after(i, reply, 0.0, False, False, info)
            self._steps[i] = 0
            reply.checkpoints[i] = self.envs[i].checkpoint()
        return reply

    def step(self, ids: Sequence[int], actions: Sequence[Any]) -> Reply:
        """Take a turn in some environments, with what `to_action` made of the actions."""
        reply = Reply()
        for i, action in zip(ids, actions, strict=True):
            self._step(i, action, reply)
            self._steps[i] += 1
            # Environments take turns, so that no step makes the checkpoints of all.
            if (self._steps[i] + i) % CHECKPOINT_EVERY == 0:
                reply.checkpoints[i] = self.envs[i].checkpoint()
        return reply

    def restore(self, checkpoints: Sequence[Checkpoint | None], actions: Sequence[Sequence[Any]]) -> Reply:
        """Bring all environments to where a lost process had them: from a checkpoint, by the actions since."""
        reply = Reply()
        for i, (checkpoint, since) in enumerate(zip(checkpoints, actions, strict=True)):
            if checkpoint is None:
                continue
            self.envs[i].restore(checkpoint)
            self._after(i, reply, 0.0, False, False, {})
            for action in since:
                self._step(i, action, reply)
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
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def _step(self, i: int, action: Any, reply: Reply) -> None:
        env = self.envs[i]
        if env.over:
            # AutoresetMode.NEXT_STEP: the action is not looked at.
            _, info = env.reset()
            self._after(i, reply, 0.0, False, False, info)
            return
        reward, terminated, truncated, info = env.play(action)
        self._after(i, reply, reward, terminated, truncated, info)
        if env.over and self.settings.autoreset is AutoresetMode.SAME_STEP:
            row = self.table[i]
            numbers = {name: row[name].item() for name in ("score", "turn", "seed")}
            reply.final_info[i] = {**numbers, "outcome": env.last_outcome, **info}
            if self.final_frames is not None:
                env.keep_frame([pictures[i] for pictures in self.final_frames])
            _, info = env.reset()
            self._after(i, reply, reward, terminated, truncated, info)

    def _after(
        self, i: int, reply: Reply, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> None:
        env = self.envs[i]
        episode, outcome = env.episode, OUTCOMES.index(env.last_outcome)
        numbers = (episode.score, episode.turn, episode.seed, outcome)
        self.table[i] = (reward, terminated, truncated, env.over, *numbers)
        if self.settings.words:
            reply.words[i] = info
