"""Log-probabilities, generation and checkpoints of the trained model, for each architecture."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText

from tests.hub_server import serving_hub
from tests.in_training.reference import IMAGE_TOKENS, Reference
from tests.in_training.tiny import TOLERANCE, make_actor, make_checkpoint, make_prompts, make_samples
from vlmgym.errors import EpisodeError, UsageError
from vlmgym.policies import local_model
from vlmgym.policies.base import Reply
from vlmgym.policies.local_model import GenerationRequest, LocalModel, SeededSampler
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.training.config import Kind, TinySize
from vlmgym.training.engine.actor import Actor
from vlmgym.training.engine.encoding import Encoder, TrainSample
from vlmgym.training.engine.qwen_vl import QwenVL
from vlmgym.training.tiny_vlm import make_tiny_vlm

LENGTHS = (5, 1, 9, 3)
LONG = (*LENGTHS, 7, 2)
TEMPERATURE = 0.7


@pytest.fixture(scope="module", params=get_args(Kind))
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / request.param, request.param)


@pytest.fixture(scope="module")
def actor(checkpoint: Path) -> Actor:
    return make_actor(checkpoint)


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


def respond(
    actor: Actor, inputs: Sequence[tuple[str, list[ImageArray]]], seeds: Sequence[int], tokens: int, temperature: float
) -> list[list[int]]:
    """Generate a response to each prompt."""
    prompts = [actor.encoder.encode(text, images) for text, images in inputs]
    responses: list[list[int]] = actor.generate(prompts, range(len(prompts)), seeds, tokens, temperature)
    return responses


def change_adapters(actor: Actor) -> None:
    """Change the adapter weights, so that the adapters have an effect."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in actor.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def logprobs_of(actor: Actor, some: Sequence[TrainSample]) -> list[np.ndarray]:
    with torch.no_grad():
        logprobs = actor.compute_logprobs(some, TEMPERATURE).logprobs
    return [row[: len(sample.response)].numpy() for row, sample in zip(logprobs, some)]


# Prompts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [96, 100, 333])
def test_prompts_equal_those_of_the_hugging_face_processor(actor: Actor, reference: Reference, side: int) -> None:
    rng = np.random.default_rng(side)
    images = [rng.integers(0, 256, (side, wide, 3), dtype=np.uint8) for wide in (side, side + 40)]
    ours = actor.encoder.encode("Which tiles are equal?", images)
    theirs = reference.batch("Which tiles are equal?", images)
    batch = actor.encoder.collate([ours], None, actor.device, torch.float32)
    assert batch.keys() >= theirs.keys() - {"mm_token_type_ids"}
    for name, tensor in batch.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=0)
    if isinstance(actor.family, QwenVL):
        assert ours.images["patches"].dtype == torch.uint8, "stored prompts need four times the memory"


def test_prompts_without_images(actor: Actor, reference: Reference) -> None:
    (text, _), response = make_prompts(1)[0], actor.encoder.tokens("<answer>up</answer>")
    sample = TrainSample(actor.encoder.encode(text, []), response)
    expected = (reference.logits(text, [], response)[:-1] / TEMPERATURE).log_softmax(-1)
    expected = expected.gather(-1, torch.tensor(response)[:, None])[:, 0]
    torch.testing.assert_close(torch.from_numpy(logprobs_of(actor, [sample])[0]), expected, atol=1e-4, rtol=1e-4)
    assert respond(actor, [(text, [])], [0], 4, 1.0)[0]


def test_responses_survive_encoding_and_decoding(actor: Actor) -> None:
    text = "<perception>2 4\n0 8</perception><think>é, 10 = 8 + 2</think><answer>up</answer>"
    tokens = actor.encoder.tokens(text)
    assert actor.encoder.text(tokens) == text
    assert actor.ends == {tokens[-1], actor.encoder.tokenizer.convert_tokens_to_ids("<|endoftext|>")}


@pytest.mark.parametrize("checkpoint", ["qwen3_vl"], indirect=True)
def test_image_tokens_are_never_split(actor: Actor, checkpoint: Path, tmp_path: Path) -> None:
    splitting = tmp_path / "splitting"
    shutil.copytree(checkpoint, splitting)
    config = splitting / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "split_special_tokens": True}))
    inputs = make_prompts(1)[0]
    assert Encoder(splitting).encode(*inputs).ids.tolist() == actor.encoder.encode(*inputs).ids.tolist()


def test_prompts_cannot_contain_image_tokens(actor: Actor) -> None:
    with pytest.raises(EpisodeError, match=r"contains <\|image_pad\|>"):
        actor.encoder.encode("see <|image_pad|>", make_prompts(1)[0][1])


# Log-probabilities ----------------------------------------------------------------------------------------------------


def test_logprobs_equal_those_of_hugging_face(actor: Actor, reference: Reference) -> None:
    some = make_samples(actor, LENGTHS)
    with torch.no_grad():
        found = actor.compute_logprobs(some, TEMPERATURE)
    assert found.mask.sum(dim=1).tolist() == list(LENGTHS)
    for row, (sample, inputs) in enumerate(zip(some, make_prompts(len(some)))):
        length = len(sample.response)
        logits = reference.logits(*inputs, sample.response)[:-1] / TEMPERATURE
        expected = logits.log_softmax(-1)[range(length), sample.response]
        torch.testing.assert_close(found.logprobs[row, :length], expected, rtol=0, atol=TOLERANCE)
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        torch.testing.assert_close(found.entropy[row, :length], entropy, rtol=0, atol=TOLERANCE)
        assert found.logprobs[row, length:].count_nonzero() == found.entropy[row, length:].count_nonzero() == 0


@pytest.mark.parametrize(
    ("lengths", "recompute", "lora"),
    [*((LONG, recompute, lora) for recompute, lora in ((False, 0), (True, 0), (False, 4))), ((1,) * 6, False, 0)],
)
def test_shared_prompts_are_forwarded_once_with_equal_results(
    checkpoint: Path, lengths: Sequence[int], recompute: bool, lora: int
) -> None:
    actor = make_actor(checkpoint, critic=True, gradient_checkpointing=recompute, lora=lora)
    assert actor.critic is not None
    torch.nn.init.ones_(actor.critic.weight)
    change_adapters(actor)
    others = make_samples(actor, lengths)
    alike = [TrainSample(others[number % 3].prompt, sample.response) for number, sample in enumerate(others)]
    apart = [TrainSample(replace(sample.prompt), sample.response) for sample in alike]
    read: list[int] = []
    actor.model.model.language_model.register_forward_pre_hook(
        lambda _, args, given: read.append(
            (given["inputs_embeds"][..., 0] if given.get("input_ids") is None else given["input_ids"]).numel()
        ),
        with_kwargs=True,
    )
    found = []
    for some in (alike, apart):
        actor.zero_grad()
        measured = actor.compute_logprobs(some, TEMPERATURE, entropy_grad=True)
        assert measured.values is not None
        weight = torch.arange(1.0, 7.0).unsqueeze(1) * measured.mask
        (weight * (measured.logprobs + measured.entropy + measured.values)).sum().div(weight.sum()).backward()
        gradients = {name: one.grad for name, one in actor.named_parameters() if one.grad is not None}
        found.append((measured.logprobs, measured.entropy, measured.values * measured.mask, gradients))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=TOLERANCE)
    *once, whole = read
    assert (sum(once) < 0.7 * whole) != recompute


def test_values_start_at_zero_and_depend_on_earlier_tokens_only(checkpoint: Path) -> None:
    actor = make_actor(checkpoint, critic=True)
    first, second = make_samples(actor, (4, 4))
    changed = TrainSample(first.prompt, [*first.response[:2], *second.response[2:]])
    with torch.no_grad():
        assert actor.compute_logprobs([first]).values.count_nonzero() == 0  # type: ignore[union-attr]
        torch.nn.init.ones_(actor.critic.weight)  # type: ignore[union-attr]
        values = actor.compute_logprobs([first, changed]).values
    torch.testing.assert_close(values[0, :3], values[1, :3], rtol=0, atol=TOLERANCE)  # type: ignore[index]
    assert (values[0, 3] - values[1, 3]).abs() > TOLERANCE  # type: ignore[index]


def test_values_depend_on_the_images_from_the_first_token(checkpoint: Path) -> None:
    actor = make_actor(checkpoint, critic=True)
    sample, longer, other = make_samples(actor, (3, 5, 3))
    elsewhere = TrainSample(replace(sample.prompt, images=other.prompt.images), sample.response)
    assert actor.critic is not None
    with torch.no_grad():
        actor.critic.weight[:, actor.critic.in_features // 2 :] = 1.0
        alone = actor.compute_logprobs([sample]).values[0]  # type: ignore[index]
        beside = actor.compute_logprobs([longer, sample]).values[1, :3]  # type: ignore[index]
        changed = actor.compute_logprobs([elsewhere]).values[0]  # type: ignore[index]
    torch.testing.assert_close(alone, alone[:1].expand(3), rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(beside, alone, rtol=0, atol=10 * TOLERANCE)
    assert (changed - alone).abs().min() > 10 * TOLERANCE


# Responses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0, TEMPERATURE])
def test_tokens_are_sampled_from_the_logits_of_hugging_face(
    actor: Actor, reference: Reference, temperature: float
) -> None:
    inputs, seeds = make_prompts(4), [5, 6, 7, 8]
    responses = respond(actor, inputs, seeds, 10, temperature)
    for each, seed, response in zip(inputs, seeds, responses):
        sampler = SeededSampler([seed], temperature) if temperature else None
        for logits, token in zip(reference.logits(*each, response), response):
            assert token == (logits.argmax() if sampler is None else sampler.draw(logits[None]))


def test_adapters_take_part_in_generation(checkpoint: Path, tmp_path: Path) -> None:
    actor, inputs = make_actor(checkpoint, lora=4), make_prompts(4)
    base = respond(actor, inputs, range(4), 10, 0.0)
    change_adapters(actor)
    actor.save(tmp_path)
    merged, responses = Reference(tmp_path), respond(actor, inputs, range(4), 10, 0.0)
    assert responses != base
    for each, response in zip(inputs, responses):
        assert merged.logits(*each, response)[:-1].argmax(-1)[: len(response)].tolist() == response


def test_responses_to_a_shared_prompt_equal_single_ones_and_stop_at_the_end_token(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [actor.encoder.encode(*each) for each in make_prompts(3)]
    places, seeds = [2, 0, 2, 1, 0, 2], range(6)
    monkeypatch.setattr(local_model, "DRAWN_AT_ONCE", 5)
    monkeypatch.setattr(actor, "ends", set())
    endless = actor.generate(prompts, places, seeds, 12, 1.0)
    for ends in ({endless[2][4]}, {endless[5][3], endless[0][3]}, {row[2] for row in endless[:5]}):
        monkeypatch.setattr(actor, "ends", ends)
        together = actor.generate(prompts, places, seeds, 12, 1.0)
        alone = [actor.generate([prompts[place]], [0], [seed], 12, 1.0)[0] for place, seed in zip(places, seeds)]
        assert together == alone
        stops = [next((n + 1 for n, token in enumerate(row) if token in ends), 12) for row in endless]
        assert together == [row[:stop] for row, stop in zip(endless, stops)]
        assert min(stops) < max(stops)


def test_tokens_are_sampled_with_their_probabilities() -> None:
    logits, draws = torch.tensor([1.0, 0.0, -torch.inf, -1.0, 2.0]), 4000
    drawn = SeededSampler(range(draws), TEMPERATURE)(None, logits.repeat(draws, 1)).argmax(-1)
    expected = draws * (logits / TEMPERATURE).softmax(-1)
    errors = (drawn.bincount(minlength=5) - expected) / (expected * (1 - expected / draws)).sqrt()
    assert errors[expected > 0].abs().max() < 4
    assert 2 not in drawn


def test_image_tokens_are_never_sampled(actor: Actor) -> None:
    assert set(actor.encoder.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))) == set(actor.suppressed)
    drawn = {token for row in respond(actor, make_prompts(2) * 20, range(40), 24, 100.0) for token in row}
    assert len(drawn) > 300, "the test samples too few distinct tokens"
    assert not drawn & set(actor.suppressed)


def test_too_long_prompts_are_rejected(actor: Actor) -> None:
    text, images = make_prompts(1)[0]
    with pytest.raises(UsageError, match=r"context of 4,096"):
        respond(actor, [(text + " up" * actor.context, images)], [0], 4, 1.0)


# Checkpoints ----------------------------------------------------------------------------------------------------------


def test_saved_models_are_equal_in_hugging_face_and_vlmgym(actor: Actor, tmp_path: Path) -> None:
    actor.save(tmp_path)
    again = Reference(tmp_path)
    some, inputs = make_samples(actor, (4,)), make_prompts(1)[0]
    logprobs = again.logits(*inputs, some[0].response)[:-1].div(TEMPERATURE).log_softmax(-1)
    expected = logprobs[range(4), some[0].response].numpy()
    np.testing.assert_allclose(logprobs_of(actor, some)[0], expected, rtol=0, atol=TOLERANCE)
    greedy = actor.encoder.text(respond(actor, [inputs], [0], 12, 0.0)[0])
    reply = LocalModel(str(tmp_path), "cpu", "float32").generate(
        [GenerationRequest(inputs[1], inputs[0])], 12, temperature=0
    )[0]
    assert isinstance(reply, Reply)
    assert reply.text == greedy


SAVED = (
    "from pathlib import Path; from vlmgym.training.engine.actor import Actor; "
    "from vlmgym.training.config import ModelConfig; "
    "Actor('owner/model', ModelConfig(device='cpu')).save(Path('{out}'))"
)


@pytest.mark.parametrize("checkpoint", ["qwen3_vl"], indirect=True)
def test_models_of_the_hub_are_saved_with_all_processor_files(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "hub" / "owner" / "model")
    with serving_hub(tmp_path / "hub") as hub:
        environment = {**os.environ, **hub.environment, "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", SAVED.format(out=tmp_path / "out")]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=600)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in checkpoint.iterdir()}
    kept = [path for path in checkpoint.iterdir() if path.suffix != ".safetensors"]
    assert all((tmp_path / "out" / path.name).read_bytes() == path.read_bytes() for path in kept)


@pytest.fixture(scope="module")
def adapted(checkpoint: Path) -> Actor:
    """Load the model with adapters that have an effect."""
    pytest.importorskip("peft")
    actor = make_actor(checkpoint, lora=4)
    change_adapters(actor)
    return actor


def test_only_adapters_are_trained(adapted: Actor) -> None:
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name and "language_model" in name for name in trained)
    layers = {name.split("lora_")[0].rstrip(".").rpartition(".")[2] for name in trained}
    linear = {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}  # of linear attention
    others = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert layers == others | (linear if adapted.model.config.model_type == "qwen3_5" else set())


def test_saving_merges_adapters_and_leaves_the_model_unchanged(actor: Actor, adapted: Actor, tmp_path: Path) -> None:
    some = make_samples(adapted, LENGTHS)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    adapted.save(tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
    saved = logprobs_of(make_actor(tmp_path), some)
    with_adapters, base = logprobs_of(adapted, some), logprobs_of(actor, some)
    for one, merged in zip(with_adapters, saved):
        np.testing.assert_allclose(one, merged, rtol=0, atol=TOLERANCE)
    assert np.abs(np.concatenate(with_adapters) - np.concatenate(base)).max() > 100 * TOLERANCE
    assert not [file.name for file in tmp_path.iterdir() if "adapter" in file.name]


def test_adapters_are_saved_alone_and_restored_bit_for_bit(checkpoint: Path, adapted: Actor, tmp_path: Path) -> None:
    adapted.save_trained(tmp_path)
    (kept,) = tmp_path.rglob("*.safetensors")
    assert kept == tmp_path / "adapter" / "adapter_model.safetensors"
    again = make_actor(checkpoint, lora=4)
    again.load_trained(tmp_path)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in adapted.state_dict().items())
    peft = pytest.importorskip("peft")
    base = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").state_dict()
    assert adapted.adapters is not None
    ours = adapted.adapters.state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    with pytest.raises(ValueError, match="another model or rank"):
        make_actor(checkpoint, lora=2).load_trained(tmp_path)


def test_models_load_in_several_threads(tmp_path: Path) -> None:
    make_tiny_vlm(TinySize(), tmp_path, ["up"])
    with ThreadPoolExecutor(2) as pool:
        actors = list(pool.map(lambda _: make_actor(tmp_path), range(6)))
    first, *others = (actor.state_dict() for actor in actors)
    assert all(torch.equal(tensor, other[name]) for other in others for name, tensor in first.items())
    assert all(actor.model.lm_head.weight is actor.model.get_input_embeddings().weight for actor in actors)
