"""Videos of recorded episodes: H.264, yuv420p, with a caption strip for each turn.

PyAV is used directly because imageio's plugin cannot set preset, quality and threads, and is slower (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from vlmgym.records.episode import EpisodeRecord, TurnRecord, recorded_action, recorded_states
from vlmgym.records.files import temporary, writing
from vlmgym.records.store import StoredEpisode
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.rendering.canvas import Canvas, Colour, text_width
from vlmgym.sandbox.rendering.encode import side_by_side
from vlmgym.sandbox.rendering.palette import OUTCOME_COLOURS

_PAPER: Colour = (32, 34, 40)
_INK: Colour = (240, 240, 244)
_FAINT: Colour = (150, 154, 166)

ENCODER = {"preset": "superfast", "tune": "zerolatency", "crf": "18"}
"""Options of x264: half the CPU time of `veryfast` with lookahead, equal quality, files 1.4 times as large."""
LAST_FRAME_SECONDS = 1.0
"""Duration of the final frame."""


def write_video(path: Path, game: Game[Any, Any], episode: EpisodeRecord, fps: int) -> None:
    """Write an MP4 that browsers can play, with a frame of the initial state and of each turn, `fps` per second."""
    part = temporary(path)
    with writing(path):
        try:
            with av.open(str(part), "w", options={"movflags": "+faststart"}) as container:
                stream: Any = None
                for image in _frames(game, episode, max(1, round(LAST_FRAME_SECONDS * fps))):
                    if stream is None:
                        stream = container.add_stream("libx264", rate=fps, options=ENCODER)
                        stream.height, stream.width = image.shape[:2]
                        stream.pix_fmt = "yuv420p"
                        stream.time_base = Fraction(1, fps)
                        stream.thread_count = 1
                    container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
                container.mux(stream.encode())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_stored_video(path: Path, stored: StoredEpisode, fps: int) -> None:
    """Load a record and write its video; runs in worker processes."""
    episode = stored.read()
    with stored.named():
        write_video(path, episode.game.game(), episode, fps)


def _frames(game: Game[Any, Any], episode: EpisodeRecord, hold: int) -> Iterator[ImageArray]:
    states = recorded_states(game, episode)
    score = 0.0
    for i, state in enumerate(states):
        turn = episode.turns[i - 1] if i else None
        score += turn.reward.game if turn else 0.0
        board = side_by_side(game.images(state))
        last = i == len(states) - 1
        strip = _strip(board.shape[1], game, episode, turn, score, episode.end_reason if last else "")
        frame = _even(np.concatenate([board, strip]))
        for _ in range(hold if last else 1):
            yield frame


def _strip(
    width: int, game: Game[Any, Any], episode: EpisodeRecord, turn: TurnRecord | None, score: float, end: str
) -> ImageArray:
    """Draw the caption strip: turn, action, outcome, score, and `end` unless empty."""
    height = max(36, width // 9)
    canvas = Canvas(width, height, _PAPER)
    pad, big, small = width * 0.025, height * 0.24, height * 0.19
    upper, lower = height * 0.32, height * 0.74
    number = turn.turn if turn else 0
    canvas.text(f"turn {number}/{episode.max_turns}", pad, upper, big, _INK, align="left")
    shown = f"score {score:,.6g}" if abs(score) < 1e6 else f"score {score:,.0f}"
    canvas.text(shown, width - pad, upper, big, _INK, align="right")
    if turn is None:
        canvas.text(
            f"{episode.game.id}   {episode.policy.name}   seed {episode.seed}", pad, lower, small, _FAINT, align="left"
        )
    else:
        outcome = turn.outcome.value
        action = recorded_action(game, turn) or "no action"
        canvas.text(action, pad, lower, small, _INK, align="left", max_width=width * 0.4)
        x = pad + min(text_width(action, small), width * 0.4) + small * 1.6
        canvas.circle(x, lower, small * 0.42, OUTCOME_COLOURS[outcome])
        canvas.text(outcome, x + small, lower, small, OUTCOME_COLOURS[outcome], align="left")
    if end:
        canvas.text(end, width - pad, lower, small, _FAINT, align="right", max_width=width * 0.4)
    return canvas.pixels()


def _even(frame: ImageArray) -> ImageArray:
    """Pad odd sizes by repeating the last row or column, because yuv420p requires even ones."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
