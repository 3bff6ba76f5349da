"""A small tokenizer in the format of Qwen-VL checkpoints, trained on prompts and responses of the games."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from vlmgym.errors import UsageError
from vlmgym.policies.baselines import random_legal_action
from vlmgym.sandbox.core.response_format import SECTIONS
from vlmgym.sandbox.registry import make_game

GAMES = ("2048", "shisensho", "swap")
PAD, END = "<|endoftext|>", "<|im_end|>"
IMAGE, VIDEO, VISION_START, VISION_END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
SPECIAL_TOKENS = (PAD, "<|im_start|>", END, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO)
TAGS = tuple(tag for section in SECTIONS for tag in (f"<{section}>", f"</{section}>"))
"""Tags of the response format. Each is a single token, but not a special one, so that decoding keeps it."""

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


def game_texts(turns: int = 8) -> Iterator[str]:
    """Yield prompts and valid responses of `GAMES` at all reasoning levels, from fixed random episodes."""
    for name in GAMES:
        for level in range(1, 6):
            game, rng = make_game(name, reasoning=level), np.random.default_rng(level)
            state = game.start(rng)
            yield game.prompt(state)
            for _ in range(turns):
                if (action := random_legal_action(game, state, rng)) is None:
                    break
                yield game.respond(state, action)
                state = game.step(state, action, rng).state


def train_tokenizer(texts: Iterable[str], size: int, words: int = 0) -> Tokenizer:
    """Train a byte-level BPE tokenizer with the pre-tokenizer (one token per digit) and special tokens of Qwen.

    The tags and the `words` most frequent words become single tokens. A word includes any leading space and trailing
    punctuation, and may be a two-word name such as `red circle`. Each cell of a board is then one token, at a fixed
    position. Text unlike the training data can also be encoded, but takes more tokens.

    Raises:
        UsageError: `size` is too small for bytes, special tokens, tags and words.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = list(_without_tags(texts))
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


def _without_tags(texts: Iterable[str]) -> Iterator[str]:
    """Replace tags with line breaks, because tags are added as separate tokens, which BPE never sees."""
    for text in texts:
        for tag in TAGS:
            text = text.replace(tag, "\n")
        yield text
