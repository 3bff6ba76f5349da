"""Assemble observations and infos of a vector environment from the buffers and replies of its workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.envs.vector.buffer_pool import BufferPool
from vlmgym.sandbox.envs.vector.frame_env import OUTCOME_NAMES
from vlmgym.sandbox.envs.vector.shared_memory import PrivateArray
from vlmgym.sandbox.envs.vector.worker import StepBuffers, StepReply
from vlmgym.sandbox.envs.vector.worker_group import Ids

Infos = dict[str, Any]
AddInfo = Callable[[Infos, Infos, int], Infos]
"""Function of (infos, info, index) that adds the info of the environment at `index` in a batch to the batch's infos;
see `VectorEnv._add_info`."""
_OUTCOMES = np.array([None, *OUTCOME_NAMES[1:]], object)
"""Outcomes by their number in `STEP_DTYPE`, as objects, as Gymnasium stores strings in infos; None for a reset."""


class Results:
    """Converts the results of steps and resets to the format of Gymnasium.

    Attributes:
        numbers: Numeric results of the last step or reset of each environment, `STEP_DTYPE`.
        frames: For each image of the game, the frames of all environments.
    """

    def __init__(self, buffers: StepBuffers, shapes: Sequence[tuple[int, ...]], copy: bool) -> None:
        """Create arrays over the buffers.

        Args:
            buffers: Buffers of the vector environment.
            shapes: Shape of each image of the game.
            copy: Return copies as observations, instead of read-only views.
        """
        self.numbers = buffers.numbers.array()
        self._num_envs = len(self.numbers)
        self.frames = self._arrays(buffers.frames, shapes)
        self._final_frames = self._arrays(buffers.final_frames, shapes)
        self._pools = [BufferPool() for _ in self.frames] if copy else None

    def _arrays(
        self, buffers: tuple[PrivateArray, ...] | None, shapes: Sequence[tuple[int, ...]]
    ) -> list[NDArray[np.uint8]]:
        if buffers is None:
            return [np.zeros((self._num_envs, *shape), np.uint8) for shape in shapes]
        return [buffer.array() for buffer in buffers]

    def observations(self, ids: Ids) -> Any:
        """Return the observations of some environments."""
        index = as_slice(ids)
        taken = [frames[index] for frames in self.frames]
        if isinstance(index, slice) and self._pools is not None:
            taken = [pool.copy(frames) for pool, frames in zip(self._pools, taken)]
        elif isinstance(index, slice):
            for frames in taken:
                frames.flags.writeable = False  # writing would corrupt later images
        return taken[0] if len(taken) == 1 else tuple(taken)

    def infos(
        self, ids: Ids, numbers: NDArray[Any], replies: list[tuple[Ids, StepReply]], starts: list[int], add: AddInfo
    ) -> Infos:
        """Return the infos of some environments: an array per field, and a mask of the environments that have it.

        Args:
            ids: Indices of the environments.
            numbers: Numeric results of these environments, in the same order.
            replies: Pairs of environment indices and their worker's reply.
            starts: For each reply, the index of its worker's first environment.
            add: Function that adds the info of one environment.
        """
        replied = np.ones(len(ids), bool)
        if sum(len(own) for own, _ in replies) < len(ids):  # a reset of some environments
            replied = np.isin(ids, np.concatenate([own for own, _ in replies]))
        infos: Infos = {}
        if any(reply.info or reply.final_info for _, reply in replies):
            infos = self._full_infos(ids, replies, starts, add)
        for name in ("score", "turn", "seed"):
            infos[name], infos[f"_{name}"] = numbers[name].copy(), replied.copy()
        outcome = numbers["outcome"] * replied
        infos["outcome"], infos["_outcome"] = _OUTCOMES[outcome], outcome > 0
        return infos

    def _full_infos(self, ids: Ids, replies: list[tuple[Ids, StepReply]], starts: list[int], add: AddInfo) -> Infos:
        index = {int(i): at for at, i in enumerate(ids)}
        infos: Infos = {}
        for (_, reply), start in zip(replies, starts, strict=True):
            for local, info in reply.info.items():
                infos = add(infos, info, index[local + start])
            for local, info in reply.final_info.items():
                images = [frames[local + start].copy() for frames in self._final_frames]
                final_obs = images[0] if len(images) == 1 else tuple(images)
                infos = add(infos, {"final_obs": final_obs, "final_info": info}, index[local + start])
        return _truncate(infos, len(ids))


def as_slice(ids: Ids) -> slice | Ids:
    """Return ascending, consecutive indices as a slice, so that indexing returns views; return others unchanged."""
    first, last = int(ids[0]), int(ids[-1])
    consecutive = last - first + 1 == len(ids) and bool((ids[1:] > ids[:-1]).all())
    return slice(first, last + 1) if consecutive else ids


def _truncate(infos: Infos, length: int) -> Infos:
    """Truncate arrays to `length`, because Gymnasium creates them for all environments."""
    return {
        name: _truncate(value, length) if isinstance(value, dict) else value[:length] for name, value in infos.items()
    }
