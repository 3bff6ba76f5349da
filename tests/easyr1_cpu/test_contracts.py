"""Assumptions about EasyR1's code, its prompts and its worker."""

from __future__ import annotations

from copy import deepcopy
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoModelForTokenClassification, AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from verl.models.monkey_patch import apply_ulysses_patch
from verl.protocol import DataProto
from verl.utils.dataset import process_image
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.config import ActorConfig, CriticConfig, ModelConfig
from verl.workers.critic.dp_critic import DataParallelPPOCritic
from verl.workers.fsdp_workers import FSDPWorker
from verl.workers.rollout.vllm_rollout_spmd import _process_multi_modal_data

from tests.easyr1_cpu import flash
from tests.easyr1_cpu.rollout_workers import CONFIGS, a_prompt, encoder_of
from vlmgym.errors import EpisodeError
from vlmgym.training.easyr1 import worker
from vlmgym.training.easyr1.batch import PromptEncoder, critic_batch, load_processors
from vlmgym.training.easyr1.config import read_config
from vlmgym.training.easyr1.episodes import Request
from vlmgym.training.easyr1.worker import PatchedWorker
from vlmgym.training.tiny_vlm import TRANSFORMERS4

TOKENS = 6
"""Length of responses in tokens."""


# Prompts --------------------------------------------------------------------------------------------------------------


def test_encoded_prompt_matches_transformers(checkpoint: Path) -> None:
    encoder = encoder_of(checkpoint)
    text, images = a_prompt()
    encoded = encoder.encode(text, images)
    length = int(encoded["attention_mask"].sum())
    assert encoded["input_ids"].shape == encoded["attention_mask"].shape == (400,)
    assert encoded["position_ids"].shape == (4, 400)
    assert encoded["attention_mask"].tolist() == [0] * (400 - length) + [1] * length
    image = encoder.tokenizer.convert_tokens_to_ids("<|image_pad|>")
    assert list(encoded["raw_prompt_ids"]).count(image) == 1
    side = 4 if checkpoint.name.startswith("qwen3") else 5  # 128 pixels make 4 tokens of 32 pixels, or 5 of 28
    assert (encoded["input_ids"] == image).sum() == side**2
    model = AutoModelForImageTextToText.from_pretrained(checkpoint)
    found, _ = model.model.get_rope_index(
        encoded["input_ids"][None, -length:], torch.tensor([[1, 2 * side, 2 * side]]), None
    )
    assert torch.equal(found[:, 0], encoded["position_ids"][1:, -length:])
    assert encoded["position_ids"][0, -length:].tolist() == list(range(length))


def test_prompt_without_images(checkpoint: Path) -> None:
    encoder = encoder_of(checkpoint)
    encoded = encoder.encode("Which move?", [])
    assert encoded["multi_modal_data"] == {"images": []}
    length = int(encoded["attention_mask"].sum())
    assert encoded["input_ids"][-length:].tolist() == encoded["raw_prompt_ids"]
    assert encoded["position_ids"][:, -length:].tolist() == [list(range(length))] * 4


def test_prompt_with_image_placeholder(qwen3: Path) -> None:
    _, images = a_prompt()
    encoded = encoder_of(qwen3).encode("say <image> twice: <image>", images)
    assert "<image> twice: <image>" in encoder_of(qwen3).tokenizer.decode(encoded["input_ids"])


def test_prompt_that_is_too_long(qwen3: Path) -> None:
    with pytest.raises(EpisodeError, match=r"data\.max_prompt_length=100"):
        encoder_of(qwen3, 100).encode(*a_prompt())


@pytest.mark.parametrize("size", [64, 200, 640, 1100])
def test_training_and_evaluation_send_the_same_pixels(checkpoint: Path, size: int) -> None:
    """With the image limits of base.yaml, rollouts, updates and the policy `transformers` get the same pixels."""
    data = read_config([str(CONFIGS / "base.yaml"), str(CONFIGS / "2048.yaml")]).data
    data.max_prompt_length = 4096
    encoder = PromptEncoder(*load_processors(ModelConfig(str(checkpoint)), data), data)
    prompt, images = a_prompt(size)
    request = Request(0, 0, encoder.encode(prompt, images))
    meta = {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels, "video_fps": data.video_fps}
    (rollout,) = _process_multi_modal_data(request.features["multi_modal_data"], **meta)["image"]
    assert np.array_equal(rollout, images[0])
    rows = critic_batch([request], meta)
    PatchedCache(encoder.processor)._process_multi_modal_inputs(rows)
    (update,) = rows.non_tensor_batch["multi_modal_inputs"]
    local = AutoProcessor.from_pretrained(checkpoint)
    evaluated = local(text=[local.image_token], images=[Image.fromarray(images[0])], return_tensors="pt")
    assert torch.equal(update["image_grid_thw"], evaluated["image_grid_thw"])
    assert torch.allclose(update["pixel_values"], evaluated["pixel_values"], atol=1e-6)
    tokens = (request.features["input_ids"] == local.image_token_id).sum()
    assert tokens == (evaluated["input_ids"] == local.image_token_id).sum()


def test_forward_of_easyr1_equals_transformers(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_of(checkpoint)
    one, two = encoder.encode(*a_prompt()), encoder.encode("A longer one.", a_prompt(224)[1])
    batch = {key: torch.stack([one[key], two[key]]) for key in ("input_ids", "attention_mask", "position_ids")}
    images = [process_image(image, None, None) for each in (one, two) for image in each["multi_modal_data"]["images"]]
    seen = dict(encoder.processor.image_processor(images=images, return_tensors="pt"))
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, attn_implementation="sdpa").eval()
    places = batch.pop("position_ids")
    with torch.no_grad():
        theirs = model(**batch, **seen).logits
        patch_forward(model, monkeypatch)
        ours = model(**batch, **seen, position_ids=places.transpose(0, 1)).logits
    mask = batch["attention_mask"].bool()
    assert torch.allclose(ours[mask], theirs[mask], atol=1e-5)


def patch_forward(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use EasyR1's forward for Qwen-VL models during the test, as `padding_free` does."""
    for kind in TRANSFORMERS4:
        module = import_module(f"transformers.models.{kind}.modeling_{kind}")
        name = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[kind].removesuffix("ForConditionalGeneration")
        for patched in (getattr(module, f"{name}Model"), getattr(module, f"{name}ForConditionalGeneration")):
            monkeypatch.setattr(patched, "forward", patched.forward)  # so that monkeypatch restores it after the test
    apply_ulysses_patch(model.config.model_type)


def test_packed_rows_equal_padded_rows(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `padding_free`, EasyR1 packs prompts of different lengths and image sizes into one row."""
    encoder, packed = encoder_of(checkpoint), flash.install(monkeypatch)
    requests = [Request(row, 0, encoder.encode("Up. " * (row + 1), a_prompt(64 + 64 * row)[1])) for row in range(3)]
    rows = critic_batch(requests, {"min_pixels": None, "max_pixels": None, "video_fps": 2.0, "temperature": 1.0})
    PatchedCache(encoder.processor)._process_multi_modal_inputs(rows)
    worker.register_critics()
    actor = AutoModelForImageTextToText.from_pretrained(checkpoint, attn_implementation="sdpa")
    critic = AutoModelForTokenClassification.from_pretrained(checkpoint, attn_implementation="sdpa")
    torch.nn.init.normal_(critic.score.weight, generator=torch.Generator().manual_seed(0))
    patch_forward(actor, monkeypatch)
    found = []
    for padding_free in (False, True):
        settings = {"padding_free": padding_free, "micro_batch_size_per_device_for_experience": 2}
        if padding_free:  # the vision encoder never has padding
            for model in (actor, critic):
                model.model.language_model.config._attn_implementation = "flash_attention_2"
        policy = DataParallelPPOActor(ActorConfig(use_torch_compile=False, **settings), actor)
        judge = DataParallelPPOCritic(CriticConfig(**settings), critic, None)
        found.append(torch.cat([policy.compute_log_prob(rows), judge.compute_values(rows)]))
    padded, free = found
    assert torch.allclose(free, padded, atol=1e-4)
    assert padded.unique().numel() == 6
    lengths = sorted(int(one.features["attention_mask"].sum()) + 1 for one in requests)
    assert {tuple(sorted(np.diff(places).tolist())) for places in packed} == {tuple(lengths)}


def test_settings_of_the_policy_loss_reach_easyr1(qwen3: Path) -> None:
    """Updates from the same weights, with the same data, lead to other weights with each setting."""
    encoder = encoder_of(qwen3)
    requests = [Request(row, 0, encoder.encode("Move. " * row, a_prompt()[1])) for row in range(1, 5)]
    rows = critic_batch(requests, {"min_pixels": None, "max_pixels": None, "video_fps": 2.0, "temperature": 1.0})
    PatchedCache(encoder.processor)._process_multi_modal_inputs(rows)
    rows.batch["responses"] = rows.batch["input_ids"][:, -TOKENS:]
    rows.batch["response_mask"] = torch.ones(4, TOKENS, dtype=torch.int64)
    rows.batch["advantages"] = torch.tensor([[1.0], [0.5], [-0.5], [-1.0]]).expand(4, TOKENS)
    weights = []
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    for setting in ("loss_type=default", "clip_ratio_high=0.01", "loss_type=gspo", "loss_type=cispo", "loss_type=sapo"):
        settings = [f"worker.actor.{setting}", "worker.actor.ppo_epochs=4"]
        config = read_config([str(CONFIGS / "base.yaml"), *settings]).worker.actor
        config.padding_free = config.dynamic_batching = config.use_torch_compile = False
        config.global_batch_size_per_device = 4
        model = AutoModelForImageTextToText.from_pretrained(qwen3, attn_implementation="sdpa")
        policy = DataParallelPPOActor(config, model, torch.optim.SGD(model.parameters(), lr=0.3))
        data = deepcopy(rows)
        data.batch["old_log_probs"] = data.batch["ref_log_probs"] = policy.compute_log_prob(data)
        policy.update_policy(data)
        weights.append(torch.cat([part.detach().flatten() for part in model.parameters()]))
    dist.destroy_process_group()
    for one, other in combinations(weights, 2):
        assert (one - other).abs().max() > 1e-5


# The worker -----------------------------------------------------------------------------------------------------------


def test_adapters_of_a_layer_are_those_of_the_model(qwen3: Path) -> None:
    """EasyR1 collects adapters layer by layer, and renames the layers itself."""
    model = AutoModelForImageTextToText.from_pretrained(qwen3)
    model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", exclude_modules=".*visual.*"))
    whole = get_peft_model_state_dict(model)
    layers = [name for name, _ in model.named_modules() if name.rsplit("layers.", 1)[-1].isdigit()]
    collected = {
        f"{layer}.{name}": weight
        for layer in layers
        for name, weight in worker.adapter_weights(model, model.get_submodule(layer).state_dict()).items()
    }
    assert collected.keys() == whole.keys()
    assert all(torch.equal(collected[name], whole[name]) for name in whole)


def test_critic_shares_weights_and_starts_at_zero(checkpoint: Path) -> None:
    worker.register_critics()
    critic, loading = AutoModelForTokenClassification.from_pretrained(checkpoint, output_loading_info=True)
    assert loading["missing_keys"] == {"score.weight"} or loading["missing_keys"] == ["score.weight"]
    whole = AutoModelForImageTextToText.from_pretrained(checkpoint)
    for (name, ours), theirs in zip(critic.model.named_parameters(), whole.model.parameters()):
        assert torch.equal(ours, theirs), name
    encoder = encoder_of(checkpoint)
    encoded = encoder.encode(*a_prompt())
    images = [process_image(image, None, None) for image in encoded["multi_modal_data"]["images"]]
    values = critic(
        input_ids=encoded["input_ids"][None],
        attention_mask=encoded["attention_mask"][None],
        position_ids=encoded["position_ids"][:, None],
        **encoder.processor.image_processor(images=images, return_tensors="pt"),
    ).logits
    assert values.shape == (1, 400, 1)
    assert not values.any(), "values start at 0"
    (values[0, -1, 0] - 1).square().backward()
    assert critic.score.weight.grad.any()


def test_prompt_value_ignores_padding(qwen3: Path) -> None:
    """With EasyR1's code, the value of a prompt is the value at its last token, regardless of padding."""
    worker.register_critics()
    critic = AutoModelForTokenClassification.from_pretrained(qwen3, attn_implementation="sdpa").eval()
    torch.nn.init.normal_(critic.score.weight, generator=torch.Generator().manual_seed(0))
    encoder = encoder_of(qwen3)
    images = a_prompt()[1]
    requests = [Request(row, 0, encoder.encode("Move. " * (row + 1), images)) for row in range(2)]
    rows = critic_batch(requests, {"min_pixels": None, "max_pixels": None, "video_fps": 2.0})
    PatchedCache(encoder.processor)._process_multi_modal_inputs(rows)
    config = CriticConfig(dynamic_batching=False, micro_batch_size_per_device_for_experience=2)
    values = DataParallelPPOCritic(config, critic, None).compute_values(rows)
    for value, one in zip(values, requests):
        length = int(one.features["attention_mask"].sum())
        seen = encoder.processor.image_processor(
            images=[process_image(image, None, None) for image in one.features["multi_modal_data"]["images"]],
            return_tensors="pt",
        )
        whole = {key: one.features[key][..., -length:] for key in ("input_ids", "attention_mask", "position_ids")}
        places = whole.pop("position_ids")[:, None]
        with torch.no_grad():
            said = critic(**{key: part[None] for key, part in whole.items()}, position_ids=places, **seen).logits
        assert value.tolist() == pytest.approx([float(said[0, -1, 0])], abs=1e-4)
    assert values[0] != values[1]


class Cache(PatchedWorker):
    """The image cache of a worker."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self._cache: dict[str, Any] = {}


class StockCache:
    _process_multi_modal_inputs = FSDPWorker._process_multi_modal_inputs


class PatchedCache(Cache, StockCache): ...


def test_images_follow_their_uids(qwen3: Path) -> None:
    encoder = encoder_of(qwen3)
    cache = PatchedCache(encoder.processor)

    def seen(uids: list[str], sizes: list[int]) -> list[float]:
        shown = np.empty(len(uids), dtype=object)
        shown[:] = [encoder.encode("x", [np.full((64, 64, 3), grey, np.uint8)])["multi_modal_data"] for grey in sizes]
        meta = {"min_pixels": None, "max_pixels": None, "video_fps": 2.0}
        data = DataProto.from_dict(
            tensors={"x": torch.zeros(len(uids))},
            non_tensors={"uid": np.array(uids, dtype=object), "multi_modal_data": shown},
            meta_info=meta,
        )
        cache._process_multi_modal_inputs(data)
        return [float(inputs["pixel_values"].mean()) for inputs in data.non_tensor_batch["multi_modal_inputs"]]

    dark, light = seen(["a", "b"], [0, 255])
    assert dark < light
    assert seen(["c", "d", "e"], [255, 0, 255]) == [light, dark, light], "different number of rows"
    assert seen(["c", "d", "f"], [255, 0, 0]) == [light, dark, dark]
