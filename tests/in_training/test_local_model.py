"""The policy `transformers` with a tiny model."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.in_training.reference import IMAGE_TOKENS
from tests.tiny_model import make_model
from vlmgym import make_game
from vlmgym.errors import InfrastructureError, PolicyError
from vlmgym.policies.base import Prompt, Reply
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.policies.transformers import TransformersOptions, TransformersPolicy
from vlmgym.training.config import TinySize

GAME = make_game("2048", size=64)
TOKENS = 16


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model with a generation config that says do_sample: false."""
    folder = tmp_path_factory.mktemp("checkpoint")
    make_model("qwen3_vl", folder, TinySize(tied=False))
    return folder


@pytest.fixture(scope="module")
def local(checkpoint: Path) -> LocalModel:
    return LocalModel(str(checkpoint), "cpu", "float32")


def request(seed: int, sample_seed: int | None = None, more: str = "") -> GenerationRequest:
    state = GAME.start(np.random.default_rng(seed))
    return GenerationRequest(GAME.images(state), GAME.prompt(state) + more, sample_seed)


REQUESTS = [request(i, 100 + i, " up" * 7 * i) for i in range(4)]
"""Prompts of different lengths, so that batches are padded."""


def replies(local: LocalModel, requests: list[GenerationRequest], **sampling: Any) -> list[Reply]:
    generated = local.generate(requests, TOKENS, **sampling)
    assert all(isinstance(reply, Reply) for reply in generated)
    return [reply for reply in generated if isinstance(reply, Reply)]


@pytest.fixture(scope="module")
def greedy(local: LocalModel) -> list[Reply]:
    return replies(local, REQUESTS, temperature=0)


def test_batching_and_padding_do_not_change_responses(local: LocalModel, greedy: list[Reply]) -> None:
    assert greedy == [reply for one in REQUESTS for reply in replies(local, [one], temperature=0)]
    lengths = [reply.prompt_tokens or 0 for reply in greedy]
    assert lengths == sorted(set(lengths)), "padding is counted, or prompts are equal"
    assert {(reply.completion_tokens, reply.finish_reason) for reply in greedy} == {(TOKENS, "length")}
    assert len({reply.text for reply in greedy}) > 1
    assert replies(local, REQUESTS) == greedy, "the generation config is the default"


def test_each_prompt_has_its_own_seed(local: LocalModel, greedy: list[Reply]) -> None:
    sampled = replies(local, REQUESTS, temperature=1)
    alone = [replies(local, [one], temperature=1)[0] for one in reversed(REQUESTS)]
    assert sampled == alone[::-1] != greedy
    seeds = [request(0, i) for i in range(4)]
    assert len({reply.text for reply in replies(local, seeds, temperature=1)}) == 4
    assert {reply.text for reply in replies(local, seeds, top_k=1)} == {greedy[0].text}, "top_k 1 is greedy"


def test_image_tokens_are_never_sampled(local: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(local, "_reply", lambda row, *_: seen.extend(row))
    local.generate([request(i, i) for i in range(8)], 64, temperature=1e6)
    assert len(seen) == 8 * 64
    assert len({*seen}) > 300, "the test samples too few distinct tokens"
    assert not {*seen} & {*local.processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))}


def test_prompts_that_are_too_long_or_have_special_tokens_fail_alone(local: LocalModel, greedy: list[Reply]) -> None:
    long, special = request(0, more=" up" * local.context), request(1, more="<|im_end|>")
    first, second, third = local.generate([long, REQUESTS[1], special], TOKENS, temperature=0)
    assert str(first).startswith("the prompt has 4,")
    assert str(first).endswith("the context length 4,096")
    assert second == greedy[1]
    assert str(third) == "the prompt contains <|im_end|>, a special token of the model"
    alone = local.generate([long], TOKENS)[0], local.generate([special], TOKENS)[0]
    assert [*map(str, alone)] == [str(first), str(third)]
    assert all(isinstance(error, InfrastructureError) for error in alone)


def test_each_response_may_fill_the_context(
    local: LocalModel, greedy: list[Reply], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = (greedy[1].prompt_tokens or 0) + 3
    monkeypatch.setattr(local, "context", context)
    for cut, whole, room in zip(replies(local, REQUESTS[:2], temperature=0), greedy, (10, 3)):
        assert (cut.completion_tokens, cut.finish_reason) == (room, "length")
        assert (cut.prompt_tokens or 0) + room == context
        assert whole.text.startswith(cut.text.rstrip("\ufffd"))


def test_prompts_need_no_image(local: LocalModel) -> None:
    assert replies(local, [GenerationRequest([], "hello", 1)])[0].completion_tokens == TOKENS


def test_generation_blocks_neither_event_loop_nor_close(checkpoint: Path) -> None:
    policy = TransformersPolicy(
        TransformersOptions(model=str(checkpoint), batch_size=3, temperature=0, max_tokens=2000)
    )
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def give_up() -> float:
        await policy.open()
        policy.set_running_episodes(4)
        ticker = asyncio.create_task(tick())
        tasks = [
            asyncio.ensure_future(policy.respond(list(one.images), Prompt(str(one.prompt), GAME, seed, 0)))
            for seed, one in enumerate(REQUESTS)
        ]
        await asyncio.sleep(0.5)
        begun = time.perf_counter()
        for task in tasks:
            task.cancel()
        await policy.close()
        ticker.cancel()
        return time.perf_counter() - begun

    assert asyncio.run(give_up()) < 5, "2000 tokens take longer"
    assert ticks > 10


def test_out_of_memory(local: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.model, "generate", lambda **_: torch.empty(2**60, dtype=torch.uint8))
    with pytest.raises(PolicyError, match="4 prompts per batch: lower --batch-size"):
        local.generate(REQUESTS, TOKENS)
