"""A small game, a small suite, and a policy that stands in for a model."""

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import vlmgym
from benchmarks.suites import FreezeConfig, freeze
from vlmgym.benchmark.suites import read_suite
from vlmgym.cli.eval import run_evaluation
from vlmgym.errors import InfrastructureError
from vlmgym.evaluation import EvalConfig
from vlmgym.evaluation.summary import GameTally
from vlmgym.policies import ModelPolicy, Reply, random_response
from vlmgym.runs.record import EpisodeRecord, RunRecord, now, versions
from vlmgym.sandbox.core.prompt import PromptConfig

GAME = vlmgym.make_game("2048", size=64)
CHARACTERS = st.characters(exclude_categories=["Cs"])
"""All characters but surrogates; `st.text()` takes seconds to list those that can be encoded."""


@contextmanager
def small_suite(folder, *games, **settings):
    """Use only the suites in a folder, after freezing one of these games in it; yield its name."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("vlmgym.benchmark.suites", "benchmarks.suites"):
            patch.setattr(f"{module}.FOLDER", folder)
        patch.setattr("benchmarks.suites.RANKED", games)
        if not any(folder.glob("*.toml")):
            options = {"baseline_episodes": max(6, settings.get("episodes", 0)), **settings}
            freeze(FreezeConfig(name="small-1", description="Small & fast.", **options))
        read_suite.cache_clear()
        yield "small-1"
    read_suite.cache_clear()


def save_run(folder: Path, episodes: Sequence[EpisodeRecord]) -> None:
    """Save records of one game, with seeds from 0, as a run without a summary."""
    folder.mkdir(parents=True)
    first = episodes[0]
    config = RunRecord(
        started=now(),
        versions=versions(),
        games=(first.game,),
        policy=first.policy,
        reward=first.reward,
        prompts=PromptConfig(),
        max_turns=first.max_turns,
        seed=0,
        episodes=len(episodes),
        options={},
    )
    (folder / "run.json").write_text(config.model_dump_json())
    (folder / "episodes.jsonl").write_text("".join(f"{episode.model_dump_json()}\n" for episode in episodes))


def play_run(out, policy, games=("2048",), **options):
    """Play a few short episodes of each game; return the folder of the run."""
    quick = {"episodes": 8, "max_turns": 10, "size": 128, "workers": 0, "videos": 0, "report": False}
    run_evaluation(games, EvalConfig(policy=policy, output_dir=out, **quick | options))
    return out


@contextmanager
def edited(path: Path) -> Iterator[Any]:
    """Yield the values in a JSON Lines file, or the value in a JSON file, and write them back after changes."""
    text = path.read_text()
    data = [*map(json.loads, text.splitlines())] if path.suffix == ".jsonl" else json.loads(text)
    yield data
    path.write_text("".join(f"{json.dumps(value)}\n" for value in (data if path.suffix == ".jsonl" else [data])))


def summarise(episodes):
    """Summarise the records of one game."""
    tally = GameTally()
    for episode in episodes:
        tally.add(episode)
    return tally.summary()


def without_times(record):
    """Dump a record without times and the policy, which differ between runs."""
    data = record.model_dump(mode="json")
    data.pop("policy")
    data.pop("started")
    for turn in data["turns"]:
        turn.pop("latency")
    return data


def as_bytes(messages):
    """Replace the images of messages with their pixels, so that messages can be compared."""
    return [
        {
            **message,
            "content": [
                {**part, "image": np.asarray(part["image"]).tobytes()} if "image" in part else part
                for part in message["content"]
            ],
        }
        for message in messages
    ]


class Recording:
    """A random policy that stores its prompts and responses by game, seed and turn from 1; one turn is unparsable."""

    def __init__(self, unparsable):
        self.unparsable, self.calls = unparsable, {}

    def __call__(self, images_batch, prompt_batch):
        for prompt in prompt_batch:
            response = "no answer" if prompt.turn + 1 == self.unparsable else random_response(prompt)
            self.calls[prompt.game.id, prompt.seed, prompt.turn + 1] = prompt, response
        return [self.calls[prompt.game.id, prompt.seed, prompt.turn + 1][1] for prompt in prompt_batch]


class Model(ModelPolicy):
    """A random policy that responds out of order, and fails once in each turn in `fails`: (game, seed, turn)."""

    name = "model"
    transform = None
    counts_tokens = True

    def __init__(self, fails=(), tokens=None, order=0):
        super().__init__()
        self.fails, self.tokens, self.order = set(fails), tokens, random.Random(order)
        self.requested, self.most = [], 0

    def set_running_episodes(self, episodes):
        self.most = max(self.most, episodes)

    async def respond(self, images, prompt):
        place = (prompt.game.name, prompt.seed, prompt.turn)
        self.requested.append(place)
        await asyncio.sleep(self.order.random() / 500)
        if place in self.fails:
            self.fails.remove(place)
            raise InfrastructureError("the server is down")
        return Reply(random_response(prompt), self.tokens, self.tokens)
