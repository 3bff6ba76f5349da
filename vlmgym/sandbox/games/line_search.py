"""Rules and search for games won by completing a line of pieces: tic-tac-toe and four in a row.

A board is two sets of squares, one for the player to move and one for the other player. A set is an int; the bit
column * rows + height stands for the square in that column, at that height above the bottom row. With gravity, adding
the lowest square of a column to the set of all taken squares therefore carries into the column's first free square.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import NamedTuple

WIN = 1_000_000
"""Value of a win by the last move that is searched; a win n moves earlier is worth n more."""
DEEPER = 4
"""Assumed minimum growth factor of the number of positions per additional move."""


class Choice(NamedTuple):
    """Result of a search.

    Attributes:
        moves: The best moves, as squares.
        value: Value of these moves for the player to move.
        nodes: Number of positions searched.
    """

    moves: tuple[int, ...]
    value: int
    nodes: int


class LineRules:
    """Rules for one board size and line length, with or without gravity."""

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
        """Return the square of a column at a height above the bottom row, as a set with one element."""
        return 1 << (column * self.rows + height)

    def moves(self, taken: int) -> list[int]:
        """List the squares that can be taken next, the most promising first."""
        if self.gravity:
            return [square for lowest, column in self._falls if (square := (taken + lowest) & column)]
        return [square for square in self._squares if not taken & square]

    def completes(self, own: int, square: int) -> bool:
        """Return whether taking a square completes a line for the player who has the squares `own`."""
        return any(own & rest == rest for rest in self.rest_of_lines[square])

    def has_line(self, own: int) -> bool:
        """Return whether the squares `own` contain a line."""
        return any(own & line == line for line in self.lines)


@cache
def line_rules(rows: int, columns: int, length: int, gravity: bool) -> LineRules:
    """Return the rules for these arguments; cached."""
    return LineRules(rows, columns, length, gravity)


@lru_cache(maxsize=1 << 16)
def best_moves(rules: LineRules, own: int, other: int, depth: int) -> Choice:
    """Search `depth` moves ahead, and one more move for wins; return all moves with the highest value.

    If the search ends undecided, the value is the number of lines through each of the player's squares, summed, minus
    the same sum for the other player.
    """
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
    """Search ever deeper until the result is certain or the next search would likely exceed `nodes` in total."""
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
        """Return the value for the player to move; `score` is the value if the search ends here, undecided."""
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
