"""A pool of rollout workers that play in parallel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import ray
from ray.exceptions import RayTaskError

from training.easyr1.rollout_worker import EpisodeId, EpisodeResult, Request, RolloutWorker, StepResult
from training.easyr1.section import Section
from vlmgym.curriculum import Progress
from vlmgym.errors import VlmgymError
from vlmgym.policies.base import Reply


class WorkerPool:
    """One rollout worker in this process, or several Ray actors that share the episodes."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Start the workers; see `RolloutWorker` for the arguments."""
        count = section.rollout_workers
        self._workers: list[Any] = [RolloutWorker(section, encoder, seed, model)]
        if count:
            remote = ray.remote(num_cpus=1)(RolloutWorker)
            self._workers = [remote.remote(section, encoder, seed, model) for _ in range(count)]
        self._remote = bool(count)

    def start(self, prompt_ids: Sequence[int], group_size: int, progress: Progress) -> list[Request]:
        """Start episodes, ordered by prompt_id; see `RolloutWorker.start`."""
        return _by_prompt(self._distribute("start", prompt_ids, int, group_size, progress))

    def start_validation(self, prompt_ids: Sequence[int]) -> list[Request]:
        """Start validation episodes; see `RolloutWorker.start_validation`."""
        return _by_prompt(self._distribute("start_validation", prompt_ids, int))

    def play(self, replies: Sequence[tuple[EpisodeId, Reply]]) -> list[StepResult]:
        """Play replies, in order."""
        results = self._distribute("play", replies, lambda reply: reply[0][0])
        found = {(result.prompt_id, result.sample_idx): result for result in results}
        return [found[episode_id] for episode_id, _ in replies]

    def bootstrap_requests(self) -> list[tuple[EpisodeId, Request]]:
        """Return the next requests of truncated episodes; see `RolloutWorker.bootstrap_requests`."""
        return self._call_all("bootstrap_requests")

    def finish(self, group_size: int | None) -> list[EpisodeResult]:
        """Finish all episodes, ordered by prompt_id and sample_idx; see `RolloutWorker.finish`."""
        return sorted(self._call_all("finish", group_size), key=lambda result: (result.prompt_id, result.sample_idx))

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all workers."""
        return self._gather([self._call(worker, method, *args) for worker in self._workers])

    def _distribute(self, method: str, items: Sequence[Any], prompt_id: Callable[[Any], int], *args: Any) -> list[Any]:
        """Call a method of each worker with its share of the items."""
        count = len(self._workers)
        shares = [[item for item in items if prompt_id(item) % count == index] for index in range(count)]
        calls = [self._call(worker, method, share, *args) for worker, share in zip(self._workers, shares) if share]
        return self._gather(calls)

    def _call(self, worker: Any, method: str, *args: Any) -> Any:
        bound = getattr(worker, method)
        return bound.remote(*args) if self._remote else bound(*args)

    def _gather(self, calls: list[Any]) -> list[Any]:
        if self._remote:
            try:
                calls = ray.get(calls)
            except RayTaskError as error:
                if isinstance(error.cause, VlmgymError):
                    raise error.cause from None  # without the traceback of the worker
                raise
        return list(chain.from_iterable(calls))


def _by_prompt(requests: list[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: request.prompt_id)
