"""The environments of one worker of a vector environment; they are stepped in turn and draw into shared memory."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from vlmgym.errors import GenerationError, UsageError, VlmgymError, WorkerError
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.envs.vector.frame_env import EnvSettings, FrameBuffer, FrameEnv, StepNumbers
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray

CHECKPOINT_INTERVAL = 32
"""Number of environment steps between a worker's checkpoints, each of which saves one environment. After a crash, at
most about this many steps per environment, averaged over the environments, have to be repeated."""


@dataclass(slots=True)
class StepReply:
    """Results of a step or reset that are not in `StepBuffers`, keyed by the index of the environment in its worker.

    Attributes:
        info: Info of each environment if `full_info` is set, else empty.
        final_info: Last info of each ended episode in autoreset mode `SAME_STEP`, else empty.
        checkpoints: New checkpoints. They are kept pickled, because most are replaced before they are needed.
    """

    info: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_info: dict[int, dict[str, Any]] = field(default_factory=dict)
    checkpoints: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepBuffers:
    """Arrays of a vector environment; each worker writes the elements of its environments.

    Attributes:
        numbers: `STEP_DTYPE`, shape (num_envs,).
        frames: For each image of the game, uint8 of shape (num_envs, height, width, 3); None if nothing is drawn.
        final_frames: Last images of ended episodes, shaped like `frames`; None if nothing is drawn or the autoreset
            mode is not `SAME_STEP`.
    """

    numbers: PrivateArray
    frames: tuple[PrivateArray, ...] | None
    final_frames: tuple[PrivateArray, ...] | None


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Everything needed to create or recreate an `EnvWorker`.

    Attributes:
        games: Game of each environment of the worker.
        settings: Settings that all environments of the vector environment share.
        attributes: For each environment of the worker, the attributes set by `set_attr`.
        part: Indices of the worker's environments in the vector environment.
        buffers: Arrays of the vector environment.
    """

    games: Sequence[Game[Any, Any]]
    settings: EnvSettings
    attributes: Sequence[Mapping[str, Any]]
    part: slice
    buffers: StepBuffers


class EnvWorker:
    """Environments that are stepped in turn. Methods take environment indices within the worker, from 0."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.settings, self.first = spec.settings, spec.part.start
        buffers = spec.buffers
        self.numbers = buffers.numbers.array()[spec.part]
        self.final_frames = (
            None if buffers.final_frames is None else [frames.array()[spec.part] for frames in buffers.final_frames]
        )
        scratch = [np.empty(frames.shape[1:], np.uint8) for frames in buffers.frames or ()]
        self.envs = [
            FrameEnv(
                game,
                spec.settings,
                None if buffers.frames is None else FrameBuffer(buffers.frames, self.first + i, scratch),
            )
            for i, game in enumerate(spec.games)
        ]
        self._unsaved: dict[int, None] = {}  # environments stepped since their last checkpoint, longest wait first
        self._steps = 0  # environment steps since the last checkpoint of any environment
        for env, attributes in zip(self.envs, spec.attributes, strict=True):
            for name, value in attributes.items():
                env.set_attribute(name, value)

    def handle(self, name: str, args: tuple[Any, ...]) -> Any:
        """Call a method by name.

        Raises:
            VlmgymError: As raised by the method.
            WorkerError: A game has a bug.
        """
        try:
            return getattr(self, name)(*args)
        except VlmgymError:
            raise
        except Exception as error:
            raise WorkerError(f"a game raised {type(error).__name__}: {error}") from error

    def reset(self, ids: Sequence[int], seeds: Sequence[int | None], snapshots: Sequence[Snapshot | None]) -> StepReply:
        """Start or restore episodes; see `GameEnv.reset`.

        Raises:
            GenerationError: A game could not start an episode; other environments may have started theirs.
        """
        reply, numbers = StepReply(), []
        for i, seed, snapshot in zip(ids, seeds, snapshots, strict=True):
            self._start(i, reply, seed, snapshot)
            numbers.append(self.envs[i].numbers(0.0, False, False))
            self._save(i, reply)
        self.numbers[ids] = numbers
        return reply

    def step(self, ids: Sequence[int], actions: Sequence[Any]) -> StepReply:
        """Take a turn in some environments, with one action from `to_action` each.

        Raises:
            GenerationError: A game could not start the next episode; other environments may have taken their turns.
        """
        reply, numbers = StepReply(), []
        for i, action in zip(ids, actions, strict=True):
            numbers.append(self._step(i, action, reply))
            self._unsaved[i] = None
        self.numbers[ids] = numbers  # all at once: setting one element of a structured array is slower than most games
        saves, self._steps = divmod(self._steps + len(ids), CHECKPOINT_INTERVAL)
        for _ in range(saves):  # a few environments at a time, so that no step has to save all of them
            self._save(next(iter(self._unsaved)), reply)
        return reply

    def restore(self, checkpoints: Sequence[bytes | None], actions: Sequence[Sequence[Any]]) -> StepReply:
        """Restore all environments of a dead worker from their checkpoints and the actions taken since then."""
        reply = StepReply()
        for i, (checkpoint, since) in enumerate(zip(checkpoints, actions, strict=True)):
            if checkpoint is None:
                continue
            self.envs[i].restore(pickle.loads(checkpoint))
            numbers = self.envs[i].numbers(0.0, False, False)
            for action in since:
                numbers = self._step(i, action, reply)
            self.numbers[i] = numbers
            self._save(i, reply)
        return reply

    def call(self, ids: Sequence[int], name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Get an attribute of each environment, or call it if it is a method."""
        results = []
        for i in ids:
            if not hasattr(self.envs[i], name):
                raise UsageError(f"the environments have no attribute {name!r}")
            attribute = getattr(self.envs[i], name)
            if i == ids[0] and callable(attribute):
                try:
                    inspect.signature(attribute).bind(*args, **kwargs)
                except TypeError as error:
                    raise UsageError(f"invalid arguments for {name!r}: {error}") from None
            results.append(attribute(*args, **kwargs) if callable(attribute) else attribute)
        return results

    def set_attributes(self, ids: Sequence[int], values: Sequence[Any], name: str) -> None:
        """Set an attribute of each environment; see `FrameEnv.set_attribute`."""
        for i, value in zip(ids, values, strict=True):
            self.envs[i].set_attribute(name, value)

    def _step(self, i: int, action: Any, reply: StepReply) -> StepNumbers:
        env = self.envs[i]
        if env.over:
            # AutoresetMode.NEXT_STEP ignores the action.
            self._start(i, reply)
            return env.numbers(0.0, False, False)
        reward, terminated, truncated, info = env.play(action)
        if env.over and self.settings.autoreset is AutoresetMode.SAME_STEP:
            episode = env.episode
            final = {"score": episode.score, "turn": episode.turn, "seed": episode.seed, "outcome": env.last_outcome}
            reply.final_info[i] = {**final, **info}
            if self.final_frames is not None:
                env.keep_frame([frames[i] for frames in self.final_frames])
            self._start(i, reply)
        elif self.settings.full_info:
            reply.info[i] = info
        return env.numbers(reward, terminated, truncated)

    def _save(self, i: int, reply: StepReply) -> None:
        reply.checkpoints[i] = self.envs[i].checkpoint()
        self._unsaved.pop(i, None)

    def _start(self, i: int, reply: StepReply, seed: int | None = None, snapshot: Snapshot | None = None) -> None:
        try:
            _, info = self.envs[i].reset(seed=seed, options=None if snapshot is None else {"snapshot": snapshot})
        except GenerationError as error:
            with_seed = "" if seed is None else f" with seed {seed}"
            message = f"environment {self.first + i} could not start an episode{with_seed} ({error})"
            raise GenerationError(f"{message}; the vector environment is closed") from None
        if self.settings.full_info:
            reply.info[i] = info
