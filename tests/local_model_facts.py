"""Asks a tiny checkpoint by transformers in the environment that serves, and prints what tests assert, as JSON."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from vlmgym.errors import InfrastructureError, PolicyError
from vlmgym.policies.base import Prompt, Reply
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.policies.transformers import TransformersOptions, TransformersPolicy
from vlmgym.sandbox.registry import make_game

GAME = make_game("2048", size=64)
TOKENS = 16


def question(seed: int, chance: int | None = None, more: str = "") -> GenerationRequest:
    state = GAME.start(np.random.default_rng(seed))
    return GenerationRequest(GAME.images(state), GAME.prompt(state) + more, chance)


def told(replies: list[Reply | InfrastructureError]) -> list[Any]:
    return [
        str(reply)
        if isinstance(reply, InfrastructureError)
        else [reply.text, reply.prompt_tokens, reply.completion_tokens, reply.finish_reason]
        for reply in replies
    ]


def answers(model: LocalModel) -> dict[str, Any]:
    # Prompts of different lengths, so that batches are padded.
    asked = [question(i, 100 + i, " up" * 7 * i) for i in range(4)]
    greedy = model.generate(asked, TOKENS, temperature=0)
    sampled = model.generate(asked, TOKENS, temperature=1)
    long = question(0, more=" up" * model.context)
    first = greedy[0]
    assert isinstance(first, Reply)
    stop = re.compile("[ -~]{2,4}").search(first.text, 4)
    assert stop, first.text
    end = stop[0]  # of whole characters: halves of one are no text to stop at
    return {
        "greedy": told(greedy),
        "greedy alone": told([model.generate([one], TOKENS, temperature=0)[0] for one in asked]),
        "by default": told(model.generate(asked, TOKENS)),
        "sampled": told(sampled),
        "sampled alone, backwards": told([model.generate([one], TOKENS, temperature=1)[0] for one in asked[::-1]]),
        "other seeds": told(model.generate([question(0, i) for i in range(4)], TOKENS, temperature=1)),
        "one of one": told(model.generate([question(0, i) for i in range(4)], TOKENS, top_k=1)),
        "too long": told(model.generate([long, asked[1]], TOKENS, temperature=0)),
        "only too long": told(model.generate([long], TOKENS)),
        "stop": [end, told(model.generate(asked[:1], TOKENS, temperature=0, stop=[end]))[0]],
        "without image": told(model.generate([GenerationRequest([], "hello", 1)], TOKENS)),
        "context": model.context,
    }


def drawn_tokens(model: LocalModel) -> list[int]:
    """All tokens of many responses that are almost uniformly random."""
    seen: list[int] = []
    with patch.object(model, "_reply", lambda row, *_: seen.extend(row)):
        model.generate([question(i, i) for i in range(16)], 64, temperature=1e6, ignore_eos=True)
    return seen


async def policy_facts(checkpoint: str) -> dict[str, Any]:
    policy = TransformersPolicy(TransformersOptions(model=checkpoint, batch_size=3, temperature=0, max_tokens=2000))
    await policy.open()
    policy.set_running_episodes(4)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    def ask(seed: int) -> asyncio.Task[Reply]:
        one = question(seed)
        return asyncio.create_task(policy.respond(list(one.images), Prompt(one.text, GAME, seed, 0)))

    ticker = asyncio.create_task(tick())
    tasks = [ask(seed) for seed in range(4)]
    await asyncio.sleep(0.5)
    begun = time.perf_counter()
    for task in tasks:
        task.cancel()
    await policy.close()
    closed = time.perf_counter() - begun
    ticker.cancel()
    return {"ticks in half a second": ticks, "seconds to close": closed}


def memory_error(model: LocalModel) -> str:
    """What is said when a batch does not fit."""
    image = np.zeros((512, 512, 3), np.uint8)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 64 * 2**20, -1))
    try:
        model.generate([GenerationRequest([image] * 4, "up")] * 16, TOKENS)
    except PolicyError as error:
        return str(error)
    return "it fits"


if __name__ == "__main__":
    local = LocalModel(sys.argv[1], "cpu", "float32")
    facts = answers(local)
    drawn = drawn_tokens(local)
    vocabulary = local.processor.tokenizer.get_vocab()
    names = sorted(name for name, token in vocabulary.items() if token in set(drawn))
    facts["drawn"] = {"tokens": len(drawn), "names": names}
    facts |= asyncio.run(policy_facts(sys.argv[1]))
    facts["memory"] = memory_error(local)
    print(json.dumps(facts))
