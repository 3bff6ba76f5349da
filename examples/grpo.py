"""GRPO for visual games in one file, on the public interface of vlmgym, transformers and torch.

    .venv-train/bin/python examples/grpo.py --model Qwen/Qwen3-VL-2B-Instruct --game 2048

Each step plays `group` episodes from each of `states` states, compares their returns within the group, and takes one
gradient step (Shao et al. 2024, https://arxiv.org/abs/2402.03300). docs/learn_rl.md explains it line by line.
`vlmgym train` does the same faster, with supervised fine-tuning, PPO, checkpoints and evaluation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
import tyro
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForImageTextToText, AutoProcessor

import vlmgym


@dataclass
class Options:
    """Train a Qwen-VL on a game by GRPO."""

    model: str = "Qwen/Qwen3-VL-2B-Instruct"
    """Folder or Hub name of the model."""
    output_dir: str = "logs/grpo"
    """Folder of the trained model."""
    game: str = "2048"
    """Game or task."""
    config: str = '{"size": 320}'
    """Config fields of the game as JSON."""
    reward: str = '{"shaping": "log2", "illegal": -1, "unparsable": -1, "format_weight": 0.2, "perception_weight": 0.5}'
    """Fields of `vlmgym.RewardConfig` as JSON: what moves, the format and reading the image are worth."""
    moves: int = 50
    """Maximum number of random moves before a state."""
    informative: bool = False
    """Start only from states where moves earn different rewards."""
    turns: int = 1
    """Turns per episode."""
    steps: int = 100
    """Gradient steps."""
    states: int = 8
    """States per step."""
    group: int = 8
    """Episodes per state."""
    tokens: int = 256
    """Maximum number of tokens per response."""
    temperature: float = 1.0
    """Sampling temperature, also applied to the log-probabilities in the loss."""
    lr: float = 1e-6
    """Learning rate."""
    micro_batch: int = 8
    """Responses per forward and backward pass."""
    seed: int = 0
    """Seed of states and responses."""


options = tyro.cli(Options)
torch.manual_seed(options.seed)
device = "cuda" if torch.cuda.is_available() else "cpu"
processor = AutoProcessor.from_pretrained(options.model)
processor.tokenizer.padding_side = "left"
model = AutoModelForImageTextToText.from_pretrained(options.model, dtype=torch.float32).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0)
end, pad = processor.tokenizer.eos_token_id, processor.tokenizer.pad_token_id
image_tokens = [model.config.image_token_id, model.config.video_token_id]  # never part of a response
reward = vlmgym.RewardConfig(**json.loads(options.reward))


def encode(conversations: list[Any]) -> Any:
    """Tokenize conversations with their images, padded on the left."""
    texts = processor.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
    images = [
        [part["image"] for message in conversation for part in message["content"] if part["type"] == "image"]
        for conversation in conversations
    ]
    return processor(text=texts, images=images, padding=True, return_tensors="pt").to(device)


@torch.no_grad()
def sample(conversations: list[Any]) -> list[torch.Tensor]:
    """Sample a response to each conversation; return its tokens, including the end token."""
    batch = encode(conversations)
    sampling = {"do_sample": True, "temperature": options.temperature, "top_k": 0, "top_p": 1.0}
    limits = {"max_new_tokens": options.tokens, "suppress_tokens": image_tokens, "pad_token_id": pad}
    sequences = model.generate(**batch, **sampling, **limits)
    responses = sequences[:, batch["input_ids"].shape[1] :]
    lengths = [
        int((response == end).int().argmax()) + 1 if end in response else len(response) for response in responses
    ]
    return [response[:length] for response, length in zip(responses, lengths)]


def log_probabilities(conversations: list[Any], responses: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the log-probability of each token of responses, and a mask; shape (responses, longest response)."""
    batch = encode(conversations)
    tokens = pad_sequence(responses, batch_first=True, padding_value=pad)
    mask = pad_sequence([torch.ones_like(response) for response in responses], batch_first=True)
    batch["input_ids"] = torch.cat([batch["input_ids"], tokens], dim=1)
    batch["attention_mask"] = torch.cat([batch["attention_mask"], mask], dim=1)
    if "mm_token_type_ids" in batch:
        batch["mm_token_type_ids"] = torch.cat([batch["mm_token_type_ids"], torch.zeros_like(tokens)], dim=1)
    logits = model(**batch).logits[:, -tokens.shape[1] - 1 : -1].float() / options.temperature
    logits[..., image_tokens] = -torch.inf
    return logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1), mask


for step in range(options.steps):
    # Roll out: the episodes of a group start from the same snapshot, so they differ only in the responses.
    starts = vlmgym.make_episodes(
        options.game,
        options.states,
        seed=options.seed * 1_000_000 + step,
        states={"moves": (0, options.moves), "informative": options.informative},
        max_turns=options.turns,
        reward=reward,
        **json.loads(options.config),
    )
    snapshots = [start.snapshot() for start in starts for _ in range(options.group)]
    episodes = [vlmgym.Episode.restore(snapshot) for snapshot in snapshots]
    returns = torch.zeros(len(episodes))
    samples: list[tuple[int, Any, torch.Tensor]] = []  # episode, conversation and response of each turn
    while playing := [number for number, episode in enumerate(episodes) if not episode.done]:
        conversations = [episodes[number].messages("pil") for number in playing]
        for number, conversation, response in zip(playing, conversations, sample(conversations)):
            samples.append((number, conversation, response))
            text = processor.tokenizer.decode(response, skip_special_tokens=True)
            returns[number] += episodes[number].respond(text).total

    # Advantages: how much better an episode is than the others of its group, in standard deviations (section 4.1.2).
    groups = returns.view(options.states, options.group)
    advantages = (groups - groups.mean(dim=1, keepdim=True)) / (groups.std(dim=1, keepdim=True) + 1e-4)
    advantages = advantages.flatten().to(device)

    # Update: make the tokens of good episodes more likely. With one update per batch, the probability ratio of PPO is 1
    # and nothing is clipped, so the loss is the policy gradient, averaged over all tokens.
    num_tokens = sum(len(response) for _, _, response in samples)
    for first in range(0, len(samples), options.micro_batch):
        numbers, conversations, responses = map(list, zip(*samples[first : first + options.micro_batch]))
        log_probs, mask = log_probabilities(conversations, responses)
        loss = -(advantages[numbers].unsqueeze(1) * log_probs * mask).sum() / num_tokens
        loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step + 1}: reward {returns.mean():.3f}, gradient norm {norm:.2f}", flush=True)

model.save_pretrained(options.output_dir)
processor.save_pretrained(options.output_dir)
print(f"model {options.output_dir}")
