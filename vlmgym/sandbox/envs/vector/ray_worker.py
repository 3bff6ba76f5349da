"""Workers of a vector environment on a Ray cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vlmgym.sandbox.envs.vector.worker import EnvWorker, StepReply, WorkerSpec
from vlmgym.sandbox.envs.vector.worker_handle import RestartingWorker
from vlmgym.workers.messages import Result
from vlmgym.workers.process import Worker
from vlmgym.workers.ray import RayWorker


class Written(NamedTuple):
    """Result of a step or reset in the cluster: the worker's reply, and a copy of what it wrote to its buffers.

    Attributes:
        reply: Reply of the worker.
        ids: Indices, in the vector environment, of the environments that were stepped or reset.
        numbers: Numeric results of these environments, `STEP_DTYPE`, shape (len(ids),).
        frames: For each image of the game, the frames of these environments.
        ended: Indices, in the vector environment, of environments whose episode ended and which were reset.
        final_frames: For each image of the game, the last frames of the ended episodes.
    """

    reply: StepReply
    ids: NDArray[np.intp]
    numbers: NDArray[Any]
    frames: list[NDArray[np.uint8]]
    ended: NDArray[np.intp]
    final_frames: list[NDArray[np.uint8]]


class RayEnvWorker(RestartingWorker):
    """A worker in a Ray cluster. If the worker or its machine dies, a new worker resumes from the last checkpoints."""

    def _start(self) -> Worker:
        time.sleep(max(0, self._deaths - 1))  # the cluster may need a moment to notice the loss of a machine
        return RayWorker(_make_handler, self._spec)

    def _receive(self, timeout: float | None) -> Result:
        result = super()._receive(timeout)
        if not isinstance(result.value, Written):
            return result
        reply, ids, numbers, frames, ended, final_frames = result.value
        buffers = self._spec.buffers
        buffers.numbers.array()[ids] = numbers
        for array, images in zip(buffers.frames or (), frames, strict=True):
            array.array()[ids] = images
        for array, images in zip(buffers.final_frames or (), final_frames, strict=True):
            array.array()[ended] = images
        return Result(reply, None)


def _make_handler(spec: WorkerSpec) -> Callable[[str, tuple[Any, ...]], Any]:
    worker, part, buffers = EnvWorker(spec), spec.part, spec.buffers

    def handle(name: str, args: tuple[Any, ...]) -> Any:
        reply = worker.handle(name, args)
        if not isinstance(reply, StepReply):
            return reply
        ids = np.arange(part.start, part.stop) if name == "restore" else np.asarray(args[0]) + part.start
        ended = np.array([i + part.start for i in reply.final_info], np.intp)
        return Written(
            reply,
            ids,
            buffers.numbers.array()[ids],
            [frames.array()[ids] for frames in buffers.frames or ()],
            ended,
            [frames.array()[ended] for frames in buffers.final_frames or ()],
        )

    return handle
