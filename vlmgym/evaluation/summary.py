"""What the episodes of a run come to, from their records alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from vlmgym.evaluation.record import EpisodeRecord, Summary
from vlmgym.sandbox.reward import Outcome


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error: sample standard deviation (n - 1) over root n; None for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def summarise(episodes: Sequence[EpisodeRecord], seconds: float) -> Summary:
    """The summary of at least one episode, played in so many seconds."""
    turns = [turn for episode in episodes for turn in episode.turns]
    outcomes = Counter(turn.outcome for turn in turns)
    mean, error = mean_and_error([episode.score for episode in episodes])
    numbers: dict[str, list[float]] = {}
    words: dict[str, Counter[str]] = {}
    for episode in episodes:
        for name, value in episode.metrics.items():
            if isinstance(value, str):
                words.setdefault(name, Counter())[value] += 1
            else:
                numbers.setdefault(name, []).append(value)

    seen = [turn.reward for turn in turns if turn.reward.perception is not None]

    def per_turn(total: float) -> float:
        return total / len(turns) if turns else 0.0

    return Summary(
        episodes=len(episodes),
        turns=len(turns),
        score_mean=mean,
        score_se=error,
        score_best=max(episode.score for episode in episodes),
        illegal_rate=per_turn(outcomes[Outcome.ILLEGAL]),
        unparsable_rate=per_turn(outcomes[Outcome.UNPARSABLE]),
        format_mean=per_turn(math.fsum(turn.reward.format for turn in turns)),
        perception_mean=math.fsum(part.perception or 0 for part in seen) / len(seen) if seen else None,
        perception_exact_rate=math.fsum(part.perception_exact or 0 for part in seen) / len(seen) if seen else None,
        ends=dict(Counter(episode.end for episode in episodes).most_common()),
        metric_means={name: mean_and_error(values) for name, values in numbers.items()},
        metric_counts={name: dict(sorted(counts.items(), key=_by_number)) for name, counts in words.items()},
        seconds=seconds,
        turns_per_second=len(turns) / seconds if seconds > 0 else 0.0,
    )


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Words that are numbers come in the order of their values, others behind them."""
    word = item[0]
    return (float(word) if word.isdecimal() else math.inf), word
