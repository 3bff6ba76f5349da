"""A small game, and a policy that stands in for a model."""

import asyncio

import vlmgym
from vlmgym.errors import InfrastructureError
from vlmgym.evaluation.summary import GameTally
from vlmgym.policies import ModelPolicy, Reply, random_response

GAME = vlmgym.make_game("2048", size=64)


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
