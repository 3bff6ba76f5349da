"""Videos of recorded episodes: H.264, yuv420p, with a caption strip for each turn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np

from vlmgym.errors import GameError, UsageError
from vlmgym.runs.files import OutputError, replace_file
from vlmgym.runs.record import EpisodeRecord, recorded_action, recorded_states
from vlmgym.runs.store import StoredEpisode
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.drawing.canvas import OUTCOME_COLOURS, Canvas, Colour, text_width

_PAPER: Colour = (32, 34, 40)
_INK: Colour = (240, 240, 244)
_FAINT: Colour = (150, 154, 166)

ENCODER = {
    "preset": "ultrafast",
    "tune": "zerolatency",
    "crf": "20",
    "x264-params": "partitions=i4x4",
    "threads": "1",
    "filter_threads": "1",
    "sws_flags": "bilinear",
    "movflags": "+faststart",
}
"""Options of ffmpeg; docs/log.md compares alternatives."""
FPS = 4
"""States per second."""
LAST_FRAME_SECONDS = 1.0
"""Duration of the final state."""


def write_video(path: Path, game: Game[Any, Any], episode: EpisodeRecord) -> None:
    """Write an MP4 that browsers can play: the initial state and the state after each turn, `FPS` states per second.

    The final state is shown for `LAST_FRAME_SECONDS`.
    """
    frames: Any = _frames(game, episode, max(1, round(LAST_FRAME_SECONDS * FPS)))  # imageio's types lack iterators
    video = imageio.imwrite(
        "<bytes>",
        frames,
        is_batch=True,
        plugin="FFMPEG",
        extension=".mp4",
        fps=FPS,
        ffmpeg_log_level="fatal",  # or an interrupt would print that frames are incomplete
        codec="libx264",
        quality=None,
        macro_block_size=None,
        output_params=[part for name, value in ENCODER.items() for part in (f"-{name}", value)],
    )
    replace_file(path, video)


def write_stored_video(path: Path, stored: StoredEpisode) -> str | None:
    """Load a record and write its video in a worker process; return the error of a game that cannot draw it."""
    try:
        with game_errors(stored.game, stored.seed, None, UsageError, OutputError):
            episode = stored.read()
            with stored.named():
                write_video(path, episode.game.game(), episode)
    except GameError as error:
        return str(error)
    return None


def _frames(game: Game[Any, Any], episode: EpisodeRecord, hold: int) -> Iterator[ImageArray]:
    """Yield frames; each one is valid until the next is drawn into the same array."""
    heights, widths, _ = zip(*game.image_shapes)
    below, edges = max(heights), list(accumulate(widths, initial=0))
    width, strip = edges[-1], max(36, edges[-1] // 9)
    height = below + strip
    even = np.zeros((height + height % 2, width + width % 2, 3), np.uint8)  # as yuv420p requires
    frame = even[:height, :width]
    images = [frame[:tall, left : left + wide] for tall, wide, left in zip(heights, widths, edges)]
    upper = round(strip * 0.54)
    score, drawn_state = 0.0, None
    states, limit = recorded_states(game, episode), 1 if episode.is_single_turn else episode.max_turns
    for i, state in enumerate(states):
        turn = episode.turns[i - 1] if i else None
        score += turn.reward.game if turn else 0.0
        last = i == len(states) - 1
        game.draw_into(state, images, drawn_state)
        drawn_state = state
        score_text = f"score {score:,.6g}" if abs(score) < 1e6 else f"score {score:,.0f}"
        line = frame[below : below + upper]
        line[:, : width // 2] = _half_line(width, strip, upper, f"turn {i}/{limit}", "left")
        line[:, width // 2 :] = _half_line(width, strip, upper, score_text, "right")
        facts = f"{episode.game.id}   {episode.policy.name}   seed {episode.seed}"
        if turn is not None:
            facts = recorded_action(game, turn) or "no action"
        outcome, end = turn.outcome.value if turn else "", episode.end_reason if last else ""
        frame[below + upper :] = _facts(width, strip, upper, facts, outcome, end)
        even[height:] = even[height - 1]
        even[:, width:] = even[:, width - 1 : width]
        for _ in range(hold if last else 1):
            yield even


@lru_cache(maxsize=256)
def _half_line(width: int, height: int, split: int, text: str, align: str) -> ImageArray:
    """Draw the left or right half of the first `split` rows of the caption strip."""
    left, right = (0, width // 2) if align == "left" else (width // 2, width)
    canvas = Canvas(right - left, split, _PAPER, left=left)
    pad, y, capitals = width * 0.025, height * 0.32, height * 0.24
    canvas.text(text, pad if align == "left" else width - pad, y, capitals, _INK, align=align)
    return canvas.pixels()


@lru_cache(maxsize=64)
def _facts(width: int, height: int, split: int, facts: str, outcome: str, end: str) -> ImageArray:
    """Draw the remaining rows of the caption strip.

    On the left are the action and its outcome or, before the first turn, facts about the episode; on the right is the
    reason the episode ended.
    """
    canvas = Canvas(width, height - split, _PAPER, top=split)
    pad, y, capitals = width * 0.025, height * 0.74, height * 0.19
    if outcome:
        canvas.text(facts, pad, y, capitals, _INK, align="left", max_width=width * 0.4)
        x = pad + min(text_width(facts, capitals), width * 0.4) + capitals * 1.6
        canvas.circle(x, y, capitals * 0.42, OUTCOME_COLOURS[outcome])
        canvas.text(outcome, x + capitals, y, capitals, OUTCOME_COLOURS[outcome], align="left")
    else:
        canvas.text(facts, pad, y, capitals, _FAINT, align="left")
    if end:
        canvas.text(end, width - pad, y, capitals, _FAINT, align="right", max_width=width * 0.4)
    return canvas.pixels()
