"""Select validation states that did not occur in training, by sampling the training states again from their seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from vlmgym.errors import UsageError
from vlmgym.rollout.states import sample_state
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.training.config import read_config
from vlmgym.training.states import SFT_STREAM, EpisodeRollout


def novel(episodes: Iterable[EpisodeRollout], sft_args: Sequence[str], rl_args: Sequence[str]) -> list[EpisodeRollout]:
    """Select episodes whose images occurred neither in SFT nor in RL.

    Args:
        episodes: Episodes of the trained game.
        sft_args: Options of the SFT run; states of all its batches are excluded, even if it stopped early.
        rl_args: Options of the RL run.

    Raises:
        UsageError: The training includes later turns of episodes, whose states cannot be sampled again.
    """
    batches, steps = read_config(sft_args).sft, read_config(rl_args)
    if batches.random_turns or steps.play.max_turns > 1:
        raise UsageError("only the first turn of each episode can be sampled again")
    training_images = images_drawn(tuple(sft_args), SFT_STREAM, batches.steps * batches.batch_size)
    training_images |= images_drawn(tuple(rl_args), 0, steps.steps * steps.prompts)
    return [episode for episode in episodes if digest(episode.observation.images) not in training_images]


@lru_cache(maxsize=8)
def images_drawn(args: tuple[str, ...], stream: int, count: int) -> frozenset[bytes]:
    """Return hashes of the images of the first `count` initial states in a stream of states.

    Args:
        args: Options of the run.
        stream: Offset of the stream from the seed of the run.
        count: Number of states.
    """
    config = read_config(args)
    (game,) = config.make_curriculum().games
    snapshots = (sample_state(game, config.seed + stream, row, config.states, config.reward) for row in range(count))
    return frozenset(digest(game.images(game.from_json(snapshot.state))) for snapshot in snapshots)


def digest(images: Sequence[ImageArray]) -> bytes:
    """Hash the pixels of images."""
    return hashlib.sha256(b"".join(image.tobytes() for image in images)).digest()
