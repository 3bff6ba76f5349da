"""Running environments, by the state that each one is in.

A state is a seed and the actions since. An environment that is in this state continues; otherwise one is brought there
by replaying the actions, or from its own copy of the state where it has one (ALE). Environments are never closed:
`close` of many of them shuts down pygame for the whole process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing

from vlmgym.errors import StateError, UsageError
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.games.gym.actions import Action, Actions
from vlmgym.sandbox.games.gym.making import Env

Key = tuple[int, tuple[Action, ...]]
"""Seed and actions."""

NEAR = 8
"""Maximum number of actions that a running environment replays to reach a later state."""
VIEW_BYTES = 2**26
"""Maximum size of the cached frames."""
COPIES = 1024
"""Maximum number of copies of states that an environment makes itself."""


@dataclass(frozen=True, slots=True)
class View:
    """Latest frames of a state, oldest first, and facts that `read` returns about it."""

    frames: tuple[ImageArray, ...]
    facts: Mapping[str, str]


@dataclass(slots=True)
class _Running:
    env: Env
    frames: deque[ImageArray]
    end: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Effect of one action: `end` is `terminated`, `truncated` or None."""

    reward: float
    end: str | None
    info: Mapping[str, Any]


class LiveEnvs:
    """Environments of one kind that are kept running. Thread-safe."""

    def __init__(
        self,
        env_id: str,
        make: Callable[[], Env],
        deterministic: Callable[[], bool],
        first: Env,
        actions: Actions,
        read: Callable[[Any], Mapping[str, str]],
        frame_skip: int,
        frames: int,
        most: int,
    ) -> None:
        """Keep at most `most` environments; `first` is one of them. `deterministic` is called before a replay."""
        self._id, self._make, self._deterministic = env_id, make, deterministic
        self._actions, self._read = actions, read
        self._frame_skip, self._frames, self._most = frame_skip, frames, most
        self._lock = threading.RLock()
        self._free, self._made = [first], 1
        self._running: OrderedDict[Key, list[_Running]] = OrderedDict()
        self._views: OrderedDict[Key, View] = OrderedDict()
        self._copies: OrderedDict[Key, tuple[Any, tuple[ImageArray, ...]]] = OrderedDict()

    def start(self, seed: int) -> None:
        """Reset an environment with a seed."""
        with self._lock:
            if (seed, ()) not in self._running:
                self._keep((seed, ()), self._reset(seed))

    def step(self, key: Key, action: Action) -> Result:
        """Play an action in a state that has not ended; the environment is then in the next state."""
        with self._lock:
            self._at(key)
            running = self._pop(key)
            result = self._act(running, action)
            self._keep((key[0], (*key[1], action)), running)
            return result

    def end(self, key: Key) -> str | None:
        """Return how the episode has ended in a state, or None.

        Raises:
            StateError: The episode ends before the last action, or the environment is not deterministic.
        """
        with self._lock:
            return self._at(key).end

    def view(self, key: Key) -> View:
        """Render a state."""
        with self._lock:
            view = self._views.get(key)
            if view is None:
                running = self._at(key)
                frames = tuple(running.frames) or (self._render(running.env),)
                frames = (frames[0],) * (self._frames - len(frames)) + frames
                view = self._views[key] = View(frames, self._read(running.env.unwrapped))
                if len(self._views) * self._frames * frames[0].nbytes > VIEW_BYTES:
                    self._views.popitem(last=False)
            else:
                self._views.move_to_end(key)
            return view

    def check_deterministic(self) -> None:
        """Raise `StateError` unless states can be restored."""
        if not self._deterministic():
            raise StateError(
                f"{self._id} is not deterministic: the same seed and actions give different results, so its states "
                "cannot be restored, nor trained on"
            )

    def _at(self, key: Key) -> _Running:
        if key not in self._running:
            self._keep(key, self._restore(key))
        return self._running[key][-1]

    def _pop(self, key: Key) -> _Running:
        """Take an environment out of a state; episodes of a group may have several in the same state."""
        running = self._running[key].pop()
        if not self._running[key]:
            del self._running[key]
        return running

    def _keep(self, key: Key, running: _Running) -> None:
        """Keep an environment; one whose episode has ended is the first to be used again."""
        self._running.setdefault(key, []).append(running)
        self._running.move_to_end(key, last=running.end is None)
        if running.end is None and (copied := _copy_state(running.env)) is not None:
            # Restoring does not draw, so a frame is kept with the copy.
            self._copies[key] = copied, tuple(running.frames) or (self._render(running.env),)
            if len(self._copies) > COPIES:
                self._copies.popitem(last=False)

    def _restore(self, key: Key) -> _Running:
        self.check_deterministic()
        seed, actions = key
        if (copied := self._copies.get(key)) is not None:
            env: Any = self._take()
            if not env.has_reset:  # of `OrderEnforcing`
                env.reset(seed=seed)
            env.unwrapped.restore_state(copied[0])
            return _Running(env, deque(copied[1], self._frames))
        running, played = None, 0
        for back in range(1, min(NEAR, len(actions)) + 1):
            near = seed, actions[: len(actions) - back]
            if near in self._running:
                running, played = self._pop(near), len(actions) - back
                break
        if running is None:
            running = self._reset(seed)
        for index in range(played, len(actions)):
            if running.end is not None:
                self._free.append(running.env)
                raise StateError(f"the episode ends after {index} of {len(actions)} actions: {running.end}")
            # A turn has at least one frame, so earlier turns are never shown.
            self._act(running, actions[index], render=len(actions) - index <= self._frames)
        return running

    def _take(self) -> Env:
        """Take an environment that is free, new, or has not been used for the longest time."""
        if self._free:
            return self._free.pop()
        if self._made < self._most:
            self._made += 1
            return self._make()
        return self._pop(next(iter(self._running))).env

    def _reset(self, seed: int) -> _Running:
        env = self._take()
        env.reset(seed=seed)
        frames: deque[ImageArray] = deque(maxlen=self._frames)
        if self._frames > 1:
            frames.append(self._render(env))
        return _Running(env, frames)

    def _act(self, running: _Running, action: Action, render: bool = True) -> Result:
        info: Mapping[str, Any] = {}
        total, chosen = 0.0, self._actions.to_env(action)
        if self._frames == 1:
            running.frames.clear()
        for _ in range(self._frame_skip):
            try:
                _, reward, terminated, truncated, info = running.env.step(chosen)
            except Exception:
                self._free.append(running.env)  # the next episode resets it
                raise
            total += float(reward)
            if render and self._frames > 1:
                running.frames.append(self._render(running.env))
            if terminated or truncated:
                running.end = "terminated" if terminated else "truncated"
                break
        return Result(total, running.end, info)

    def _render(self, env: Env) -> ImageArray:
        frame = env.render()
        if not (isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.dtype == np.uint8):
            what = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise UsageError(f"{self._id} renders {what}, expected a uint8 array of shape (height, width, 3)")
        copied: ImageArray = frame.copy()
        return copied


def _copy_state(env: Env) -> Any:
    """Copy the state of an environment; None if it cannot be copied, or if a wrapper also has state.

    The copies of ALE lack the last action, which sticky actions may repeat.
    """
    wrapper: Any = env
    while isinstance(wrapper, gymnasium.Wrapper):
        if not isinstance(wrapper, OrderEnforcing):
            return None
        wrapper = wrapper.env
    if not (hasattr(wrapper, "clone_state") and hasattr(wrapper, "restore_state")):
        return None
    ale = getattr(wrapper, "ale", None)
    if ale is not None and ale.getFloat("repeat_action_probability"):
        return None
    return wrapper.clone_state(include_rng=True)
