"""Fewest presses that switch off all lamps, by linear algebra over bits.

Pressing is commutative and pressing twice does nothing, so a solution is a set of cells. Sets are bit masks of cells,
row by row. Solutions differ by sets of presses that change nothing; boards of up to 7 x 7 have at most 2 ** 7 such
sets.
"""

from __future__ import annotations

from functools import lru_cache

from vlmgym.sandbox.core.named_actions import neighbours


@lru_cache
def effects(rows: int, columns: int) -> tuple[int, ...]:
    """Lamps that pressing each cell switches: itself and its neighbours in row and column."""
    near = neighbours(rows, columns)
    return tuple(1 << cell | sum(1 << other for _, other in near[cell]) for cell in range(rows * columns))


@lru_cache
def _basis(rows: int, columns: int) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, ...]]:
    """Eliminate: (lowest lamp, lamps, presses) with distinct lowest lamps, and all sets of presses without effect."""
    basis: dict[int, tuple[int, int]] = {}
    idle = [0]
    for cell, lamps in enumerate(effects(rows, columns)):
        presses = 1 << cell
        while lamps and (lamps & -lamps) in basis:
            known = basis[lamps & -lamps]
            lamps, presses = lamps ^ known[0], presses ^ known[1]
        if lamps:
            basis[lamps & -lamps] = lamps, presses
        else:
            idle += [other ^ presses for other in idle]
    return tuple((low, *known) for low, known in sorted(basis.items())), tuple(idle)


@lru_cache(maxsize=1 << 16)
def fewest_presses(lit: int, rows: int, columns: int) -> int | None:
    """Set of the fewest presses that switch off the lit lamps, the smallest number if several; None if impossible."""
    basis, idle = _basis(rows, columns)
    presses = 0
    for low, lamps, pressed in basis:
        if lit & low:
            lit, presses = lit ^ lamps, presses ^ pressed
    if lit:
        return None
    return min((presses ^ other for other in idle), key=lambda found: (found.bit_count(), found))
