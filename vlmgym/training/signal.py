"""What the responses of a step can teach, and whether the model sees its images; the same for all trainers.

How much a step can teach are metrics of each step, and a sentence at the end of a run.

Every `SIGHT_INTERVAL` steps, the log-probabilities of some responses are computed again with other images: those of
another prompt or, under TRL and verl, inverted ones. Images that are lost on the way to the model leave
all of them unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from vlmgym.runs.record import TurnRecord
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import mean_and_stderr
from vlmgym.training.algorithm import TrainingError, group_indices

COSINE_INTERVAL = 5
"""Steps between measurements of `gradient_cosine`, which split a batch in two and so cost some time."""
WINDOW = 20
"""Number of last steps that `describe_signal` averages over."""
FEW_INFORMATIVE = 0.1
"""If fewer groups are informative, a step learns from almost nothing."""
NEARLY_ALL = 0.95
"""If more responses are right from the start, there is little to gain."""
SIGHT_INTERVAL = 20
"""Steps between checks of the images; the first is in the first step."""
MAX_RESPONSES = 8
"""Maximum number of responses in a check of the images."""
BLIND = 1e-6
"""Largest change of a response's log-probability, in nats, that is no change."""


def response_metrics(turns: Sequence[TurnRecord]) -> dict[str, float]:
    """Average the reward, its parts, and the fraction of true statements, and compute the fraction of each outcome."""
    names = ("total", "game", "format", "perception", "perception_exact", "prediction", "prediction_exact")
    numbers = {name: [getattr(turn.reward, name) for turn in turns] for name in names}
    numbers["reasoning"] = [turn.reasoning_accuracy for turn in turns]
    numbers |= {outcome.value: [float(turn.outcome == outcome) for turn in turns] for outcome in Outcome}
    present = {name: [value for value in values if value is not None] for name, values in numbers.items()}
    return {name: float(np.mean(values)) for name, values in present.items() if values}


def group_metrics(groups: Sequence[Hashable], episodes: Sequence[Sequence[TurnRecord]]) -> dict[str, float]:
    """Compute metrics of the first responses of episodes, which are to the same state within a group.

    A response is right if its action was played and the game rewarded it. Metrics of groups are left out if all groups
    have one episode.

    Returns:
        success: Fraction of right responses.
        misread: Fraction of the right responses whose `<perception>` has a mistake; 0 without right responses.
        misreasoned: Fraction of the right responses with a false statement, among those with statements that can be
            checked; 0 if these are all wrong responses, left out if there are none.
        pass_at_n: Fraction of states with a right response among the n of the group.
        harmonic_success: Harmonic mean over states of the fraction of right responses. Whole games follow it more than
            `success`, because a state that is never solved ends a game. A state without a right response counts as half
            a response.
        informative_fraction: Fraction of episodes in groups with unequal total rewards. On single turns, GRPO learns
            nothing from the other groups.
    """
    answers = [turns[0] for turns in episodes]
    right = [answer.is_rewarded for answer in answers]
    metrics = {"success": float(np.mean(right))}
    accuracies = {
        "misread": [answer.reward.perception_exact for answer in answers],
        "misreasoned": [answer.reasoning_accuracy for answer in answers],
    }
    for name, values in accuracies.items():
        if any(value is not None for value in values):
            mistakes = [value < 1 for value, rewarded in zip(values, right) if rewarded and value is not None]
            metrics[name] = float(np.mean(mistakes)) if mistakes else 0.0
    members = group_indices(groups)
    if len(members) == len(groups):
        return metrics
    rates = [float(np.mean([right[index] for index in indices])) for indices in members]
    floors = [0.5 / (len(indices) + 0.5) for indices in members]
    totals = [sum(turn.reward.total for turn in turns) for turns in episodes]
    informative = [np.ptp([totals[index] for index in indices]) > 1e-9 for indices in members]
    return {
        **metrics,
        "pass_at_n": float(np.mean([rate > 0 for rate in rates])),
        "harmonic_success": float(1 / np.mean([1 / max(rate, floor) for rate, floor in zip(rates, floors)])),
        "informative_fraction": float(np.average(informative, weights=[*map(len, members)])),
    }


def describe_signal(rows: Sequence[Mapping[str, float]], group_size: int) -> list[str]:
    """Describe the signal of a run in a line, and if the run gained nothing, say so and what to try in another.

    Most metrics are means over the last steps; `gradient_cosine` varies so much from step to step that it is averaged
    over all steps, with its standard error.
    """

    rows = [row for row in rows if "success" in row]

    def mean(name: str) -> float | None:
        values = [row[name] for row in rows[-WINDOW:] if name in row]
        return float(np.mean(values)) if values else None

    parts = [
        (f"right responses {{:.1%}}, pass@{group_size} {{:.1%}}", "success", "pass_at_n"),
        ("harmonic mean {:.1%}", "harmonic_success"),
        ("{:.1%} of the right ones misread the image", "misread"),
        ("{:.1%} of them with statements state something false", "misreasoned"),
        ("{:.0%} of groups informative", "informative_fraction"),
    ]
    shown = [text.format(*values) for text, *names in parts if None not in (values := [*map(mean, names)])]
    line = f"last {min(WINDOW, len(rows))} steps: {', '.join(shown)}"
    cosines = [row["gradient_cosine"] for row in rows if "gradient_cosine" in row]
    if len(cosines) > 1:
        line += "; gradient cosine {:.3f} +- {:.3f}".format(*mean_and_stderr(cosines))
    lines = [line] if shown else []
    quarter = len(rows) // 4
    early, late = ([row["success"] for row in part] for part in (rows[:quarter], rows[len(rows) - quarter :]))
    if quarter < 3:
        return lines
    (before, error_before), (after, error_after) = mean_and_stderr(early), mean_and_stderr(late)
    if after - before > 2 * np.hypot(error_before or 0.0, error_after or 0.0):
        return lines
    informative = mean("informative_fraction")
    if before > NEARLY_ALL:
        advice = "hardly any response was wrong from the start: choose harder states"
    elif informative is not None and informative < FEW_INFORMATIVE:
        advice = "almost all groups have equal rewards: choose states that the model solves sometimes, or larger groups"
    else:
        advice = (
            "the signal may be too small for the learning rate: try a lower one, one that decays or larger batches, "
            "and compare with permuted rewards"
        )
    return [*lines, f"no gain: {before:.1%} right responses in the first quarter, {after:.1%} in the last; {advice}"]


def image_swaps(shapes: Sequence[Hashable], contents: Sequence[Hashable]) -> dict[int, int]:
    """Pair rows with rows that have other images of the same shapes.

    Args:
        shapes: Number and shapes of each row's images.
        contents: Identity of each row's pixels, such as a hash.

    Returns:
        The other row, by row; at most `MAX_RESPONSES`.
    """
    swaps: dict[int, int] = {}
    for row, (shape, content) in enumerate(zip(shapes, contents)):
        others = (other for other in range(len(shapes)) if shapes[other] == shape and contents[other] != content)
        if (other := next(others, None)) is not None:
            swaps[row] = other
        if len(swaps) == MAX_RESPONSES:
            break
    return swaps


def sight_metrics(gaps: Sequence[float]) -> dict[str, float]:
    """Return the metric of a check: the mean change of a response's log-probability in nats; none without changes.

    Changes that are not finite show nothing about the images, and do not count.

    Raises:
        TrainingError: No log-probability depends on the images.
    """
    finite = [gap for gap in gaps if math.isfinite(gap)]
    if not finite:
        return {}
    if max(finite) <= BLIND:
        raise TrainingError(
            "the model does not see its images: with other images, responses have the same log-probabilities"
        )
    return {"sight/logprob_gap": float(np.mean(finite))}
