"""Script for .venv-train: run a tiny checkpoint with transformers, and print facts for the tests as JSON."""

from __future__ import annotations

import asyncio
import json
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


def request(seed: int, sample_seed: int | None = None, more: str = "") -> GenerationRequest:
    state = GAME.start(np.random.default_rng(seed))
    return GenerationRequest(GAME.images(state), GAME.prompt(state) + more, sample_seed)


def as_json(replies: list[Reply | InfrastructureError]) -> list[Any]:
    return [
        str(reply)
        if isinstance(reply, InfrastructureError)
        else [reply.text, reply.prompt_tokens, reply.completion_tokens, reply.finish_reason]
        for reply in replies
    ]


def generation_facts(model: LocalModel) -> dict[str, Any]:
    # Prompts of different lengths, so that batches are padded.
    requests = [request(i, 100 + i, " up" * 7 * i) for i in range(4)]
    greedy = model.generate(requests, TOKENS, temperature=0)
    sampled = model.generate(requests, TOKENS, temperature=1)
    long = request(0, more=" up" * model.context)
    second = greedy[1]
    assert isinstance(second, Reply)
    assert second.prompt_tokens is not None
    with patch.object(model, "context", second.prompt_tokens + 3):
        little_room = as_json(model.generate(requests[:2], TOKENS, temperature=0))
    return {
        "greedy": as_json(greedy),
        "greedy alone": as_json([model.generate([one], TOKENS, temperature=0)[0] for one in requests]),
        "by default": as_json(model.generate(requests, TOKENS)),
        "sampled": as_json(sampled),
        "sampled alone, backwards": as_json(
            [model.generate([one], TOKENS, temperature=1)[0] for one in reversed(requests)]
        ),
        "other seeds": as_json(model.generate([request(0, i) for i in range(4)], TOKENS, temperature=1)),
        "one of one": as_json(model.generate([request(0, i) for i in range(4)], TOKENS, top_k=1)),
        "too long": as_json(model.generate([long, requests[1]], TOKENS, temperature=0)),
        "little room": little_room,
        "special": as_json(model.generate([requests[0], request(1, more="<|im_end|>"), requests[2]], TOKENS)),
        "only special": as_json(model.generate([request(0, more="<|image_pad|>")], TOKENS)),
        "only too long": as_json(model.generate([long], TOKENS)),
        "without image": as_json(model.generate([GenerationRequest([], "hello", 1)], TOKENS)),
        "context": model.context,
    }


def sampled_tokens(model: LocalModel) -> list[int]:
    """Return the tokens of many almost uniformly random responses."""
    seen: list[int] = []
    with patch.object(model, "_reply", lambda row, *_: seen.extend(row)):
        model.generate([request(i, i) for i in range(8)], 64, temperature=1e6)
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
        one = request(seed)
        return asyncio.create_task(policy.respond(list(one.images), Prompt(str(one.prompt), GAME, seed, 0)))

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
    """Return the error message for a batch that does not fit in memory."""
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
    facts = generation_facts(local)
    tokens = sampled_tokens(local)
    vocabulary = local.processor.tokenizer.get_vocab()
    names = sorted(name for name, token in vocabulary.items() if token in set(tokens))
    facts["drawn"] = {"tokens": len(tokens), "names": names}
    facts |= asyncio.run(policy_facts(sys.argv[1]))
    facts["memory"] = memory_error(local)
    print(json.dumps(facts))
