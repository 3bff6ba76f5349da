"""The policy `transformers` with a tiny model in .venv-train, and the options of policies that need extras."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training import run_training
from vlmgym.errors import UsageError, importing
from vlmgym.policies import make_policy
from vlmgym.policies.openai.policy import OpenAIOptions
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.policies.vllm import VLLMOptions

IMAGE_TOKENS = {"<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}


@pytest.fixture(scope="module")
def facts(tiny_checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_training("-m", "tests.local_model_facts", str(tiny_checkpoint)))
    return found


@pytest.mark.slow
def test_batching_and_padding_do_not_change_responses(facts: dict[str, Any]) -> None:
    assert facts["greedy"] == facts["greedy alone"]
    lengths = [tokens for _, tokens, _, _ in facts["greedy"]]
    assert lengths == sorted(set(lengths)), "padding is counted, or prompts are equal"
    assert [reply[2:] for reply in facts["greedy"]] == [[16, "length"]] * 4
    assert len({text for text, *_ in facts["greedy"]}) > 1


@pytest.mark.slow
def test_each_prompt_has_its_own_seed(facts: dict[str, Any]) -> None:
    assert facts["sampled"] == facts["sampled alone, backwards"][::-1]
    assert facts["sampled"] != facts["greedy"]
    assert len({text for text, *_ in facts["other seeds"]}) == 4
    texts = [text for text, *_ in facts["one of one"]]
    assert texts == [facts["greedy"][0][0]] * 4, "top_k 1 is greedy for any seed; all prompts are the first one"


@pytest.mark.slow
def test_generation_config_is_the_default(facts: dict[str, Any]) -> None:
    assert facts["by default"] == facts["greedy"], "the checkpoint has do_sample: false"


@pytest.mark.slow
def test_image_tokens_are_never_sampled(facts: dict[str, Any]) -> None:
    names = set(facts["drawn"]["names"])
    assert facts["drawn"]["tokens"] == 8 * 64
    assert len(names) > 300, "the test samples too few tokens"
    assert not names & IMAGE_TOKENS


@pytest.mark.slow
def test_overlong_prompt_fails_alone(facts: dict[str, Any]) -> None:
    error, other = facts["too long"]
    assert error.startswith("the prompt has 4,")
    assert error.endswith("the context length 4,096")
    assert other == facts["greedy"][1]
    assert facts["only too long"] == [error]


@pytest.mark.slow
def test_prompt_with_special_token_fails_alone(facts: dict[str, Any]) -> None:
    first, error, third = facts["special"]
    assert error == "the prompt contains <|im_end|>, a special token of the model"
    assert [first, third] == facts["greedy"][:3:2]
    assert facts["only special"] == [error.replace("im_end", "image_pad")]


@pytest.mark.slow
def test_each_response_may_fill_the_context(facts: dict[str, Any]) -> None:
    for (cut, length, tokens, reason), (text, *_), room in zip(facts["little room"], facts["greedy"], (10, 3)):
        assert (length + tokens, tokens, reason) == (facts["little room"][1][1] + 3, room, "length")
        assert text.startswith(cut.rstrip("\ufffd"))


@pytest.mark.slow
def test_prompts_need_no_image(facts: dict[str, Any]) -> None:
    assert facts["without image"][0][2] == 16


@pytest.mark.slow
def test_generation_blocks_neither_event_loop_nor_close(facts: dict[str, Any]) -> None:
    assert facts["ticks in half a second"] > 10
    assert facts["seconds to close"] < 5, "2000 tokens take longer"


@pytest.mark.slow
def test_out_of_memory(facts: dict[str, Any]) -> None:
    assert "16 prompts per batch: lower --batch-size" in facts["memory"]


@pytest.mark.parametrize(
    ("name", "options", "package"),
    [
        ("transformers", TransformersOptions(model="a/b"), "torch"),
        ("vllm", VLLMOptions(model="a/b"), "vllm"),
        ("openai", OpenAIOptions(model="m", base_url="http://localhost:1/v1"), "aiohttp"),
    ],
)
def test_missing_package(name: str, options: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("local_model", "openai.client"):
        monkeypatch.delitem(sys.modules, f"vlmgym.policies.{module}", raising=False)
    with pytest.raises(UsageError, match=f"{name}.* needs {package}: .*install"):
        make_policy(name, options)


def test_an_incompatible_version_of_a_library_is_named() -> None:
    message = r"^a cannot import its libraries \(cannot import name 'nothing' from 'json' .*vlmgym\[data\]"
    with pytest.raises(UsageError, match=message), importing("a", "data"):
        from json import nothing  # type: ignore[attr-defined]  # noqa: F401
