"""What the episodes of a run come to, from their records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from vlmgym.evaluation.record import EpisodeRecord, Summary
from vlmgym.sandbox.reward import Outcome

NumberT = TypeVar("NumberT", int, float)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error: sample standard deviation (n - 1) over root n; None for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def confidence_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval of a mean.

    Wilson's interval of a share if all values are 0 or 1, else Student's t. None for fewer than two values, and for
    equal ones, from whose spread nothing follows.
    """
    from scipy.stats import binomtest, t  # half a second to import

    if len(values) < 2:
        return None
    if set(values) <= {0.0, 1.0}:
        interval = binomtest(round(sum(values)), len(values)).proportion_ci(level, method="wilson")
        return float(interval.low), float(interval.high)
    if len(set(values)) == 1:
        return None
    mean, error = mean_and_error(values)
    reach = float(t.ppf(0.5 + level / 2, len(values) - 1)) * (error or 0.0)
    return mean - reach, mean + reach


def summarise(episodes: Sequence[EpisodeRecord], asked_for: int | None = None) -> Summary:
    """The summary of a game's episodes.

    Args:
        episodes: The latest record of each.
        asked_for: Episodes that the run was to have; None: as many as there are.
    """
    results = [episode for episode in episodes if episode.score is not None]
    scores = [episode.score for episode in episodes if episode.score is not None]
    turns = [turn for episode in results for turn in episode.turns]
    asked = [turn for episode in episodes for turn in episode.turns]
    outcomes = Counter(turn.outcome for turn in turns)
    mean, error = mean_and_error(scores) if scores else (None, None)
    numbers: dict[str, list[float]] = {}
    words: dict[str, Counter[str]] = {}
    for episode in results:
        for name, value in episode.metrics.items():
            if isinstance(value, str):
                words.setdefault(name, Counter())[value] += 1
            else:
                numbers.setdefault(name, []).append(value)
    seen = [turn.reward for turn in turns if turn.reward.perception is not None]
    latencies = sorted(turn.latency for turn in asked if turn.latency is not None)

    unfinished = Counter[str](episode.status for episode in episodes if episode.score is None)
    if asked_for is not None and asked_for > len(episodes):
        unfinished["not begun"] = asked_for - len(episodes)

    def per_turn(total: float) -> float | None:
        return total / len(turns) if turns else None

    return Summary(
        episodes=len(results),
        unfinished=dict(unfinished),
        turns=len(turns),
        score_mean=mean,
        score_se=error,
        score_ci=confidence_interval(scores),
        score_best=max(scores, default=None),
        illegal_rate=per_turn(outcomes[Outcome.ILLEGAL]),
        unparsable_rate=per_turn(outcomes[Outcome.UNPARSABLE]),
        format_mean=per_turn(math.fsum(turn.reward.format for turn in turns)),
        perception_mean=math.fsum(part.perception or 0 for part in seen) / len(seen) if seen else None,
        perception_exact_rate=math.fsum(part.perception_exact or 0 for part in seen) / len(seen) if seen else None,
        ends=dict(Counter(episode.end for episode in results).most_common()),
        metric_means={name: mean_and_error(values) for name, values in numbers.items()},
        metric_counts={name: dict(sorted(counts.items(), key=_by_number)) for name, counts in words.items()},
        prompt_tokens=_total([turn.prompt_tokens for turn in asked]),
        completion_tokens=_total([turn.completion_tokens for turn in asked]),
        cost=_total([turn.cost for turn in asked]),
        latency_median=_at(latencies, 0.5),
        latency_p95=_at(latencies, 0.95),
    )


def without_words(episode: EpisodeRecord) -> EpisodeRecord:
    """The record without what is long and no part of a summary, so that many fit into memory."""
    shorter: dict[str, object] = {"prompt": "", "response": "", "state": None, "reasoning": None, "info": {}}
    turns = tuple(turn.model_copy(update=shorter) for turn in episode.turns)
    return episode.model_copy(update={"turns": turns, "final_state": None})


def _total(values: Sequence[NumberT | None]) -> NumberT | None:
    """Sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _at(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that this share of them does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Words that are numbers come in the order of their values, others behind them."""
    word = item[0]
    return (float(word) if word.isdecimal() else math.inf), word
