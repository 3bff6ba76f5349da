"""Tiny models to train: `tiny` is untrained, `beginner` answers with random words in the right format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from tests.tiny_model import make_model
from vlmgym.training.config import Kind, TinySize
from vlmgym.training.tiny_vlm import make_tiny_vlm

MOVES = ("up", "right", "down", "left")
OTHERS = ("tree", "house", "river", "cloud", "stone", "bread", "chair", "glass", "night")
SEED = 1
STEPS = 80


def make_models(folder: Path) -> None:
    """Make `tiny` and `beginner`."""
    torch.set_num_threads(1)
    make_model("qwen3_vl", folder / "tiny")
    make_beginner(folder / "beginner")


def make_beginner(out: Path, kind: Kind = "qwen3_vl", size: TinySize = TinySize(tied=False)) -> None:  # noqa: B008
    """Make a model that answers with one of 13 words, equally often."""
    words = [*MOVES, *OTHERS]
    make_tiny_vlm(replace(size, kind=kind), out, words * 50, seed=SEED)
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForImageTextToText.from_pretrained(out)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=False
    )
    start = tokenizer.encode(prompt)[-3:]  # the first tokens of the assistant's turn
    responses = [tokenizer.encode(f"<answer>{word}</answer>") + [tokenizer.eos_token_id] for word in words]
    longest = max(map(len, responses))
    ids = torch.tensor([start + row + [tokenizer.pad_token_id] * (longest - len(row)) for row in responses])
    mask = torch.tensor([[1] * (len(start) + len(row)) + [0] * (longest - len(row)) for row in responses])
    labels = ids.masked_fill((mask == 0) | (torch.arange(ids.shape[1]) < len(start)), -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    torch.manual_seed(SEED)
    for _ in range(STEPS):
        filler = torch.randint(200, (len(words), 40))  # stands for any prompt
        loss = model(
            input_ids=torch.cat([filler, ids], 1),
            attention_mask=torch.cat([torch.ones_like(filler), mask], 1),
            labels=torch.cat([torch.full_like(filler, -100), labels], 1),
        ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(out)
