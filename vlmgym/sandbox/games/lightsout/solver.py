"""Fewest presses that switch off all lamps, by linear algebra modulo 2.

The order of presses does not matter and pressing a lamp twice does nothing, so a solution is a set of cells. Sets are
bit masks of cells, row by row. Two solutions of a board differ by a set of presses that changes nothing; boards of up
to 7 x 7 have at most 2 ** 7 such sets.
"""

from __future__ import annotations

from functools import lru_cache

from vlmgym.sandbox.core.named_actions import neighbours


@lru_cache
def effects(rows: int, columns: int) -> tuple[int, ...]:
    """For each cell, return the set of lamps that a press there toggles: the lamp itself and its neighbours."""
    near = neighbours(rows, columns)
    return tuple(1 << cell | sum(1 << other for _, other in near[cell]) for cell in range(rows * columns))


@lru_cache
def _basis(rows: int, columns: int) -> tuple[tuple[tuple[int, int, int], ...], tuple[int, ...]]:
    """Return a basis of the presses' effects, by Gaussian elimination, and all sets of presses without effect.

    Each basis element is (lowest lamp, lamps toggled, presses); no two have the same lowest lamp.
    """
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
    """Return a smallest set of presses that switches off the lit lamps; None if no set does."""
    basis, idle = _basis(rows, columns)
    presses = 0
    for low, lamps, pressed in basis:
        if lit & low:
            lit, presses = lit ^ lamps, presses ^ pressed
    if lit:
        return None
    return min((presses ^ other for other in idle), key=lambda found: (found.bit_count(), found))
