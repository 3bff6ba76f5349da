"""A pseudorandom permutation of any number of rows, in constant memory."""

from __future__ import annotations

ROUNDS = 6
_MASK = (1 << 64) - 1


def shuffled(index: int, count: int) -> int:
    """Map an index to its row under a fixed permutation of `range(count)`.

    A Feistel network permutes the numbers below the next power of four. Results outside `range(count)` are permuted
    again until they fall inside (cycle walking): at most three extra passes on average.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1
    row = index
    while True:
        left, right = row >> half, row & low
        for step in range(ROUNDS):
            left, right = right, left ^ (_mix(right + (step << 32) + (count << 40)) & low)
        row = left << half | right
        if row < count:
            return row


def _mix(number: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)
