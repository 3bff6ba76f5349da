"""Create tiny, randomly initialised checkpoints offline in seconds, for training on a CPU and for tests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from vlmgym.errors import UsageError
from vlmgym.sandbox.core.response_format import SECTIONS
from vlmgym.training.config import HEAD_SIZE, MIN_IMAGE_TOKENS, Kind, TinySize
from vlmgym.training.engine.weights import saving
from vlmgym.training.transformers4 import FLAT

PAD, END = "<|endoftext|>", "<|im_end|>"
IMAGE, VIDEO, VISION_START, VISION_END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
SPECIAL_TOKENS = (PAD, "<|im_start|>", END, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO)
TAGS = tuple(tag for section in SECTIONS for tag in (f"<{section}>", f"</{section}>"))
"""Tags of the response format. Each is a single token, but not a special one, so that decoding keeps it."""

_TAG = re.compile("|".join(TAGS))
_WORDS = re.compile(r" ?[a-z]+ [a-z]+(?=[,;:\n]|$)[,;:]?| ?\S+")
"""A word, or two words before a comma, semicolon, colon or the end of a line."""

CHAT_TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {%- if message.content is string -%}
        {{- message.content -}}
    {%- else -%}
        {%- for part in message.content -%}
            {%- if part.type in ('image', 'image_url') -%}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
            {%- elif part.type in ('video', 'video_url') -%}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
            {%- elif part.type == 'text' -%}
                {{- part.text -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""Qwen's chat format as a Jinja template for OpenAI messages with text, images and videos."""


def train_tokenizer(texts: Iterable[str], size: int, words: int = 0) -> Tokenizer:
    """Train a byte-level BPE tokenizer with the pre-tokenizer (one token per digit) and special tokens of Qwen.

    The tags and the `words` most frequent words become single tokens. A word includes any leading space and trailing
    punctuation, and may be a two-word name such as `red circle`. Each cell of a board is then one token, at a fixed
    position. Text unlike the training data can also be encoded, but takes more tokens.

    Raises:
        UsageError: `size` is too small for bytes, special tokens, tags and words.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [_TAG.sub("\n", text) for text in texts]  # tags are added as separate tokens, which BPE never sees
    counts = Counter(chain.from_iterable(map(_WORDS.findall, texts)))
    frequent = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:words]]
    added = len(SPECIAL_TOKENS) + len(TAGS) + len(frequent)
    if size < len(alphabet) + added:
        raise UsageError(f"vocabulary must be at least {len(alphabet) + added}, got {size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size - added, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (*TAGS, *frequent)])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write the tokenizer files of transformers to an existing folder."""
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END,
        "pad_token": PAD,
        "bos_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "padding_side": "left",  # for batched generation
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


MERGE = 2
"""Side, in patches, of the square that is merged into one token."""
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
"""Mean and standard deviation of RGB values in CLIP's training data, as used by Qwen2-VL and Qwen2.5-VL."""
TRANSFORMERS4: tuple[Kind, ...] = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Kinds that exist in transformers 4 too."""
QWEN3: tuple[Kind, ...] = ("qwen3_vl", "qwen3_5")
"""Kinds that normalise queries and keys."""
TILE, TILE_TOKENS = 64, 16
"""Side of InternVL's tiles in pixels, and number of tokens of a tile."""


def make_tiny_vlm(size: TinySize, folder: Path, texts: Iterable[str], *, seed: int = 0) -> None:
    """Write a checkpoint, overwriting existing files.

    The weights are determined by the seed and the versions of torch and transformers. The tokenizer is trained on
    `texts`. Raises `UsageError` if the vocabulary is too small.
    """
    tokenizer = train_tokenizer(texts, size.vocabulary, size.words)
    config = _model_config(size, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**deepcopy(config)), dtype=torch.float32)
        if size.kind not in QWEN3:
            _sharpen_attention(model)
    files = {"config": config, "generation_config": _generation_config(tokenizer), **_processor_configs(size)}
    with saving(folder):
        folder.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder, size.context)
        if size.kind == "internvl":
            _name_image_tokens(folder)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content, indent=2))


def _sharpen_attention(model: nn.Module) -> None:
    """Initialise queries and keys with variance 1, as the norms of Qwen3 give them.

    At transformers' standard deviation of 0.02, attention of so narrow a model is nearly uniform, and 60 steps of
    reinforcement learning do not teach it to attend to what it wrote.
    """
    for name, weight in model.named_parameters():
        if name.endswith(("self_attn.q_proj.weight", "self_attn.k_proj.weight")):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)


def _name_image_tokens(folder: Path) -> None:
    """Name the tokens that InternVL's processor puts around and in place of images, in a saved tokenizer."""
    names = {"start_image_token": VISION_START, "end_image_token": VISION_END}
    names |= {"context_image_token": IMAGE, "video_token": VIDEO}
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "extra_special_tokens": names}, indent=2))
    template = CHAT_TEMPLATE.replace(VISION_START + IMAGE + VISION_END, IMAGE)
    (folder / "chat_template.jinja").write_text(template)


def _model_config(size: TinySize, tokenizer: Tokenizer) -> dict[str, Any]:
    kind, heads = size.kind, size.hidden // HEAD_SIZE
    qwen3 = kind in QWEN3
    # Split of the 16 rotary frequencies into time, height and width; Qwen3-VL interleaves them.
    rope: dict[str, Any] = {"rope_type": "default", "mrope_section": [6, 5, 5] if qwen3 else [4, 6, 6]}
    if qwen3:
        rope["mrope_interleaved"] = True
    text: dict[str, Any] = {
        "model_type": "qwen2" if kind == "internvl" else f"{kind}_text",
        "vocab_size": -(-tokenizer.get_vocab_size() // 64) * 64,  # vLLM pads it like this
        "hidden_size": size.hidden,
        "intermediate_size": 3 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2 if heads % 2 == 0 else heads,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": size.context,
        "rope_theta": 10_000.0,
        **({} if kind == "internvl" else {"rope_scaling": rope}),
        "tie_word_embeddings": size.tied,
        "bos_token_id": None,
        "eos_token_id": tokenizer.token_to_id(END),
        "pad_token_id": tokenizer.token_to_id(PAD),
    }
    if kind == "qwen3_5":
        text |= {
            # Rotates half of each head, which is 8 frequencies.
            "rope_parameters": {
                **rope,
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [3, 3, 2],
            },
            "layer_types": [
                "full_attention" if number % 4 == 0 or number == size.layers else "linear_attention"
                for number in range(1, size.layers + 1)
            ],
            "linear_num_key_heads": text["num_key_value_heads"],
            "linear_num_value_heads": heads,
            "linear_key_head_dim": 2 * HEAD_SIZE,  # the minimum of vLLM's linear attention on the CPU
            "linear_value_head_dim": 2 * HEAD_SIZE,
        }
        del text["rope_theta"], text["rope_scaling"]
    config = {
        "model_type": kind,
        "architectures": [MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES[kind]],
        "dtype": "float32",
        "torch_dtype": "float32",  # the name in transformers 4
        "tie_word_embeddings": size.tied,
        "image_token_id": tokenizer.token_to_id(IMAGE),
        "video_token_id": tokenizer.token_to_id(VIDEO),
        "vision_start_token_id": tokenizer.token_to_id(VISION_START),
        "vision_end_token_id": tokenizer.token_to_id(VISION_END),
        "vision_config": _vision_config(size),
    }
    if kind == "internvl":
        config |= {"image_seq_length": TILE_TOKENS, "downsample_ratio": 0.5}
    return {**text, **config} if kind in FLAT else {**config, "text_config": text}


def _vision_config(size: TinySize) -> dict[str, Any]:
    kind, width, depth = size.kind, size.vision_hidden, size.vision_layers
    if kind == "internvl":
        return {
            "model_type": "internvl_vision",
            "hidden_size": width,
            "intermediate_size": 3 * width,
            "num_hidden_layers": depth,
            "num_attention_heads": width // HEAD_SIZE,
            "image_size": [TILE, TILE],
            "patch_size": [_patch(kind)] * 2,
        }
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
    shared["num_position_embeddings"] = 256  # learned positions of 16x16 patches, interpolated to each image
    if kind == "qwen3_5":
        return shared
    return {**shared, "deepstack_visual_indexes": [0]}  # adds features of layer 0 to the text


def _generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return a config for greedy decoding. As in Qwen-VL checkpoints, image tokens are not suppressed."""
    end, pad = tokenizer.token_to_id(END), tokenizer.token_to_id(PAD)
    return {"do_sample": False, "eos_token_id": [end, pad], "pad_token_id": pad}


def _processor_configs(size: TinySize) -> dict[str, Any]:
    """Return the configs of the image and video processors."""
    kind = size.kind
    if kind == "internvl":
        tile = {"size": {"height": TILE, "width": TILE}, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
        tiles = {**tile, "crop_to_patches": True, "min_patches": 1, "max_patches": 4}
        processor = {"processor_class": PROCESSOR_MAPPING_NAMES[kind], "image_seq_length": TILE_TOKENS}
        return {
            "processor_config": processor,
            "preprocessor_config": {**tiles, "image_processor_type": "GotOcr2ImageProcessor"},
            "video_preprocessor_config": {**tile, "video_processor_type": "InternVLVideoProcessor"},
        }
    token = (_patch(kind) * MERGE) ** 2  # pixels
    smallest, largest = MIN_IMAGE_TOKENS * token, size.image_tokens * token
    mean, std = ([0.5] * 3, [0.5] * 3) if kind in QWEN3 else (CLIP_MEAN, CLIP_STD)
    shared = {
        "processor_class": PROCESSOR_MAPPING_NAMES[kind],
        "patch_size": _patch(kind),
        "merge_size": MERGE,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": smallest, "longest_edge": largest},
        "min_pixels": smallest,  # the slow processor of transformers 4 reads only these
        "max_pixels": largest,
        "image_mean": mean,
        "image_std": std,
    }
    video = "Qwen3VLVideoProcessor" if kind in QWEN3 else "Qwen2VLVideoProcessor"
    return {
        "preprocessor_config": {**shared, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config": {**shared, "video_processor_type": video},
    }


def _patch(kind: Kind) -> int:
    """Return the patch size in pixels."""
    return {"qwen3_vl": 16, "qwen3_5": 16, "internvl": 8}.get(kind, 14)
