"""Demonstrated reasoning can succeed: a player that follows its steps without mistakes wins whole games.

Each player here reads the board from the description, as a model reads it from the image, and follows the procedure of
the demonstrated text with its own code. What the text leaves open, such as the line to start with, is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from vlmgym import RewardConfig, make_game
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import Outcome

Player = Callable[[str, np.random.Generator], str]
"""Takes a description of the board, and returns the text of an answer."""


def play(game: Game[Any, Any], player: Player, games: int, turns: int, slips: float = 0.0) -> float:
    """Play games; return the mean sum of the rewards of legal moves. A slip is a random answer."""
    total = 0.0
    for number in range(games):
        episode = Episode(game, FIRST_VALIDATION_SEED + number, RewardConfig())
        rng = np.random.default_rng(number)
        for _ in range(turns):
            if episode.ended:
                break
            slipped = rng.random() < slips
            answer = (
                game.answer.format(game.answer.sample(rng)) if slipped else player(game.describe(episode.state), rng)
            )
            scored = episode.respond(f"<answer>{answer}</answer>")
            total += scored.game if scored.outcome is Outcome.PLAYED else 0.0
    return total / games


def oracle_score(game: Game[Any, Any], games: int, turns: int) -> float:
    total = 0.0
    for number in range(games):
        episode = Episode(game, FIRST_VALIDATION_SEED + number, RewardConfig())
        for _ in range(turns):
            if not episode.ended:
                total += episode.act(game.best_action(episode.state)).game
    return total / games


def rows_of(description: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in description.splitlines()]


# Swap -----------------------------------------------------------------------------------------------------------------


def completing(line: Sequence[str], place: int) -> set[str]:
    """Return the tiles that would complete three in a line at an index."""
    pairs = ((place - 2, place - 1), (place - 1, place + 1), (place + 1, place + 2))
    return {line[a] for a, b in pairs if a >= 0 and b < len(line) and line[a] == line[b]}


def beside(line: Sequence[str], place: int) -> Iterator[int]:
    """Yield the neighbours that complete three if they move to an index along the line."""
    for step in (-1, 1):
        ends = (place + step, place - 2 * step)
        if (
            min(ends) >= 0
            and max(ends) < len(line)
            and line[place + step] == line[place - step] == line[place - 2 * step]
        ):
            yield place + step


def swap_player(lines: Sequence[str] = ("row", "column")) -> Player:
    """Compare each line with the one before: tiles with tiles needed before, tiles before with tiles needed."""

    def answer(description: str, rng: np.random.Generator) -> str:
        rows = rows_of(description)
        boards = {"row": rows, "column": [list(column) for column in zip(*rows)]}
        numbered = [(kind, number) for kind in lines for number in range(len(boards[kind]))]
        start = int(rng.integers(len(numbered)))
        order, before = [*numbered[start:], *numbered[:start], numbered[start]], ("", -2)
        for kind, number in order:
            line, board = boards[kind][number], boards[kind]
            last = board[number - 1] if before == (kind, number - 1) else None
            before = (kind, number)
            swaps = []
            for place, tile in enumerate(line):
                if last is not None and (tile in completing(last, place) or last[place] in completing(line, place)):
                    swaps.append(((number - 1, place), (number, place)))
                swaps += [((number, place), (number, side)) for side in beside(line, place)]
            if swaps:
                cells = [cell if kind == "row" else cell[::-1] for cell in swaps[0]]
                return " ".join(f"({row}, {column})" for row, column in cells)
        return "(0, 0) (0, 0)"

    return answer


# Shisen-Sho -----------------------------------------------------------------------------------------------------------


def shisensho_player(description: str, rng: np.random.Generator) -> str:
    """List pairs of equal tiles with the turns of the path between them, up to the first with at most two."""
    rows = rows_of(description)
    tiles: dict[str, list[tuple[int, int]]] = {}
    for row, line in enumerate(rows):
        for column, tile in enumerate(line):
            if tile != "empty":
                tiles.setdefault(tile, []).append((row, column))
    pairs = [pair for cells in tiles.values() for pair in combinations(cells, 2)]
    start = int(rng.integers(len(pairs)))
    for first, second in pairs[start:] + pairs[:start]:
        if connected(rows, first, second):
            return f"{first} {second}"
    return "(0, 0) (0, 0)"


def connected(rows: list[list[str]], first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Return whether at most three straight lines through empty cells, also around the board, join two cells."""

    def free(cell: tuple[int, int]) -> bool:
        row, column = cell
        inside = 0 <= row < len(rows) and 0 <= column < len(rows[0])
        around = -1 <= row <= len(rows) and -1 <= column <= len(rows[0])
        return cell == second or (rows[row][column] == "empty" if inside else around)

    reached = {first}
    for _ in range(3):
        for row, column in [*reached]:
            for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                cell = (row + down, column + right)
                while free(cell):
                    reached.add(cell)
                    if cell == second:
                        return True
                    cell = (cell[0] + down, cell[1] + right)
    return False


# 2048 -----------------------------------------------------------------------------------------------------------------


def player_of_2048(description: str, rng: np.random.Generator) -> str:
    """Choose any direction that merges as many pairs as possible."""
    return str(rng.choice(best_directions(description)))


def best_directions(description: str) -> list[str]:
    """Count the pairs that merge in rows and columns; return the directions with most, if tiles can slide there."""
    rows = [[int(cell) for cell in line] for line in rows_of(description)]
    merges: dict[str, int] = {}
    for lines, start, end in ((rows, "left", "right"), ([list(column) for column in zip(*rows)], "up", "down")):
        count = sum(merging_pairs(line) for line in lines)
        if count or any(line != slid(line) for line in lines):
            merges[start] = count
        if count or any(line[::-1] != slid(line[::-1]) for line in lines):
            merges[end] = count
    return [direction for direction, count in merges.items() if count == max(merges.values())]


def merging_pairs(line: Sequence[int]) -> int:
    count, previous = 0, 0
    for tile in filter(None, line):
        count, previous = (count + 1, 0) if tile == previous else (count, tile)
    return count


def slid(line: Sequence[int]) -> list[int]:
    tiles = [tile for tile in line if tile]
    return tiles + [0] * (len(line) - len(tiles))


# Whole games ----------------------------------------------------------------------------------------------------------

SWAP = {"rows": 5, "columns": 5, "colours": 4, "shapes": 1}
SHISENSHO = {"rows": 6, "columns": 6, "copies": 2, "colours": 6, "shapes": 3}


@pytest.mark.parametrize(
    ("name", "config", "player", "games", "turns"),
    [
        ("swap", SWAP, swap_player(), 6, 50),
        ("shisensho", SHISENSHO, shisensho_player, 6, 23),
        ("2048", {}, player_of_2048, 20, 50),
    ],
)
def test_players_without_mistakes_are_as_good_as_the_oracle(
    name: str, config: dict[str, Any], player: Player, games: int, turns: int
) -> None:
    game = make_game(name, **config)
    oracle = oracle_score(game, games, turns)
    assert play(game, player, games, turns) >= 0.95 * oracle
    assert play(game, player, games, turns, slips=0.2) >= 0.75 * oracle


def test_searching_only_rows_is_not_enough() -> None:
    game = make_game("swap", **SWAP)
    assert play(game, swap_player(("row",)), 6, 50) < 0.9 * oracle_score(game, 6, 50)


@pytest.mark.parametrize(("name", "config"), [("swap", SWAP), ("shisensho", SHISENSHO)])
def test_demonstrations_start_anywhere(name: str, config: dict[str, Any]) -> None:
    """The last line or pair of the search is also demonstrated about as often as the first."""
    game: Any = make_game(name, **config)
    starts = []
    for seed in range(200):
        state = game.start(np.random.default_rng(seed))
        action = game.rule_action(state)
        assert action in game.legal_actions(state)
        starts.append(game.explain(state, action).partition(": ")[2].partition(",")[0])
    assert max(map(starts.count, starts)) < 0.2 * len(starts)


def test_the_rule_of_2048_is_the_demonstrated_one() -> None:
    game: Any = make_game("2048")
    for seed in range(20):
        episode = Episode(game, seed, RewardConfig())
        for _ in range(30):
            action = game.rule_action(episode.state)
            assert game.answer.format(action) in best_directions(game.describe(episode.state))
            episode.act(action)
