"""Checkpoints by transformers: in the environment that serves, with a tiny model, and what is said without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving import run_python
from vlmgym.errors import UsageError
from vlmgym.policies import make_policy
from vlmgym.policies.transformers import TransformersOptions
from vlmgym.policies.vllm import VLLMOptions

IMAGE_TOKENS = {"<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}


@pytest.fixture(scope="module")
def facts(tiny_checkpoint: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_python("-m", "tests.local_model_facts", str(tiny_checkpoint)))
    return found


@pytest.mark.slow
def test_neither_batch_nor_padding_changes_what_the_tiny_model_says(facts: dict[str, Any]) -> None:
    assert facts["greedy"] == facts["greedy alone"]
    lengths = [tokens for _, tokens, _, _ in facts["greedy"]]
    assert lengths == sorted(set(lengths)), "padding is counted, or prompts are alike"
    assert [reply[2:] for reply in facts["greedy"]] == [[16, "length"]] * 4
    assert len({text for text, *_ in facts["greedy"]}) > 1


@pytest.mark.slow
def test_every_prompt_has_a_seed_of_its_own_in_any_batch(facts: dict[str, Any]) -> None:
    assert facts["sampled"] == facts["sampled alone, backwards"][::-1]
    assert facts["sampled"] != facts["greedy"]
    assert len({text for text, *_ in facts["other seeds"]}) == 4
    texts = [text for text, *_ in facts["one of one"]]
    assert texts == [facts["greedy"][0][0]] * 4, "top_k 1 is greedy, with any seed; the position is the first one's"


@pytest.mark.slow
def test_what_is_not_given_follows_the_generation_configuration(facts: dict[str, Any]) -> None:
    assert facts["by default"] == facts["greedy"], "the checkpoint says do_sample: false"


@pytest.mark.slow
def test_tokens_that_stand_for_images_are_never_drawn(facts: dict[str, Any]) -> None:
    names = set(facts["drawn"]["names"])
    assert facts["drawn"]["tokens"] == 16 * 64
    assert len(names) > 300, "the test draws too few tokens"
    assert not names & IMAGE_TOKENS


@pytest.mark.slow
def test_a_prompt_that_does_not_fit_is_an_error_of_its_own(facts: dict[str, Any]) -> None:
    error, other = facts["too long"]
    assert error.startswith("the prompt has 4,")
    assert error.endswith("tokens, and the model takes 4,096")
    assert other == facts["greedy"][1]
    assert facts["only too long"] == [error]


@pytest.mark.slow
def test_a_response_ends_before_a_stop_text(facts: dict[str, Any]) -> None:
    stop, (text, _, tokens, reason) = facts["stop"]
    whole = facts["greedy"][0][0]
    assert text == whole[: whole.index(stop)]
    assert reason == "stop"
    assert tokens < 16
    assert facts["without image"][0][2] == 16


@pytest.mark.slow
def test_the_event_loop_lives_and_closing_does_not_wait_for_responses(facts: dict[str, Any]) -> None:
    assert facts["ticks in half a second"] > 10
    assert facts["seconds to close"] < 5, "2000 tokens take longer"


@pytest.mark.slow
def test_too_little_memory_is_told_in_a_sentence(facts: dict[str, Any]) -> None:
    assert facts["memory"] == "the memory is too small for 16 prompts at once: lower --batch-size"


@pytest.mark.parametrize(("name", "options"), [("transformers", TransformersOptions), ("vllm", VLLMOptions)])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "needs a --model: the folder of a checkpoint, or a name on the hub"),
        ("./no/such", "there is no folder ./no/such, and a name on the hub looks like Qwen/Qwen3-VL-2B-Instruct"),
        ("no-such", "there is no folder no-such, and"),
        (".", "the folder . holds no checkpoint: there is no config.json in it"),
    ],
)
def test_a_checkpoint_that_is_not_there(name: str, options: Any, model: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        make_policy(name, options(model=model))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (TransformersOptions, {"batch_size": 0}, "batch_size is a whole number of at least 1, not 0"),
        (TransformersOptions, {"dtype": "int8"}, "dtype is one of auto, bfloat16, float16, float32, not 'int8'"),
        (VLLMOptions, {"max_model_len": 0}, "max_model_len is a whole number of at least 1, not 0"),
        (VLLMOptions, {"gpu_memory_utilization": 1.5}, "gpu_memory_utilization is a share above 0"),
        (VLLMOptions, {"engine_args": "[1]"}, "engine_args is a JSON object, not [1]"),
        (VLLMOptions, {"engine_args": '{"model": "x"}'}, "engine_args cannot set model: another option does"),
        (VLLMOptions, {"engine_args": '{"hf_token": "x"}'}, "engine_args cannot set hf_token, which would be recorded"),
    ],
)
def test_options_that_are_not_accepted(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        kind(**options)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", ["transformers", "vllm"])
def test_a_missing_package_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    for package in ("torch", "vllm"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "vlmgym.policies.local_model", raising=False)
    kind = {"transformers": TransformersOptions, "vllm": VLLMOptions}[name]
    with pytest.raises(UsageError, match=f"the policy {name} needs"):
        make_policy(name, kind(model=str(tmp_path)))
