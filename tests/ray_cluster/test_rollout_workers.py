"""EasyR1's rollout workers on a Ray cluster; runs in .venv-easyr1."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

os.environ["RAY_AUTH_MODE"] = "disabled"

import ray

from vlmgym.curriculum import Pick
from vlmgym.errors import UsageError, WorkerError
from vlmgym.policies.base import Reply
from vlmgym.training.easyr1.episodes import EpisodeResult, RolloutWorkerPool
from vlmgym.training.easyr1.settings import Section


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False)
    yield
    ray.shutdown()


@dataclass
class Encoder:
    """A stub that returns prompts without encoding them, or fails if `failure` is set."""

    failure: str = ""

    def encode(self, prompt: str, images: list[Any]) -> dict[str, Any]:
        """Return the prompt and the shape of the image."""
        if self.failure == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.failure:
            raise UsageError(self.failure)
        return {"prompt": prompt, "shape": images[0].shape}


def without_time(result: EpisodeResult) -> EpisodeResult:
    return replace(result, record=result.record.model_copy(update={"started": ""}))


def make_section(workers: int) -> Section:
    games = [{"game": "2048", "overrides": {"size": 64}}]
    return Section.read({"games": games, "play": {"max_turns": 3}, "rollout_workers": workers})


def picks_of(section: Section, prompt_ids: list[int]) -> dict[int, Pick]:
    curriculum = section.make_curriculum()
    return curriculum.picks(curriculum.begin(), 0, prompt_ids)


def test_workers_play_the_same_episodes_as_one_process() -> None:
    rows, copies, words = [4, 7, 9], 2, ("up", "left", "down")

    def play(workers: int) -> tuple[list[Any], list[EpisodeResult]]:
        section = make_section(workers)
        with closing(RolloutWorkerPool(section, Encoder(), 0, "tiny")) as pool:
            results: list[Any] = pool.start(picks_of(section, rows), copies)
            places = [(row, copy) for row in rows for copy in range(copies)]
            for turn in range(3):
                replies = [Reply(f"<answer>{words[(turn + copy) % 3]}</answer>") for _, copy in places]
                results += pool.play(list(zip(places, replies)))
            results += sorted(pool.bootstrap_requests(), key=lambda request: request[0])
            return results, [without_time(result) for result in pool.finish(copies)]

    results, finished = play(0)
    assert play(2) == (results, finished)
    assert [(episode.prompt_id, episode.sample_idx) for episode in finished] == list(product(rows, range(copies)))


@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [("the prompt is too long", UsageError, "the prompt is too long"), ("die", WorkerError, "Ray worker died")],
)
def test_errors_of_workers(failure: str, error: type[Exception], message: str) -> None:
    section = make_section(1)
    with closing(RolloutWorkerPool(section, Encoder(failure), 0, "tiny")) as pool, pytest.raises(error, match=message):
        pool.start(picks_of(section, [0]), 1)
