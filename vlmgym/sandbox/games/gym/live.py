"""Environment states, stored as the reset seed and the actions since, and a pool of running environments."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import NonNegativeInt

from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.core.game import ImageArray, Info, Step
from vlmgym.sandbox.games.gym.actions import Action, Actions
from vlmgym.sandbox.games.gym.envs import Env, GymConfig, is_deterministic, make_env

End = Literal["terminated", "truncated"]


@dataclass(frozen=True, slots=True)
class GymState:
    """An environment state: reset seed, codes of the actions since, and how the episode ended, if it has."""

    seed: NonNegativeInt
    actions: str = ""
    end: End | None = None

    @property
    def key(self) -> tuple[int, str]:
        """Seed and actions."""
        return self.seed, self.actions


# Pool -----------------------------------------------------------------------------------------------------------------
#
# Running environments, indexed by their current state.
#
# An action is played in a running environment that is already in the episode's state. Otherwise, another environment is
# brought to that state by replaying the actions. Environments are never closed, because `close` often shuts down pygame
# for the whole process.

Key = tuple[int, str]
"""Seed and actions, as in `GymState`."""

NEAR = 8
"""Maximum number of actions replayed to advance a running environment from an earlier state."""
VIEW_BYTES = 2**26
"""Maximum total size of the cached frames in bytes."""


@dataclass(frozen=True, slots=True)
class View:
    """Most recent frames of a state, oldest first, and facts about the state from the `read` function of `LiveEnvs`."""

    frames: tuple[ImageArray, ...]
    facts: Mapping[str, str]


@dataclass(slots=True)
class _Running:
    """An environment, its most recently rendered frames, and how its episode has ended, if it has."""

    env: Env
    frames: deque[ImageArray]
    end: End | None = None


class LiveEnvs:
    """Thread-safe pool of running environments with the same config."""

    def __init__(
        self, config: GymConfig, first: Env, actions: Actions, read: Callable[[Any], Mapping[str, str]]
    ) -> None:
        """Start with the environment `first`; `read` returns facts about the state of an environment."""
        self._actions, self._read, self._frames = actions, read, config.frames
        self._config, self._made_from = config, (config.env, config.options, config.sticky)
        self._lock = threading.RLock()
        self._unused = [first]
        self._running: OrderedDict[Key, list[_Running]] = OrderedDict()
        self._views: OrderedDict[Key, View] = OrderedDict()

    def start(self, seed: int) -> None:
        """Reset an environment with a seed, unless one is already in the state after this reset."""
        state = GymState(seed)
        with self._lock:
            if state.key not in self._running:
                self._keep(state.key, self._reset(seed))

    def step(self, state: GymState, action: Action) -> Step[GymState]:
        """Play an action in a state whose episode has not ended; the environment is then kept in the next state."""
        with self._lock:
            running = self._pop(state.key) or self._restore(state)
            reward, info = self._act(running, action)
            after = GymState(state.seed, state.actions + self._actions.codes[action], running.end)
            self._keep(after.key, running)
            return Step(after, reward, info)

    def end(self, state: GymState) -> End | None:
        """Return how the episode has ended in a state, or None if it has not ended.

        Raises:
            StateError: The code of an action is unknown, the episode ends before the last action, or the environment is
                not deterministic.
        """
        with self._lock:
            return self._at(state).end

    def view(self, state: GymState) -> View:
        """Return the frames of a state and the facts about it; cached."""
        with self._lock:
            view = self._views.get(state.key)
            if view is None:
                running = self._at(state)
                frames = self._shown(running)
                frames = (frames[0],) * (self._frames - len(frames)) + frames
                view = self._views[state.key] = View(frames, self._read(running.env.unwrapped))
                if len(self._views) * self._frames * frames[0].nbytes > VIEW_BYTES:
                    self._views.popitem(last=False)
            else:
                self._views.move_to_end(state.key)
            return view

    def check_deterministic(self) -> None:
        """Raise `StateError` if states cannot be restored because the environment is not deterministic."""
        if not is_deterministic(*self._made_from):
            raise StateError(
                f"{self._config.env} is not deterministic: the same seed and actions give different results, so its "
                "states cannot be restored or used for training"
            )

    def _at(self, state: GymState) -> _Running:
        if state.key not in self._running:
            self._keep(state.key, self._restore(state))
        return self._running[state.key][-1]

    def _pop(self, key: Key) -> _Running | None:
        """Take one of the environments in a state, or return None; a group's rollouts may leave several there."""
        if key not in self._running:
            return None
        running = self._running[key].pop()
        if not self._running[key]:
            del self._running[key]
        return running

    def _keep(self, key: Key, running: _Running) -> None:
        """Keep an environment running; environments whose episode has ended are the first to be reused."""
        self._running.setdefault(key, []).append(running)
        self._running.move_to_end(key, last=running.end is None)

    def _restore(self, state: GymState) -> _Running:
        self.check_deterministic()
        actions = [*self._actions.decode(state.actions)]
        running, played = self._nearest(state)
        for index in range(played, len(actions)):
            if running.end is not None:
                raise StateError(f"the episode ends after {index} of {len(actions)} actions: {running.end}")
            # Each action adds at least one frame, so frames of earlier actions are never shown.
            self._act(running, actions[index], render=len(actions) - index <= self._frames)
        return running

    def _nearest(self, state: GymState) -> tuple[_Running, int]:
        """Take the running environment closest before a state; return it and the number of actions it has played.

        If no environment is in one of the `NEAR` preceding states, one is reset.
        """
        length = self._actions.code_length
        count = len(state.actions) // length
        for played in range(count - 1, max(0, count - NEAR) - 1, -1):
            if (running := self._pop((state.seed, state.actions[: played * length]))) is not None:
                return running, played
        return self._reset(state.seed), 0

    def _take(self) -> Env:
        """Take the unused first environment; failing that, make one or, at the limit, take the least recently used one.

        Environments that raise an error are dropped.
        """
        if self._unused:
            return self._unused.pop()
        if sum(map(len, self._running.values())) < self._config.running:
            return make_env(*self._made_from)
        oldest = self._pop(next(iter(self._running)))
        assert oldest is not None, "the limit is at least 1"
        return oldest.env

    def _reset(self, seed: int) -> _Running:
        running = _Running(self._take(), deque(maxlen=self._frames))
        running.env.reset(seed=seed)
        if self._frames > 1:
            running.frames.append(self._render(running.env))
        return running

    def _act(self, running: _Running, action: Action, render: bool = True) -> tuple[float, Info]:
        """Play an action; return its reward and the environment's info."""
        info: Mapping[str, Any] = {}
        total, chosen = 0.0, self._actions.to_env(action)
        if self._frames == 1:
            running.frames.clear()
        for _ in range(self._config.frame_skip):
            _, reward, terminated, truncated, info = running.env.step(chosen)
            total += float(reward)
            if render and self._frames > 1:
                running.frames.append(self._render(running.env))
            if terminated or truncated:
                running.end = "terminated" if terminated else "truncated"
                break
        return total, info

    def _shown(self, running: _Running) -> tuple[ImageArray, ...]:
        """Return the most recent frames; with `frames=1`, the frame is rendered lazily, by this method."""
        if not running.frames:
            running.frames.append(self._render(running.env))
        return tuple(running.frames)

    def _render(self, env: Env) -> ImageArray:
        frame = env.render()
        if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8):
            what = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise UsageError(f"{self._config.env} renders {what}, expected a uint8 array of shape (height, width, 3)")
        copied: ImageArray = frame.copy()
        return copied
