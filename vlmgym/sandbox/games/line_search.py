"""Rules and search for games won by a line of equal pieces: tic-tac-toe and four in a row.

A board is two sets of squares, of the player to move and of the other player. A set is an int with bit
column * rows + height for each of its squares. With gravity, adding the lowest square of a column to all taken squares
therefore carries into the first free square of that column.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

WIN = 1_000_000
"""Value of a win after the last move that the search looks ahead; earlier wins have higher values."""
DEEPER = 4
"""Assumed minimum branching factor per extra ply."""


class Choice(NamedTuple):
    """Best moves, as squares, with their value for the player to move and the number of positions searched."""

    moves: tuple[int, ...]
    value: int
    nodes: int


class LineRules:
    """Rules for one size of board, length of line, and gravity."""

    def __init__(self, rows: int, columns: int, length: int, gravity: bool) -> None:
        self.rows, self.gravity = rows, gravity
        self.columns = [sum(self.square(height, column) for height in range(rows)) for column in range(columns)]
        self.lines: list[int] = []
        for height, column, (up, right) in product(range(rows), range(columns), ((0, 1), (1, 0), (1, 1), (1, -1))):
            last_height, last_column = height + up * (length - 1), column + right * (length - 1)
            if last_height < rows and 0 <= last_column < columns:
                self.lines.append(sum(self.square(height + up * i, column + right * i) for i in range(length)))
        squares = [1 << bit for bit in range(rows * columns)]
        self.rest_of_lines = {square: [line ^ square for line in self.lines if line & square] for square in squares}
        self.weights = {square: len(lines) for square, lines in self.rest_of_lines.items()}
        self._squares = sorted(squares, key=lambda square: -self.weights[square])
        middle = sorted(range(columns), key=lambda column: abs(2 * column + 1 - columns))
        self._falls = [(self.square(0, column), self.columns[column]) for column in middle]

    def square(self, height: int, column: int) -> int:
        """Square at a height above the bottom row."""
        return 1 << (column * self.rows + height)

    def moves(self, taken: int) -> list[int]:
        """Squares that can be taken next, the most promising first."""
        if self.gravity:
            return [square for lowest, column in self._falls if (square := (taken + lowest) & column)]
        return [square for square in self._squares if not taken & square]

    def completes(self, own: int, square: int) -> bool:
        """Return whether a square completes a line of a player's squares."""
        return any(own & rest == rest for rest in self.rest_of_lines[square])

    def has_line(self, own: int) -> bool:
        """Return whether a player has a line."""
        return any(own & line == line for line in self.lines)


@cache
def line_rules(rows: int, columns: int, length: int, gravity: bool) -> LineRules:
    """Return the rules, which are made once."""
    return LineRules(rows, columns, length, gravity)


@lru_cache(maxsize=1 << 16)
def best_moves(rules: LineRules, own: int, other: int, depth: int) -> Choice:
    """Search a number of moves ahead and one more for wins; values of open positions count lines through squares."""
    moves = rules.moves(own | other)
    if winning := tuple(move for move in moves if rules.completes(own, move)):
        return Choice(winning, WIN + depth, 1)
    score = sum(weight * (bool(own & square) - bool(other & square)) for square, weight in rules.weights.items())
    search, best = _Search(rules), -2 * WIN
    chosen: list[int] = []
    for move in moves:
        after = -score - rules.weights[move]
        value = -search.value(other, own | move, depth - 1, -2 * WIN, 1 - best, after)
        if value > best:
            best, chosen = value, []
        if value == best:
            chosen.append(move)
    return Choice(tuple(chosen), best, search.nodes)


def search(rules: LineRules, own: int, other: int, nodes: int) -> Choice:
    """Search deeper and deeper until the result is certain or the next search could exceed a number of nodes."""
    searched, left = 0, len(rules.weights) - (own | other).bit_count()
    for depth in range(1, left + 1):
        found = best_moves(rules, own, other, depth)
        searched += found.nodes
        if abs(found.value) >= WIN or searched * DEEPER > nodes:
            break
    return found._replace(nodes=searched)


class _Search:
    """Negamax search with alpha-beta pruning."""

    def __init__(self, rules: LineRules) -> None:
        self.rules, self.nodes = rules, 0

    def value(self, own: int, other: int, depth: int, alpha: int, beta: int, score: int) -> int:
        """Value for the player to move; `score` is the value of an open position."""
        self.nodes += 1
        rules = self.rules
        moves = rules.moves(own | other)
        for move in moves:
            if rules.completes(own, move):
                return WIN + depth
        if not moves:
            return 0
        if depth <= 0:
            return score
        best = -2 * WIN
        for move in moves:
            after = -score - rules.weights[move]
            best = max(best, -self.value(other, own | move, depth - 1, -beta, -max(alpha, best), after))
            if best >= beta:
                break
        return best
