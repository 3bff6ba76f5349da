"""Paired comparison of two runs over the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from vlmgym.errors import UsageError, short_repr
from vlmgym.evaluation.summary import states_perception, turn_values
from vlmgym.runs.record import EpisodeRecord, RunRecord, changes
from vlmgym.sandbox.core.prompt import PromptConfig
from vlmgym.sandbox.core.reward import Outcome, RewardConfig
from vlmgym.statistics import LEVEL, PairedDifference, Share, mean, paired_difference, share

FactsT = TypeVar("FactsT")
RunT = TypeVar("RunT")


class GameComparison(BaseModel):
    """Comparison of one game.

    Attributes:
        pairs: Number of seeds with a result in both runs.
        left_out: Number of seeds left out, by reason; a result may be only in one of the runs.
        wins: Pairs with a higher score in the first run.
        ties: Pairs with equal scores.
        losses: Pairs with a lower score in the first run.
        metrics: Difference in each metric, by name, over the pairs where both runs have it.
    """

    model_config = ConfigDict(frozen=True)

    pairs: int
    left_out: dict[str, int]
    wins: Share
    ties: Share
    losses: Share
    metrics: dict[str, PairedDifference]


class Comparison(BaseModel):
    """Comparison of two runs: `compare.json`.

    Attributes:
        compare: Version of this format.
        labels: Labels of the runs.
        runs: Configurations of the runs.
        notes: Sentences about games left out, and about differences between the runs other than the policy.
        level: Confidence level of all intervals.
        games: Comparison of each game with at least one seed that has results in both runs, by id.
    """

    model_config = ConfigDict(frozen=True)

    compare: Literal[1] = 1
    labels: tuple[str, str]
    runs: tuple[RunRecord, RunRecord]
    notes: tuple[str, ...]
    level: float = LEVEL
    games: dict[str, GameComparison]


def check_comparable(first: RunRecord, second: RunRecord, labels: tuple[str, str]) -> list[str]:
    """List the differences between two runs, other than the policy, that do not rule out a comparison.

    Raises:
        UsageError: The runs differ in a way that rules out a comparison.
    """
    games = [{game.id: game.config for game in run.games} for run in (first, second)]
    common = [game for game in games[0] if game in games[1]]
    if not common:
        raise UsageError(f"the runs have no game in common: {' and '.join(map(', '.join, games))}")
    settings = [
        {"curriculum": run.curriculum and run.curriculum.file, "max_turns": run.max_turns}
        | {game: configs[game] for game in common}
        for run, configs in zip((first, second), games)
    ]
    if different := _differences(settings[0], settings[1], labels):
        raise UsageError(f"cannot compare the runs: they differ in {different}")
    notes = []
    for label, configs in zip(labels, games):
        if alone := [game for game in configs if game not in common]:
            notes.append(f"{', '.join(alone)} is left out: only in {label}")
    if different := _differences(first.reward.model_dump(), second.reward.model_dump(), labels):
        notes.append(
            f"reward settings differ ({different}), so total rewards are not compared; vlmgym rescore can apply the "
            "same settings"
        )
    for name, *values in changes(asdict(first.prompts), asdict(second.prompts)):
        before, after = ("each game's default" if value is None else value for value in values)
        notes.append(f"{name} is {before} in {labels[0]} and {after} in {labels[1]}")
    match _changed_prompts(first, second):
        case "observation", *values if {*values} == {"image", "text"}:
            notes.append("the policy is the same, so the difference in score is the perception gap")
        case "images", *values if "true" in values:
            notes.append("the policy is the same, so the difference in score is the sight gap")
    if different := _differences(first.versions, second.versions, labels):
        notes.append(f"versions differ ({different})")
    return notes


def _changed_prompts(first: RunRecord, second: RunRecord) -> tuple[str, object, object] | None:
    """Return the one setting of prompts that differs, with both values; None if more differ, or if the policy does."""
    different = [*changes(asdict(first.prompts), asdict(second.prompts))]
    return different[0] if len(different) == 1 and first.policy == second.policy else None


def with_controls(
    runs: Sequence[RunT], key: Callable[[RunT], tuple[Hashable, PromptConfig]]
) -> Iterator[tuple[RunT, RunT | None, RunT | None]]:
    """Yield each run with its controls, which show text and grey images instead of images; None where there is none.

    The perception gap is the score with text minus that with images, the sight gap that with images minus that with
    grey images.

    Args:
        runs: The runs.
        key: Function that returns what must be equal in a run and its controls, and the prompts of the run.
    """
    keys = [*map(key, runs)]
    known = dict(zip(keys, runs))
    for run, (settings, prompts) in zip(runs, keys):
        text = grey = None
        if prompts.observation == "image" and prompts.images == "true":
            grey = known.get((settings, replace(prompts, images="blank")))
            if not prompts.goal_image:  # descriptions have no goal image
                text = known.get((settings, replace(prompts, observation="text")))
        yield run, text, grey


def score_gaps(
    first: Mapping[tuple[str, int], float], second: Mapping[tuple[str, int], float], game: str
) -> list[float]:
    """Return the differences in score between two runs of a game, over the seeds that both have."""
    return [score - second[key] for key, score in first.items() if key[0] == game and key in second]


def games_without_sight(first: RunRecord, second: RunRecord, games: Mapping[str, GameComparison]) -> list[str]:
    """List the games whose score with the true images is not significantly above that with grey images.

    Empty unless the runs differ only in the images, which are true in one and grey in the other.
    """
    match _changed_prompts(first, second):
        case "images", "true", "blank":
            sign = 1
        case "images", "blank", "true":
            sign = -1
        case _:
            return []
    gaps = {game: comparison.metrics["score"] for game, comparison in games.items()}
    return [game for game, gap in gaps.items() if gap.interval is None or min(sign * end for end in gap.interval) <= 0]


def compare_games(
    first: Iterable[EpisodeRecord], second: Iterable[EpisodeRecord], labels: tuple[str, str]
) -> dict[str, GameComparison]:
    """Compare every game with a result in both runs for the same seed and stage; keep no records in memory."""
    a, b = _read(first), _read(second)
    same_reward = len({result.reward for run in (a, b) for result in run.values()}) == 1
    common = [key for key in a if key in b]
    moved = {key for key in common if a[key].stage != b[key].stage}
    comparisons = {}
    for game in dict.fromkeys(game for game, _ in a):
        pairs = [(a[key].metrics, b[key].metrics) for key in common if key[0] == game and key not in moved]
        if pairs:
            left_out = {
                f"only in {labels[0]}": sum(key[0] == game for key in a.keys() - b.keys()),
                f"only in {labels[1]}": sum(key[0] == game for key in b.keys() - a.keys()),
                "at different stages": sum(key[0] == game for key in moved),
            }
            left_out = {reason: count for reason, count in left_out.items() if count}
            comparisons[game] = _compare(pairs, left_out, same_reward)
    return comparisons


def _compare(
    pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]], left_out: dict[str, int], same_reward: bool
) -> GameComparison:
    names = dict.fromkeys(name for pair in pairs for metrics in pair for name in metrics)
    if not same_reward:
        del names["reward"]
    metrics = {}
    for name in names:
        values = [(a[name], b[name]) for a, b in pairs if name in a and name in b]
        if values:
            metrics[name] = paired_difference(*map(list, zip(*values)))
    signs = [(a["score"] > b["score"]) - (a["score"] < b["score"]) for a, b in pairs]
    wins, ties, losses = (share(signs.count(sign), len(pairs)) for sign in (1, 0, -1))
    return GameComparison(
        pairs=len(pairs),
        left_out=left_out,
        wins=wins,
        ties=ties,
        losses=losses,
        metrics=metrics,
    )


class _Result(NamedTuple):
    """Metrics of an episode by name, and what must be equal in both runs."""

    reward: RewardConfig
    stage: str | None
    metrics: dict[str, float]


def _read(episodes: Iterable[EpisodeRecord]) -> dict[tuple[str, int], _Result]:
    """Read the results of a run, by game and seed."""
    results = read_metrics(
        (episode for episode in episodes if episode.score is not None),
        lambda episode: (episode.key, episode.reward, episode.stage),
    )
    return {key: _Result(reward, stage, metrics) for (key, reward, stage), metrics in results}


def read_metrics(
    episodes: Iterable[EpisodeRecord], facts: Callable[[EpisodeRecord], FactsT]
) -> list[tuple[FactsT, dict[str, float]]]:
    """Return the `facts` and the metrics of each episode; keep no records in memory.

    Games without a `<perception>` in any response get no perception metrics.
    """
    results = []
    stated: set[str] = set()
    for episode in episodes:
        if any(states_perception(turn.response) for turn in episode.turns):
            stated.add(episode.game.id)
        results.append((episode.game.id, facts(episode), _metrics(episode)))
    for game, _, metrics in results:
        if game not in stated:
            for name in PERCEPTION:
                metrics.pop(name, None)
    return [(fact, metrics) for _, fact, metrics in results]


def _metrics(episode: EpisodeRecord) -> dict[str, float]:
    """Compute the numeric metrics of an episode; rates are fractions of its turns."""
    turns = episode.turns
    metrics = {name: float(value) for name, value in episode.metrics.items() if not isinstance(value, str)}
    if episode.score is not None:
        metrics["score"] = episode.score
    metrics["turns"] = float(len(turns))
    metrics["reward"] = episode.total_reward
    if turns:
        for outcome in (Outcome.ILLEGAL, Outcome.UNPARSABLE):
            metrics[f"{outcome.value} rate"] = sum(turn.outcome is outcome for turn in turns) / len(turns)
    values = [turn_values(turn) for turn in turns]
    for name in dict.fromkeys(name for turn in values for name in turn):
        metrics[name.replace("_", " ")] = mean([turn[name] for turn in values if name in turn]) or 0.0
    return metrics


PERCEPTION = ("perception", "perception exact")
ORDER = (
    *("score", "reward", "turns", "illegal rate", "unparsable rate", "format", *PERCEPTION),
    *("prediction", "prediction exact", "reasoning", "reasoning exact"),
)
"""Metrics of all games, in order; game-specific metrics follow."""
RATES = ORDER[3:]


def _differences(first: object, second: object, labels: tuple[str, str]) -> str:
    return "; ".join(
        f"{name}: {short_repr(a)} in {labels[0]}, {short_repr(b)} in {labels[1]}"
        for name, a, b in changes(first, second)
    )
