"""Create tiny, randomly initialised Qwen-VL checkpoints offline in seconds, for training on a CPU and for tests.

    python -m vlmgym.training.tiny_vlm qwen3_vl checkpoints/tiny

Architecture, special tokens and chat format match the real models; only the sizes differ. The JSON files are
written by this module, not by the installed transformers, so that transformers 4.57 and 5, vLLM and EasyR1 can all read
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForImageTextToText

from vlmgym.cli.console import reporting_errors
from vlmgym.errors import UsageError
from vlmgym.runs.files import new_folder
from vlmgym.training.config import HEAD_SIZE, MIN_IMAGE_TOKENS, Kind, TinySize
from vlmgym.training.engine.saving import saving
from vlmgym.training.tiny_tokenizer import (
    END,
    IMAGE,
    PAD,
    VIDEO,
    VISION_END,
    VISION_START,
    game_texts,
    save_tokenizer,
    train_tokenizer,
)

MERGE = 2
"""Side, in patches, of the square that is merged into one token."""
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
"""Mean and standard deviation of RGB values in CLIP's training data, as used by Qwen2-VL and Qwen2.5-VL."""
CLASSES: dict[Kind, str] = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}
"""Prefix of the class names in transformers, for each kind of model."""


def make_tiny_vlm(
    kind: Kind, folder: Path, *, seed: int = 0, size: TinySize | None = None, texts: Iterable[str] | None = None
) -> None:
    """Write a checkpoint, overwriting existing files; `kind` is its `model_type` in transformers.

    The weights are determined by the seed and the versions of torch and transformers. The tokenizer is trained on
    `texts`, by default `game_texts()`. Raises `UsageError` if the vocabulary is too small.
    """
    size = size or TinySize()
    tokenizer = train_tokenizer(game_texts() if texts is None else texts, size.vocabulary, size.words)
    config = _model_config(kind, size, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**deepcopy(config)), dtype=torch.float32)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror}") from None
    files = {"config": config, "generation_config": _generation_config(tokenizer), **_processor_configs(kind, size)}
    with saving(folder):
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder, size.context)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content, indent=2))


def _model_config(kind: Kind, size: TinySize, tokenizer: Tokenizer) -> dict[str, Any]:
    qwen3 = kind == "qwen3_vl"
    heads = size.hidden // HEAD_SIZE
    # Split of the 16 rotary frequencies into time, height and width; Qwen3-VL interleaves them.
    rope: dict[str, Any] = {"rope_type": "default", "mrope_section": [6, 5, 5] if qwen3 else [4, 6, 6]}
    if qwen3:
        rope["mrope_interleaved"] = True
    text = {
        "model_type": f"{kind}_text",
        "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64,  # vLLM pads it like this
        "hidden_size": size.hidden,
        "intermediate_size": 3 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if heads % 2 == 0 else heads,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": size.context,
        "rope_theta": 10_000.0,
        "rope_scaling": rope,
        "tie_word_embeddings": size.tied,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(PAD),
    }
    return {
        "model_type": kind,
        "architectures": [f"{CLASSES[kind]}ForConditionalGeneration"],
        "dtype": "float32",
        "torch_dtype": "float32",  # the name in transformers 4
        "tie_word_embeddings": size.tied,
        "image_token_id": tokenizer.token_to_id(IMAGE),
        "video_token_id": tokenizer.token_to_id(VIDEO),
        "vision_start_token_id": tokenizer.token_to_id(VISION_START),
        "vision_end_token_id": tokenizer.token_to_id(VISION_END),
        "text_config": text,
        "vision_config": _vision_config(kind, size),
    }


def _vision_config(kind: Kind, size: TinySize) -> dict[str, Any]:
    width, depth = size.vision_hidden, size.vision_layers
    shared = {
        "model_type": kind,
        "depth": depth,
        "num_heads": width // HEAD_SIZE,
        "patch_size": _patch(kind),
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
    }
    if kind == "qwen2_vl":
        return {**shared, "embed_dim": width, "hidden_size": size.hidden, "mlp_ratio": 3}
    shared |= {"hidden_size": width, "intermediate_size": 3 * width, "out_hidden_size": size.hidden}
    if kind == "qwen2_5_vl":
        return {**shared, "window_size": 8 * _patch(kind), "fullatt_block_indexes": [depth - 1], "tokens_per_second": 2}
    # Learned positions of 16x16 patches, interpolated to each image; deepstack adds features of layer 0 to the text.
    return {**shared, "num_position_embeddings": 256, "deepstack_visual_indexes": [0]}


def _generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a config for greedy decoding. As in Qwen-VL checkpoints, image tokens are not suppressed."""
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    return {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad}


def _processor_configs(kind: Kind, size: TinySize) -> dict[str, Any]:
    """Return the configs of the image and video processors."""
    token = (_patch(kind) * MERGE) ** 2  # pixels
    smallest, largest = MIN_IMAGE_TOKENS * token, size.image_tokens * token
    mean, std = ([0.5] * 3, [0.5] * 3) if kind == "qwen3_vl" else (CLIP_MEAN, CLIP_STD)
    shared = {
        "processor_class": f"{CLASSES[kind]}Processor",
        "patch_size": _patch(kind),
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": smallest, "longest_edge": largest},
        "min_pixels": smallest,  # the slow processor of transformers 4 reads only these
        "max_pixels": largest,
        "image_mean": mean,
        "image_std": std,
    }
    video = "Qwen3VLVideoProcessor" if kind == "qwen3_vl" else "Qwen2VLVideoProcessor"
    return {
        "preprocessor_config": {**shared, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config": {**shared, "video_processor_type": video},
    }


def _patch(kind: Kind) -> int:
    """Return the patch size in pixels."""
    return 16 if kind == "qwen3_vl" else 14


def main(
    kind: tyro.conf.Positional[Kind],
    folder: tyro.conf.Positional[Path],
    /,
    size: Annotated[TinySize, tyro.conf.arg(name="")] = TinySize(),  # noqa: B008 - immutable
    seed: int = 0,
) -> None:
    """Create a tiny, randomly initialised Qwen-VL checkpoint.

    Args:
        kind: Architecture.
        folder: Folder of the checkpoint, which must not exist yet.
        size: Size of the model.
        seed: Seed of the weights.
    """
    with new_folder(folder) as part:
        make_tiny_vlm(kind, part, seed=seed, size=size)
    print(f"created a {kind} in {folder}")


if __name__ == "__main__":
    with reporting_errors():
        tyro.cli(main, prog="python -m vlmgym.training.tiny_vlm")
