"""Format estimates."""

from __future__ import annotations

from benchmarks.calibration.estimate import Estimate

SHARES = frozenset({"ended", "share legal"})
"""Measures that are formatted as percentages."""
LOPSIDED = 1.1
"""Ratio of the longer to the shorter side of an interval above which both ends are written instead of ±."""


def written(measure: str, value: Estimate) -> str:
    """Format a measure of `play` with its interval."""
    return percent(value) if measure in SHARES else mean(value)


def mean(value: Estimate) -> str:
    """Format as `17.8 ± 0.14`, or as `0.07 (0.042 to 0.114)` if the interval is asymmetric."""
    below, above = value.mean - value.low, value.high - value.mean
    if max(below, above) > LOPSIDED * min(below, above):
        return f"{number(value.mean)} ({number(value.low, 2)} to {number(value.high, 2)})"
    return f"{number(value.mean)} ± {number(above, 2)}" if above else number(value.mean)


def percent(value: Estimate) -> str:
    """Format as `94.7% (93.7 to 95.5)`."""
    if value.low == value.high:
        return f"{number(100 * value.mean)}%"
    return f"{number(100 * value.mean)}% ({number(100 * value.low)} to {number(100 * value.high)})"


def number(value: float, digits: int = 3) -> str:
    """Round to significant digits, but keep all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
