"""The model that is trained: its log-probabilities, its responses, its checkpoints, for each architecture."""

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

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoProcessor

from tests.hub_server import serving_hub
from tests.in_training.tiny import ALIKE, make_actor, make_checkpoint, questions, samples
from training.local.actor import Actor, ModelConfig, Sample, entropy_of
from training.local.encoding import Encoder
from training.tiny_vlm import CLASSES, make_tiny_vlm
from vlmgym.errors import UsageError
from vlmgym.policies.base import Reply
from vlmgym.policies.local_model import GenerationRequest, LocalModel
from vlmgym.policies.token_sampling import SeededSampler
from vlmgym.sandbox.core.game import ImageArray

IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
LENGTHS = (5, 1, 9, 3)
TEMPERATURE = 0.7


@pytest.fixture(scope="module", params=CLASSES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / request.param, request.param)


@pytest.fixture(scope="module")
def actor(checkpoint: Path) -> Actor:
    return make_actor(checkpoint)


class Judge:
    """The checkpoint as Hugging Face loads it and asks it: one text at a time, nothing padded."""

    def __init__(self, checkpoint: Path) -> None:
        self.processor = AutoProcessor.from_pretrained(checkpoint)
        self.processor.image_processor = AutoImageProcessor.from_pretrained(checkpoint, use_fast=False)
        self.model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).eval()
        self.never = self.processor.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))

    def batch(self, text: str, images: Sequence[ImageArray]) -> dict[str, torch.Tensor]:
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
        message = {"role": "user", "content": content}
        chat = self.processor.apply_chat_template([message], add_generation_prompt=True, tokenize=False)
        opened = [Image.fromarray(image) for image in images]
        return dict(self.processor(text=[chat], images=opened, return_tensors="pt"))

    def logits(self, text: str, images: Sequence[ImageArray], response: Sequence[int]) -> torch.Tensor:
        """What predicts each token of a response and the one after it; shape (tokens + 1, vocabulary)."""
        batch = self.batch(text, images)
        before = batch["input_ids"].shape[1]
        tail = torch.tensor([response], dtype=torch.int64)
        more = {"input_ids": tail, "attention_mask": torch.ones_like(tail), "mm_token_type_ids": torch.zeros_like(tail)}
        longer = {name: torch.cat([batch[name], added], dim=1) for name, added in more.items() if name in batch}
        with torch.no_grad():
            logits: torch.Tensor = self.model(**{**batch, **longer}).logits[0, before - 1 :]
        logits[:, self.never] = -torch.inf
        return logits


@pytest.fixture(scope="module")
def judge(checkpoint: Path) -> Judge:
    return Judge(checkpoint)


def respond(
    actor: Actor, asked: Sequence[tuple[str, list[ImageArray]]], seeds: Sequence[int], tokens: int, temperature: float
) -> list[list[int]]:
    """A response to each question."""
    prompts = [actor.encoder.encode(text, images) for text, images in asked]
    responses: list[list[int]] = actor.respond(prompts, range(len(prompts)), seeds, tokens, temperature)
    return responses


def change_adapters(actor: Actor) -> None:
    """Make adapters do something."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in actor.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def measured(actor: Actor, some: Sequence[Sample]) -> list[np.ndarray]:
    with torch.no_grad():
        logprobs = actor.measure(some, TEMPERATURE).logprobs
    return [row[: len(sample.response)].numpy() for row, sample in zip(logprobs, some)]


# Prompts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [96, 100, 333])
def test_a_prompt_is_what_the_processor_of_hugging_face_makes(actor: Actor, judge: Judge, side: int) -> None:
    rng = np.random.default_rng(side)
    images = [rng.integers(0, 256, (side, wide, 3), dtype=np.uint8) for wide in (side, side + 40)]
    ours = actor.encoder.encode("Which tiles are equal?", images)
    theirs = judge.batch("Which tiles are equal?", images)
    assert ours.ids.tolist() == theirs["input_ids"][0].tolist()
    assert ours.patches.dtype == torch.uint8, "prompts that are kept need four times the memory"
    torch.testing.assert_close(actor.encoder.pixel_values(ours.patches), theirs["pixel_values"], rtol=0, atol=0)
    assert ours.grids.tolist() == theirs["image_grid_thw"].tolist()


def test_a_response_is_the_same_text_again(actor: Actor) -> None:
    text = "<perception>2 4\n0 8</perception><think>é, 10 = 8 + 2</think><answer>up</answer>"
    tokens = actor.encoder.tokens(text)
    assert tokens[-1] == actor.encoder.end
    assert actor.encoder.text(tokens) == text


@pytest.mark.parametrize("checkpoint", ["qwen3_vl"], indirect=True)
def test_the_token_of_an_image_is_one_token_whatever_the_checkpoint_says(
    actor: Actor, checkpoint: Path, tmp_path: Path
) -> None:
    splitting = tmp_path / "splitting"
    shutil.copytree(checkpoint, splitting)
    config = splitting / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "split_special_tokens": True}))
    asked = questions(1)[0]
    assert Encoder(splitting).encode(*asked).ids.tolist() == actor.encoder.encode(*asked).ids.tolist()


def test_a_prompt_cannot_write_the_token_of_an_image(actor: Actor) -> None:
    with pytest.raises(UsageError, match=r"the prompt writes <\|image_pad\|>"):
        actor.encoder.encode("see <|image_pad|>", questions(1)[0][1])


# Log-probabilities ----------------------------------------------------------------------------------------------------


def test_log_probabilities_are_those_of_hugging_face(actor: Actor, judge: Judge) -> None:
    some = samples(actor, LENGTHS)
    with torch.no_grad():
        found = actor.measure(some, TEMPERATURE)
    assert found.mask.sum(dim=1).tolist() == list(LENGTHS)
    for row, (sample, asked) in enumerate(zip(some, questions(len(some)))):
        length = len(sample.response)
        logits = judge.logits(*asked, sample.response)[:-1] / TEMPERATURE
        expected = logits.log_softmax(-1)[range(length), sample.response]
        torch.testing.assert_close(found.logprobs[row, :length], expected, rtol=0, atol=ALIKE)
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        torch.testing.assert_close(found.entropy[row, :length], entropy, rtol=0, atol=ALIKE)
        assert found.logprobs[row, length:].count_nonzero() == found.entropy[row, length:].count_nonzero() == 0


def test_neither_padding_nor_order_of_a_batch_changes_log_probabilities(actor: Actor) -> None:
    some = samples(actor, LENGTHS)
    together = measured(actor, some)
    backwards = measured(actor, some[::-1])[::-1]
    alone = [measured(actor, [sample])[0] for sample in some]
    for one, other, single in zip(together, backwards, alone):
        np.testing.assert_allclose(one, other, rtol=0, atol=ALIKE)
        np.testing.assert_allclose(one, single, rtol=0, atol=ALIKE)


@pytest.mark.parametrize("lengths", [(5, 1, 9, 3, 7, 2), (1,) * 6])
@pytest.mark.parametrize(("again", "lora"), [(False, 0), (True, 0), (False, 4)])
def test_a_prompt_of_several_responses_is_read_once_which_changes_nothing(
    checkpoint: Path, lengths: Sequence[int], again: bool, lora: int
) -> None:
    actor = make_actor(checkpoint, critic=True, checkpointing=again, lora=lora)
    assert actor.critic is not None
    torch.nn.init.ones_(actor.critic.weight)
    change_adapters(actor)
    others = samples(actor, lengths)
    alike = [Sample(others[number % 3].prompt, sample.response) for number, sample in enumerate(others)]
    apart = [Sample(replace(sample.prompt), sample.response) for sample in alike]
    read: list[int] = []
    actor.model.model.language_model.register_forward_pre_hook(
        lambda _, args, given: read.append(given["inputs_embeds"].shape[:2].numel()), with_kwargs=True
    )
    found = []
    for some in (alike, apart):
        actor.zero_grad()
        measured = actor.measure(some, TEMPERATURE, learn_entropy=True)
        assert measured.values is not None
        weight = torch.arange(1.0, 7.0).unsqueeze(1) * measured.mask
        (weight * (measured.logprobs + measured.entropy + measured.values)).sum().div(weight.sum()).backward()
        gradients = {name: one.grad for name, one in actor.named_parameters() if one.grad is not None}
        found.append((measured.logprobs, measured.entropy, measured.values * measured.mask, gradients))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=ALIKE)
    *once, whole = read
    assert (sum(once) < 0.7 * whole) != again


def test_the_image_decides(actor: Actor) -> None:
    sample, _, other = samples(actor, (5, 5, 5))
    elsewhere = Sample(replace(sample.prompt, patches=other.prompt.patches), sample.response)
    assert np.abs(measured(actor, [sample])[0] - measured(actor, [elsewhere])[0]).max() > 100 * ALIKE


def test_a_critic_begins_with_zero_and_sees_what_comes_before_a_token(checkpoint: Path) -> None:
    actor = make_actor(checkpoint, critic=True)
    first, second = samples(actor, (4, 4))
    changed = Sample(first.prompt, [*first.response[:2], *second.response[2:]])
    with torch.no_grad():
        assert actor.measure([first]).values.count_nonzero() == 0  # type: ignore[union-attr]
        torch.nn.init.ones_(actor.critic.weight)  # type: ignore[union-attr]
        values = actor.measure([first, changed]).values
    torch.testing.assert_close(values[0, :3], values[1, :3], rtol=0, atol=ALIKE)  # type: ignore[index]
    assert (values[0, 3] - values[1, 3]).abs() > ALIKE  # type: ignore[index]


def test_a_critic_sees_the_images_from_the_first_token_on(checkpoint: Path) -> None:
    actor = make_actor(checkpoint, critic=True)
    sample, longer, other = samples(actor, (3, 5, 3))
    elsewhere = Sample(replace(sample.prompt, patches=other.prompt.patches), sample.response)
    assert actor.critic is not None
    with torch.no_grad():
        actor.critic.weight[:, actor.critic.in_features // 2 :] = 1.0
        alone = actor.measure([sample]).values[0]  # type: ignore[index]
        beside = actor.measure([longer, sample]).values[1, :3]  # type: ignore[index]
        changed = actor.measure([elsewhere]).values[0]  # type: ignore[index]
    torch.testing.assert_close(alone, alone[:1].expand(3), rtol=0, atol=ALIKE)
    torch.testing.assert_close(beside, alone, rtol=0, atol=10 * ALIKE)
    assert (changed - alone).abs().min() > 100 * ALIKE


def test_entropy_does_not_count_what_cannot_be_drawn() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf, 0.0], [0.0, -torch.inf, -torch.inf, -torch.inf]])
    torch.testing.assert_close(entropy_of(logits), torch.tensor([np.log(3.0), 0.0], dtype=torch.float32))


# Responses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0, TEMPERATURE])
def test_tokens_follow_from_the_logits_of_hugging_face_and_a_seed(
    actor: Actor, judge: Judge, temperature: float
) -> None:
    asked, seeds = questions(4), [5, 6, 7, 8]
    responses = respond(actor, asked, seeds, 10, temperature)
    for each, seed, response in zip(asked, seeds, responses):
        chance = SeededSampler([seed], torch.device("cpu"), temperature) if temperature else None
        for logits, token in zip(judge.logits(*each, response), response):
            drawn = logits if chance is None else chance(None, logits[None])[0]
            assert drawn[token] == pytest.approx(float(drawn.max()), abs=10 * ALIKE)


def test_a_seed_decides_a_response_whatever_shares_its_batch(actor: Actor) -> None:
    asked, seeds = questions(4), [5, 6, 7, 8]
    together = respond(actor, asked, seeds, 8, 1.0)
    assert respond(actor, asked, seeds, 8, 1.0) == together
    assert respond(actor, asked[::-1], seeds[::-1], 8, 1.0)[::-1] == together
    assert [respond(actor, [each], [seed], 8, 1.0)[0] for each, seed in zip(asked, seeds)] == together
    assert len(set(map(tuple, respond(actor, asked[:1] * 4, seeds, 8, 1.0)))) == 4


def test_responses_to_a_prompt_are_those_asked_one_by_one_and_end_with_their_end(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [actor.encoder.encode(*each) for each in questions(3)]
    places, seeds = [2, 0, 2, 1, 0, 2], range(6)
    endless = actor.respond(prompts, places, seeds, 12, 1.0)
    end = endless[2][4]
    monkeypatch.setattr(actor, "ends", {end})
    together = actor.respond(prompts, places, seeds, 12, 1.0)
    alone = [actor.respond([prompts[place]], [0], [seed], 12, 1.0)[0] for place, seed in zip(places, seeds)]
    assert together == alone
    assert together == [row[: row.index(end) + 1] if end in row else row for row in endless]
    assert len(together[2]) < max(map(len, together))


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits, draws = torch.tensor([1.0, 0.0, -torch.inf, -1.0, 2.0]), 4000
    chance = SeededSampler(range(draws), torch.device("cpu"), TEMPERATURE)
    drawn = chance(None, logits.repeat(draws, 1)).argmax(-1)
    expected = draws * (logits / TEMPERATURE).softmax(-1)
    errors = (drawn.bincount(minlength=5) - expected) / (expected * (1 - expected / draws)).sqrt()
    assert errors[expected > 0].abs().max() < 4
    assert 2 not in drawn


def test_tokens_that_stand_for_images_are_never_drawn(actor: Actor) -> None:
    assert set(actor.encoder.tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))) == set(actor.never)
    drawn = {token for row in respond(actor, questions(2) * 20, range(40), 24, 100.0) for token in row}
    assert len(drawn) > 300, "the test draws too few different tokens"
    assert not drawn & set(actor.never)


def test_a_prompt_that_does_not_fit_is_told(actor: Actor) -> None:
    text, images = questions(1)[0]
    with pytest.raises(UsageError, match=r"a prompt has .* tokens, and the model takes 4,096"):
        respond(actor, [(text + " up" * actor.context, images)], [0], 4, 1.0)


def test_a_response_ends_where_that_of_a_served_model_ends(actor: Actor) -> None:
    tokenizer = actor.encoder.tokenizer
    assert actor.ends == set(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))


# Checkpoints ----------------------------------------------------------------------------------------------------------


def test_a_saved_model_is_the_model_for_hugging_face_and_for_vlmgym(actor: Actor, tmp_path: Path) -> None:
    actor.save(tmp_path)
    again = Judge(tmp_path)
    some, asked = samples(actor, (4,)), questions(1)[0]
    logprobs = again.logits(*asked, some[0].response)[:-1].div(TEMPERATURE).log_softmax(-1)
    expected = logprobs[range(4), some[0].response].numpy()
    np.testing.assert_allclose(measured(actor, some)[0], expected, rtol=0, atol=ALIKE)
    greedy = actor.encoder.text(respond(actor, [asked], [0], 12, 0.0)[0])
    reply = LocalModel(str(tmp_path), "cpu", "float32").generate(
        [GenerationRequest(asked[1], asked[0])], 12, temperature=0
    )[0]
    assert isinstance(reply, Reply)
    assert reply.text == greedy


SAVED = "from training.local.actor import *; Actor('owner/model', ModelConfig(device='cpu')).save(Path('{out}'))"


@pytest.mark.parametrize("checkpoint", ["qwen3_vl"], indirect=True)
def test_a_model_of_the_hub_is_saved_with_all_that_belongs_to_it(checkpoint: Path, tmp_path: Path) -> None:
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
    """The model with adapters that do something."""
    pytest.importorskip("peft")
    actor = make_actor(checkpoint, lora=4)
    change_adapters(actor)
    return actor


def test_only_adapters_are_trained(adapted: Actor) -> None:
    trained = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name and "language_model" in name for name in trained)
    layers = {name.split("lora_")[0].rstrip(".").rpartition(".")[2] for name in trained}
    assert layers == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_a_saved_model_has_its_adapters_merged_and_memory_stays_as_it_was(
    actor: Actor, adapted: Actor, tmp_path: Path
) -> None:
    some = samples(adapted, LENGTHS)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    adapted.save(tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
    saved = measured(make_actor(tmp_path), some)
    for one, merged, base in zip(measured(adapted, some), saved, measured(actor, some)):
        np.testing.assert_allclose(one, merged, rtol=0, atol=ALIKE)
        assert np.abs(one - base).max() > 100 * ALIKE
    assert not [file.name for file in tmp_path.iterdir() if "adapter" in file.name]


def test_adapters_are_kept_alone_and_put_back_bit_for_bit(checkpoint: Path, adapted: Actor, tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="it is of another model, or of adapters of another rank"):
        make_actor(checkpoint, lora=2).load_trained(tmp_path)


def test_models_may_be_loaded_in_several_threads(tmp_path: Path) -> None:
    make_tiny_vlm("qwen3_vl", tmp_path, texts=["up"])
    with ThreadPoolExecutor(2) as pool:
        actors = list(pool.map(lambda _: make_actor(tmp_path), range(6)))
    first, *others = (actor.state_dict() for actor in actors)
    assert all(torch.equal(tensor, other[name]) for other in others for name, tensor in first.items())
    assert all(actor.model.lm_head.weight is actor.model.get_input_embeddings().weight for actor in actors)


# What does not load ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, "{}", '{"model_type": "gpt2"}'])
def test_what_is_no_qwen_vl_is_told_in_a_sentence(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=f"{tmp_path}|is no Qwen-VL"):
        make_actor(tmp_path)


def test_a_device_that_is_not_there_is_told(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="the model cannot go to the device nowhere"):
        Actor(checkpoint, ModelConfig(device="nowhere"))
