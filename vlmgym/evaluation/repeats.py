"""`vlmgym repeats RUN...`: summarise runs that repeat the same seeds: best and worst of k, pass@k, and variance due to
sampling.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vlmgym.errors import UsageError
from vlmgym.evaluation.config import RunsOptions
from vlmgym.evaluation.saved_runs import SavedRun, read_runs
from vlmgym.evaluation.tables import PageTable
from vlmgym.runs.record import EpisodeRecord, GameRecord
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.reward import step_infos
from vlmgym.statistics import clustered_interval, confidence_interval
from vlmgym.terminal import make_console


@dataclass(frozen=True, kw_only=True)
class RepeatsConfig(RunsOptions):
    """Options of `vlmgym repeats`."""

    success: float | None = None
    """Count episodes with at least this score as 1 and all others as 0. None means the scores themselves."""
    format: Literal["text", "json"] = "text"
    """A table, or JSON with a list of results."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.success is not None and math.isnan(self.success):
            raise UsageError("success must be a number, got nan")


Interval = tuple[float, float]


@dataclass(frozen=True)
class Repeats:
    """Results of a policy that played the same seeds of a game several times.

    Attributes:
        game: Id of the game.
        policy: Name of the policy or model.
        seeds: Number of seeds with a result in every run.
        samples: Number of runs, that is of episodes per seed.
        mean: Mean score.
        interval: Confidence interval of the mean, which allows for seeds with different expected scores: Student's t
            from the means of the seeds, or `clustered_interval` for scores of 0 and 1. None if it is not defined.
        best_of: Expected best score of k episodes with the same seed, by k. For scores of 0 and 1, this is pass@k.
        worst_of: Expected worst score of k episodes with the same seed, by k. For scores of 0 and 1, this is pass^k.
        best_intervals: Confidence interval of each `best_of`, like `interval`.
        worst_intervals: Confidence interval of each `worst_of`.
        between_seeds: Variance of the expected score between seeds.
        within_seeds: Variance of the score between episodes with the same seed; None with one run.
        efficiency: Mean, over solved episodes, of the fewest actions that solve them divided by the actions taken; None
            if the game's oracle does not know the fewest, or if no episode was solved.
    """

    game: str
    policy: str
    seeds: int
    samples: int
    mean: float
    interval: Interval | None
    best_of: dict[int, float]
    worst_of: dict[int, float]
    best_intervals: dict[int, Interval | None]
    worst_intervals: dict[int, Interval | None]
    between_seeds: float
    within_seeds: float | None
    efficiency: float | None

    @property
    def sampling_share(self) -> float | None:
        """Share of the variance of an episode's score that is due to sampling; None if it does not vary."""
        if self.within_seeds is None or not (total := self.between_seeds + self.within_seeds):
            return None
        return self.within_seeds / total


def best_of(scores: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the expected highest of k scores of each seed, drawn without replacement.

    For scores of 0 and 1, their mean is the unbiased estimate of pass@k by Chen et al. (2021,
    https://arxiv.org/abs/2107.03374); the best of k negated scores is the negated worst, for which it is pass^k of Yao
    et al. (2024, https://arxiv.org/abs/2406.12045).

    Args:
        scores: Shape (seeds, samples).
        k: 1 to the number of samples.
    """
    samples = scores.shape[1]
    highest = [math.comb(rank, k - 1) / math.comb(samples, k) for rank in range(samples)]  # chance of each rank
    values: NDArray[np.float64] = np.sort(scores, axis=1) @ highest
    return values


def variances(scores: NDArray[np.float64]) -> tuple[float, float | None]:
    """Split the variance of scores, shape (seeds, samples), into its parts between and within seeds.

    These are the estimates of a one-way analysis of variance with random effects; a negative first one becomes 0.
    """
    samples = scores.shape[1]
    between = float(scores.mean(axis=1).var(ddof=1)) if len(scores) > 1 else 0.0
    if samples == 1:
        return between, None
    within = float(scores.var(axis=1, ddof=1).mean())
    return max(0.0, between - within / samples), within


def group_repeats(runs: Sequence[SavedRun], success: float | None = None) -> list[Repeats]:
    """Compute the results of each game and policy, over the seeds with a result in all runs that are equal otherwise.

    Args:
        runs: Runs, of which those with equal games, policies (except `sample_seed`) and prompts belong together.
        success: Least score that counts as 1; None to use the scores themselves.

    Raises:
        UsageError: A run has a curriculum, two runs have different seeds, or no seed has a result in all runs.
    """
    groups: dict[str, list[tuple[SavedRun, GameRecord]]] = {}
    for run in runs:
        if run.config.curriculum is not None:
            raise UsageError(f"{run.folder.folder} follows a curriculum, so its seeds do not repeat a game")
        for game in run.config.games:
            groups.setdefault(_settings(run, game), []).append((run, game))
    return [_repeats([run for run, _ in group], group[0][1], success) for group in groups.values()]


def _settings(run: SavedRun, game: GameRecord) -> str:
    """Return what must be equal in repeats."""
    config = run.config
    policy = config.policy.model_dump(mode="json")
    policy["options"].pop("sample_seed", None)
    return json.dumps([policy, game.model_dump(mode="json"), asdict(config.prompts), config.max_turns], sort_keys=True)


def _repeats(runs: Sequence[SavedRun], game: GameRecord, success: float | None) -> Repeats:
    results = [
        {stored.seed: stored for stored in run.stored.episodes if stored.game == game.id and stored.score is not None}
        for run in runs
    ]
    seeds = sorted(set.intersection(*map(set, results)))
    label = runs[0].config.policy.model or runs[0].config.policy.name
    if not seeds:
        raise UsageError(f"no seed of {game.id} has a result in all {len(runs)} runs of {label}")
    scores = np.array([[episodes[seed].score for episodes in results] for seed in seeds], float)
    if success is not None:
        scores = (scores >= success).astype(float)
    ks = sorted({*(2**power for power in range(len(runs).bit_length())), len(runs)})
    best = {k: best_of(scores, k) for k in ks}
    worst = {k: 0.0 - best_of(-scores, k) for k in ks}
    shares = success is not None
    between, within = variances(scores)
    efficiencies = [
        efficiency
        for seed in seeds
        for episodes in results
        if (efficiency := _efficiency(game, episodes[seed].read())) is not None
    ]
    return Repeats(
        game=game.id,
        policy=label,
        seeds=len(seeds),
        samples=len(runs),
        mean=float(scores.mean()),
        interval=_interval(scores.mean(axis=1), len(runs), shares),
        best_of={k: float(values.mean()) for k, values in best.items()},
        worst_of={k: float(values.mean()) for k, values in worst.items()},
        best_intervals={k: _interval(values, len(runs) / k, shares) for k, values in best.items()},
        worst_intervals={k: _interval(values, len(runs) / k, shares) for k, values in worst.items()},
        between_seeds=between,
        within_seeds=within,
        efficiency=float(np.mean(efficiencies)) if efficiencies else None,
    )


def _interval(values: NDArray[np.float64], size: float, shares: bool) -> Interval | None:
    """Return the interval of the mean over seeds.

    Values that are shares by definition count as shares of `size` observations, which is n / k for all k of n samples:
    their variance is at most that of n / k independent observations (Hoeffding, 1948).
    """
    if shares:
        return clustered_interval((values * size).tolist(), [size] * len(values))
    return confidence_interval(values.tolist(), unit_interval=False)


def _efficiency(record: GameRecord, episode: EpisodeRecord) -> float | None:
    """Divide the fewest actions that solve an episode by those taken; None if unknown or not solved."""
    game = record.game()
    if not game.optimal_oracle or episode.score is None or not math.isclose(episode.score, 1):
        return None
    shortest = _shortest(game, episode.seed)
    taken = len(step_infos(game, [turn.info for turn in episode.turns]))
    return None if shortest is None else shortest / taken


@lru_cache(maxsize=4096)
def _shortest(game: Game[Any, Any], seed: int) -> int | None:
    """Return the number of actions with which the oracle ends an episode; None if it gives up."""
    episode: Episode[Any, Any] = Episode(game, seed)
    while episode.ended is None:
        action = episode.game.best_action(episode.state)
        if action is None:
            return None
        episode.act(action)
    return episode.turn


def repeats_tables(results: Sequence[Repeats], success: float | None) -> list[PageTable]:
    """Make a table with a row for each game and policy, and one of the best and worst of several samples, if any."""
    means, extremes = [], []
    for result in results:
        name, share = f"{result.game}, {result.policy}", result.sampling_share
        means.append(
            (
                name,
                f"{result.seeds} x {result.samples}",
                _shown(result.mean, result.interval),
                "" if share is None else f"{share:.0%}",
                "" if result.efficiency is None else f"{result.efficiency:.0%}",
            )
        )
        for k in [*result.best_of][1:]:  # the best of one is the mean
            best = _shown(result.best_of[k], result.best_intervals[k])
            extremes.append((name, f"{k}", best, _shown(result.worst_of[k], result.worst_intervals[k])))
    scored = "scores" if success is None else f"1 for a score of at least {success:g}, else 0"
    note = f"Means of {scored}, with 95% intervals over seeds. Sampling: share of the variance that is not due to the "
    note += "seeds. Efficiency: fewest actions / actions taken, in solved episodes."
    tables = [PageTable("Repeats", ("", "seeds x samples", "mean", "sampling", "efficiency"), means, note)]
    if extremes:
        note = "Of k episodes with the same seed: for scores of 0 and 1, best is pass@k and worst is pass^k."
        tables.append(PageTable("Best and worst of k", ("", "k", "best of k", "worst of k"), extremes, note))
    return tables


def _shown(value: float, interval: Interval | None) -> str:
    return f"{value:.4g}" + ("" if interval is None else " ({:.4g} to {:.4g})".format(*interval))


def repeats(config: RepeatsConfig) -> list[Repeats]:
    """Print the results of runs that repeat each other, and return them."""
    results = group_repeats(read_runs(config.runs, data=config.data), config.success)
    console = make_console()
    if config.format == "json":
        print(json.dumps([asdict(result) | {"sampling_share": result.sampling_share} for result in results], indent=2))
    else:
        for table in repeats_tables(results, config.success):
            console.print(table.rich())
            console.print(table.note)
    return results
