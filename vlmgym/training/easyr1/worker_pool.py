"""A pool of rollout workers that play in parallel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vlmgym.curriculum import Pick
from vlmgym.policies.base import Reply
from vlmgym.training.easyr1.rollout_worker import EpisodeId, EpisodeResult, Request, RolloutWorker, StepResult
from vlmgym.training.easyr1.section import Section
from vlmgym.workers.process import receive_value
from vlmgym.workers.ray import RayWorker


class RolloutWorkerPool:
    """One rollout worker in this process, or several Ray actors that share the episodes."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Start the workers; see `RolloutWorker` for the arguments."""
        args = section, encoder, seed, model
        self._workers = [RayWorker(_make_handler, *args) for _ in range(section.rollout_workers)]
        self._local = None if self._workers else _make_handler(*args)

    def start(self, picks: Mapping[int, Pick], group_size: int) -> list[Request]:
        """Start a group of episodes for each prompt_id; return their requests, ordered by prompt_id."""
        return _by_prompt(self._distribute("start", list(picks.items()), lambda item: item[0], group_size))

    def start_validation(self, prompt_ids: Sequence[int]) -> list[Request]:
        """Start validation episodes; see `RolloutWorker.start_validation`."""
        return _by_prompt(self._distribute("start_validation", prompt_ids, int))

    def play(self, replies: Sequence[tuple[EpisodeId, Reply]]) -> list[StepResult]:
        """Play a reply in each episode; return results in the order of `replies`."""
        results = self._distribute("play", replies, lambda reply: reply[0][0])
        found = {(result.prompt_id, result.sample_idx): result for result in results}
        return [found[episode_id] for episode_id, _ in replies]

    def bootstrap_requests(self) -> list[tuple[EpisodeId, Request]]:
        """Return requests of truncated episodes; see `RolloutWorker.bootstrap_requests`."""
        return self._call_all("bootstrap_requests")

    def finish(self, group_size: int | None) -> list[EpisodeResult]:
        """Finish all episodes, ordered by prompt_id and sample_idx; see `RolloutWorker.finish`."""
        return sorted(self._call_all("finish", group_size), key=lambda result: (result.prompt_id, result.sample_idx))

    def close(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.close()

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all workers and concatenate the results."""
        return self._call([(method, *args)] * max(1, len(self._workers)))

    def _distribute(self, method: str, items: Sequence[Any], prompt_id: Callable[[Any], int], *args: Any) -> list[Any]:
        """Call a method of each worker with its share of `items`; all items of a prompt go to the same worker."""
        count = max(1, len(self._workers))
        shares = [[item for item in items if prompt_id(item) % count == index] for index in range(count)]
        return self._call([(method, share, *args) if share else None for share in shares])

    def _call(self, calls: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Make one call (method and arguments), or none, to each worker, and concatenate the results."""
        if self._local is not None:
            return [result for call in calls if call for result in self._local(*call)]
        called = [(worker, call) for worker, call in zip(self._workers, calls, strict=True) if call]
        for worker, call in called:
            worker.send(worker.pack(*call))
        return [result for worker, _ in called for result in receive_value(worker)]


def _make_handler(section: Section, encoder: Any, seed: int, model: str) -> Callable[..., Any]:
    worker = RolloutWorker(section, encoder, seed, model)
    return lambda method, *args: getattr(worker, method)(*args)


def _by_prompt(requests: list[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: request.prompt_id)
