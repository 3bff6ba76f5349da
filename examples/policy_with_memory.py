"""A policy with a memory of each episode: it does not repeat a move that was just rejected.

vlmgym eval 2048 --policy examples/policy_with_memory.py:play

A policy gets the pending turns of many episodes as one batch; `prompt.episode_id` tells them apart.
"""

from collections import defaultdict

ORDER = ("left", "down", "right", "up")
rejected = defaultdict(set)
"""Moves that were rejected on the current board, by episode."""
last = {}
"""Last move, by episode."""


def play(images_batch, prompt_batch):
    """Respond to each prompt, a string; images_batch[i] is a list of uint8 arrays (height, width, 3)."""
    return [f"<answer>{choose(prompt)}</answer>" for prompt in prompt_batch]


def choose(prompt):
    """Return the first move that was not rejected on this board."""
    episode = prompt.episode_id
    if "Your last response was not played" in prompt:
        rejected[episode].add(last.get(episode))
    else:
        rejected[episode].clear()
    last[episode] = next(move for move in ORDER if move not in rejected[episode])
    return last[episode]
