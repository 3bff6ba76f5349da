"""Which held-out positions never came up in a training: what it drew follows from its seed, and is drawn again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from training.core.states import SFT_STREAM, sample_state
from training.local.options import read_config
from vlmgym.errors import UsageError
from vlmgym.rollout.episode import EpisodeRollout
from vlmgym.sandbox.core.game import ImageArray


def novel(episodes: Iterable[EpisodeRollout], cold: Sequence[str], after: Sequence[str]) -> list[EpisodeRollout]:
    """Seats whose images neither a cold start nor the training after it showed.

    Args:
        episodes: At positions of the one game that is trained.
        cold: Options of the cold start; all its batches count, even if it ended before.
        after: Options of the training.

    Raises:
        UsageError: Other than first positions are trained on.
    """
    batches, steps = read_config(cold).sft, read_config(after)
    if batches.random_turns or steps.play.max_turns > 1:
        raise UsageError("only single answers to first positions are drawn again, not what comes after an answer")
    shown = images_drawn(tuple(cold), SFT_STREAM, batches.steps * batches.batch_size)
    shown |= images_drawn(tuple(after), 0, steps.steps * steps.prompts)
    return [episode for episode in episodes if digest(episode.observation.images) not in shown]


@lru_cache(maxsize=8)
def images_drawn(args: tuple[str, ...], stream: int, count: int) -> frozenset[bytes]:
    """Digests of what the first positions of a stream show.

    Args:
        args: Options of the run.
        stream: Added to the run's seed.
        count: Positions.
    """
    config = read_config(args)
    (game,) = config.make_curriculum().games
    snapshots = (sample_state(game, config.seed + stream, row, config.states, config.reward) for row in range(count))
    return frozenset(digest(game.images(game.from_json(snapshot.state))) for snapshot in snapshots)


def digest(images: Sequence[ImageArray]) -> bytes:
    """The same for images of equal pixels alone."""
    return hashlib.sha256(b"".join(image.tobytes() for image in images)).digest()
