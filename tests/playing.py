"""A small game, a small suite, and a policy that stands in for a model."""

import asyncio
from contextlib import contextmanager

import pytest

import vlmgym
from benchmarks.suites import FreezeConfig, freeze
from vlmgym.benchmark.suites import read_suite
from vlmgym.errors import InfrastructureError
from vlmgym.evaluation.summary import GameTally
from vlmgym.policies import ModelPolicy, Reply, random_response

GAME = vlmgym.make_game("2048", size=64)


@contextmanager
def small_suite(folder, *games, **settings):
    """Use only the suites in a folder, after freezing one of these games in it; yield its name."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("vlmgym.benchmark.suites", "benchmarks.suites"):
            patch.setattr(f"{module}.FOLDER", folder)
        patch.setattr("benchmarks.suites.BUILT_IN", games)
        if not any(folder.glob("*.toml")):
            options = {"baseline_episodes": 20, **settings}
            freeze(FreezeConfig(name="small-1", description="Small & fast.", **options))
        read_suite.cache_clear()
        yield "small-1"
    read_suite.cache_clear()


def summarise(episodes, planned=None):
    """Summarise the records of one game."""
    tally = GameTally()
    for episode in episodes:
        tally.add(episode)
    return tally.summary(planned)


def without_times(record):
    """Dump a record without times and the policy, which differ between runs."""
    data = record.model_dump(mode="json")
    data.pop("policy")
    data.pop("started")
    for turn in data["turns"]:
        turn.pop("latency")
    return data


class Model(ModelPolicy):
    """A random policy that fails once in each turn in `fails`, given as (game, seed, turn)."""

    name = "model"
    transform = None

    counts_tokens = True

    def __init__(self, fails=(), tokens=None):
        super().__init__()
        self.fails, self.tokens, self.requested = set(fails), tokens, []

    async def respond(self, images, prompt):
        place = (prompt.game.name, prompt.seed, prompt.turn)
        self.requested.append(place)
        if place in self.fails:
            self.fails.remove(place)
            raise InfrastructureError("the server is down")
        await asyncio.sleep(0.001)
        return Reply(random_response(prompt), self.tokens, self.tokens)
