"""Report data of one episode: text, numbers and images. Built in worker processes.

Images are stored as deduplicated tiles: 100 images of a board take about 20 kB.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64encode
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from pydantic import BaseModel
from pydantic_core import to_json

from vlmgym.errors import GameError, UsageError
from vlmgym.evaluation.curves import EpisodeRewards
from vlmgym.evaluation.summary import states_perception
from vlmgym.pages.document import data_url, marked
from vlmgym.runs.record import (
    EpisodeRecord,
    GameRecord,
    Number,
    Status,
    TurnRecord,
    recorded_action,
    recorded_states,
)
from vlmgym.runs.store import StoredEpisode
from vlmgym.sandbox.core.board_game import BoardGame
from vlmgym.sandbox.core.episode import game_errors
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.perception import LONGEST_PERCEPTION, read_grid
from vlmgym.sandbox.core.response_format import parse_response
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.sandbox.registry import game_class

LARGEST_GRID = 64
"""Maximum number of rows, and of columns, of a perception grid on the page."""


class _ListedReward(BaseModel):
    game: Number
    perception: Number | None


class _ListedTurn(BaseModel):
    response: str
    outcome: Outcome
    reward: _ListedReward


class _ListedRecord(BaseModel):
    """The fields of a record that lists of episodes and curves need; reading only these is five times as fast."""

    score: Number | None
    status: Status
    end_reason: str
    stage: str | None = None
    turns: tuple[_ListedTurn, ...]


@dataclass(frozen=True, slots=True)
class ListedEpisode:
    """An episode in the list of a page.

    Attributes:
        row: Entry in the list of episodes.
        rewards: Rewards for the curves; None without a result.
    """

    row: Mapping[str, Any]
    rewards: EpisodeRewards | None


def list_episode(stored: StoredEpisode, text: bytes | None = None) -> ListedEpisode:
    """Return what the list of episodes and the curves show about an episode; `text` is its record if it was read."""
    episode = stored.read_as(_ListedRecord, text)
    outcomes = [turn.outcome for turn in episode.turns]
    accuracies = [turn.reward.perception for turn in episode.turns if turn.reward.perception is not None]
    if accuracies and not any(states_perception(turn.response) for turn in episode.turns):
        accuracies = []
    row = {
        "score": episode.score,
        "turns": len(episode.turns),
        "illegal": outcomes.count(Outcome.ILLEGAL),
        "unparsable": outcomes.count(Outcome.UNPARSABLE),
        "perception": sum(accuracies) / len(accuracies) if accuracies else None,
        "status": episode.status,
        "end": episode.end_reason,
        "stage": episode.stage,
    }
    rewards = tuple(turn.reward.game for turn in episode.turns)
    return ListedEpisode(row, None if episode.score is None else EpisodeRewards(rewards, episode.status == "ended"))


def episode_json(stored: StoredEpisode, with_images: bool) -> bytes:
    """Build what the viewer shows of an episode, as JSON."""
    episode = stored.read()
    with stored.named():
        game = _installed_game(episode.game)
        try:
            with game_errors(episode.game.id, episode.seed, None, UsageError):
                data = _episode_data(episode, game, with_images)
        except GameError:  # a game that failed in the run may fail again
            data = _episode_data(episode, None, False)
    return to_json(data, inf_nan_mode="null")


def packed_episode(stored: StoredEpisode, with_images: bool) -> tuple[ListedEpisode, str]:
    """Return an episode of a page that contains all its data: for the list, and for the viewer as zlib in base64."""
    data = b64encode(zlib.compress(episode_json(stored, with_images))).decode()
    return list_episode(stored), data


def _episode_data(episode: EpisodeRecord, game: Game[Any, Any] | None, with_images: bool) -> dict[str, Any]:
    """Build the viewer data of an episode; prompts and descriptions are indices into the distinct `texts`."""
    texts = _Texts()
    states = [] if game is None else recorded_states(game, episode)
    truths = [None if game is None else game.describe(state) for state in states]
    turns = [
        _turn(turn, game, truth, texts) for turn, truth in zip(episode.turns, truths or [None] * len(episode.turns))
    ]
    return {
        "turns": turns,
        "final": texts.number(truths[-1]) if truths else None,
        "texts": list(texts),
        "images": episode_images(game, states) if game is not None and with_images else None,
        "installed": game is not None,
        "maxTurns": episode.max_turns,
        "facts": _facts(episode),
    }


def _installed_game(record: GameRecord) -> Game[Any, Any] | None:
    """Return the game of a record, or None if that version is not installed."""
    try:
        game_class(record.id)
    except UsageError:
        return None
    return record.game()


class _Texts(dict[str, int]):
    """Indices of the distinct texts of an episode."""

    def number(self, text: str | None) -> int | None:
        return None if text is None else self.setdefault(text, len(self))


def _turn(turn: TurnRecord, game: Game[Any, Any] | None, truth: str | None, texts: _Texts) -> dict[str, Any]:
    if game is not None:
        action = recorded_action(game, turn)
    else:
        action = None if turn.action is None else json.dumps(turn.action)
    return {
        "system": texts.number(turn.system),
        "prompt": texts.number(turn.prompt),
        "response": marked(turn.response),
        "reasoning": turn.reasoning,
        "outcome": turn.outcome,
        "action": action,
        "feedback": turn.feedback,
        "reward": turn.reward,
        "truth": texts.number(truth),
        "grids": None if game is None or truth is None else _grids(game, truth, turn.response),
        "info": [
            (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
            for name, value in [*turn.info.items(), *_statements(turn)]
        ],
        "latency": turn.latency,
        "promptTokens": turn.prompt_tokens,
        "completionTokens": turn.completion_tokens,
        "cost": turn.cost,
        "finish": turn.finish_reason,
        "requests": turn.requests,
    }


def _statements(turn: TurnRecord) -> Iterator[tuple[str, str]]:
    if (counts := turn.statements) is not None and counts.checked:
        first = "" if counts.first_false is None else f"; the first false one is number {counts.first_false}"
        yield "statements", f"{counts.true} of {counts.checked} are true{first}"


def _grids(game: Game[Any, Any], truth: str, response: str) -> dict[str, Any] | None:
    """Return the predicted and true cells.

    Returns None if the game does not compare them cell by cell, or the response does not have exactly one perception.
    """
    if type(game).perceive is not Game.perceive:
        return None
    perception = parse_response(response).perception
    if perception is None:
        return None
    cells = read_grid(perception[:LONGEST_PERCEPTION])
    return {"seen": [row[:LARGEST_GRID] for row in cells[:LARGEST_GRID]], "truth": read_grid(truth)}


def _facts(episode: EpisodeRecord) -> list[tuple[str, str]]:
    facts = [(name, value if isinstance(value, str) else f"{value:,.6g}") for name, value in episode.metrics.items()]
    if episode.stage is not None:
        facts.append(("stage", episode.stage))
    if episode.attempt > 1:
        facts.append(("attempt", str(episode.attempt)))
    return facts


@dataclass(frozen=True, slots=True)
class Cuts:
    """Tile edges of an image in pixels: columns from 0 to width, rows from 0 to height."""

    columns: tuple[int, ...]
    rows: tuple[int, ...]

    def tiles(self, image: ImageArray) -> Iterator[ImageArray]:
        """Yield the tiles row by row."""
        for top, bottom in pairwise(self.rows):
            for left, right in pairwise(self.columns):
                yield image[top:bottom, left:right]


def cuts_of(game: Game[Any, Any], shape: tuple[int, ...]) -> Cuts:
    """Return the tile edges of an image: boards are cut into cells and border, other images are a single tile."""
    height, width = shape[:2]
    if not isinstance(game, BoardGame):
        return Cuts((0, width), (0, height))
    board = game.painter.geometry

    def edges(first: int, cells: int, size: int) -> tuple[int, ...]:
        inner = (first - board.gap // 2 + i * board.pitch for i in range(cells + 1))
        return (0, *inner, size)

    return Cuts(edges(board.left, board.columns, width), edges(board.top, board.rows, height))


class TileSheet:
    """The distinct tiles of many images."""

    def __init__(self) -> None:
        self.tiles: list[str] = []
        """Image files as data URLs."""
        self._numbers: dict[bytes, int] = {}
        self._cells: dict[tuple[int, int, int, Hashable], int] = {}

    def add(self, image: ImageArray, cuts: Cuts) -> list[int]:
        """Add an image and return its tile indices, row by row."""
        return [self._number(np.ascontiguousarray(tile)) for tile in cuts.tiles(image)]

    def add_board(self, game: BoardGame[Any, Any], state: Any, cuts: Cuts) -> list[int]:
        """Add the image of a board and return its tile indices, row by row.

        The board is drawn only if one of its cells has a new value, because hashing pixels is slow.
        """
        border = [None] * (game.config.columns + 2)
        rows: list[Sequence[Hashable]] = [border, *([None, *row, None] for row in game.cells(state)), border]
        seed = state.variation_seed
        keys = [(seed, i, j, cell) for i, row in enumerate(rows) for j, cell in enumerate(row)]
        if not self._cells.keys() >= set(keys):
            for key, tile in zip(keys, cuts.tiles(game.draw(state)), strict=True):
                if key not in self._cells:
                    self._cells[key] = self._number(np.ascontiguousarray(tile))
        return [self._cells[key] for key in keys]

    def _number(self, tile: ImageArray) -> int:
        key = hashlib.sha256(tile.data).digest() + tile.shape[0].to_bytes(4, "big")  # the fastest hash in hashlib
        if key not in self._numbers:
            self._numbers[key] = len(self.tiles)
            self.tiles.append(data_url(tile))
        return self._numbers[key]


def episode_images(game: Game[Any, Any], states: Sequence[Any]) -> dict[str, Any]:
    """Render the images of states.

    Returns:
        `tiles`: data URLs; `cuts`: edges of `columns` and `rows` per image; `frames`: tile indices per image, for each
        distinct state; `shown`: index of the frame of each state.
    """
    sheet = TileSheet()
    cuts = [cuts_of(game, shape) for shape in game.image_shapes]
    frames: list[list[list[int]]] = []
    numbers: dict[str, int] = {}
    shown: list[int] = []
    for state in states:
        state_json = game.to_json(state)
        if state_json not in numbers:
            numbers[state_json] = len(frames)
            if isinstance(game, BoardGame) and type(game).draw is BoardGame.draw:
                frames.append([sheet.add_board(game, state, cuts[0])])
            else:
                frames.append([sheet.add(image, cut) for image, cut in zip(game.images(state), cuts, strict=True)])
        shown.append(numbers[state_json])
    return {"tiles": sheet.tiles, "cuts": [asdict(cut) for cut in cuts], "frames": frames, "shown": shown}
