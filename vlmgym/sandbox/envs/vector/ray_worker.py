"""Workers of the vectorized environment on a Ray cluster."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout  # the built-in one only since Python 3.11
from typing import Any

import numpy as np

from vlmgym.sandbox.envs.vector.worker import Reply
from vlmgym.sandbox.envs.vector.worker_process import Plan, ProcessWorker, answer, packed
from vlmgym.workers.channel import ChannelClosed
from vlmgym.workers.ray import next_node, node_name


class RayEnvWorker(ProcessWorker):
    """A worker in a process of a Ray cluster. If it dies, or its machine, another goes on from its last checkpoints.

    Processes are dealt out to the processors of the cluster and take none away from others: branches find room, and
    after the loss of a machine all go on with the processors that are left.
    """

    def close(self) -> None:
        """End the process; doing it twice is fine."""
        self._channel.close()

    def _start(self) -> None:
        time.sleep(max(0, self._deaths - 1))  # the cluster may need a moment to notice that a machine is gone
        self._link = self._channel = _ActorLink(self._plan)

    def _death(self) -> str:
        return self._link.death()

    def _name(self) -> str:
        return f"the Ray worker of {self._environments()}"


class _Host:
    """A worker in the process of an actor."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._worker = plan, plan.make()

    def node(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def answer(self, message: bytes) -> tuple[bytes, tuple[Any, ...] | None]:
        """What a call returns or raises, and all that it wrote into the memory of the runner."""
        from ray import cloudpickle

        name, args = cloudpickle.loads(message)
        answered = answer(self._worker, (name, args))
        memory, part, result = self._plan.memory, self._plan.part, answered[0]
        if not isinstance(result, Reply):
            return packed(answered, cloudpickle.dumps), None
        ids = np.arange(part.start, part.stop) if name == "restore" else np.asarray(args[0]) + part.start
        ended = np.array([i + part.start for i in result.final_info], np.intp)
        written = (
            ids,
            memory.table.array()[ids],
            [frames.array()[ids] for frames in memory.frames or ()],
            ended,
            [frames.array()[ended] for frames in memory.final_frames or ()],
        )
        return packed(answered, cloudpickle.dumps), written


class _ActorLink:
    """Speaks to a `_Host` as `Channel` does to a process."""

    def __init__(self, plan: Plan) -> None:
        import ray

        self._ray, self._memory = ray, plan.memory
        self._actor = ray.remote(_Host).options(num_cpus=0, scheduling_strategy=next_node(ray)).remote(plan)
        self.node: str | None = None
        """Where it runs, once that is known."""
        self._answers: deque[Future[Any]] = deque()
        self._heard, self._rung = socket.socketpair()
        self._actor.node.remote().future().add_done_callback(self._learn_node)

    def pack(self, message: Any) -> bytes:
        from ray import cloudpickle  # takes classes of the user's program, too

        data: bytes = cloudpickle.dumps(message)
        return data

    def send(self, packed: bytes, timeout: float | None) -> None:
        future = self._actor.answer.remote(packed).future()
        self._answers.append(future)
        future.add_done_callback(self._ring)

    def receive(self, timeout: float | None) -> Any:
        from ray import cloudpickle
        from ray.exceptions import RayError

        try:
            message, written = self._answers[0].result(timeout)
        except FutureTimeout:
            raise TimeoutError from None
        except RayError:
            raise ChannelClosed from None
        self._answers.popleft()
        self._heard.recv(1)
        if written is not None:
            self._write(*written)
        return cloudpickle.loads(message)

    def fileno(self) -> int:
        return self._heard.fileno()

    def death(self) -> str:
        """What has become of the machine or the process."""
        for node in self._ray.nodes():
            if node["NodeID"] == self.node:
                return f"on {node_name(node)}, which is {'still there' if node['Alive'] else 'gone'}"
        return "before it had a machine"

    def close(self) -> None:
        if self._ray.is_initialized():  # else the program ends, and the process with it
            self._ray.kill(self._actor)
        self._heard.close()
        self._rung.close()

    def _write(self, ids: Any, rows: Any, frames: list[Any], ended: Any, final_frames: list[Any]) -> None:
        self._memory.table.array()[ids] = rows
        for array, images in zip(self._memory.frames or (), frames, strict=True):
            array.array()[ids] = images
        for array, images in zip(self._memory.final_frames or (), final_frames, strict=True):
            array.array()[ended] = images

    def _learn_node(self, answered: Future[Any]) -> None:
        if answered.exception() is None:
            self.node = answered.result()

    def _ring(self, _: Future[Any]) -> None:
        with contextlib.suppress(OSError):  # it is closed
            self._rung.send(b"!")
