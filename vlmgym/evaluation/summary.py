"""What the episodes of a run come to, from their records alone."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from vlmgym.records.episode import EpisodeRecord
from vlmgym.records.run import RunRecord, StageSummary, Summary
from vlmgym.records.store import StoredRun
from vlmgym.sandbox.core.response_format import parse_response
from vlmgym.sandbox.core.reward import Outcome


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error: sample standard deviation (n - 1) over root n; None for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def confidence_interval(
    values: Sequence[float], level: float = 0.95, *, within_one: bool
) -> tuple[float, float] | None:
    """Confidence interval of a mean.

    Wilson's interval of a share if all values are 0 or 1, else Student's t. None for fewer than two values, and for
    equal ones, from whose spread nothing follows.

    Args:
        values: What the mean is of.
        level: How often the interval is to hold the true mean.
        within_one: Whether values are from 0 to 1 by nature; if not, those that happen to be 0 or 1 are no share.
    """
    if len(values) < 2:
        return None
    if within_one and set(values) <= {0.0, 1.0}:
        return wilson(round(sum(values)), len(values), level)
    if len(set(values)) == 1:
        return None
    mean, error = mean_and_error(values)
    reach = students_t(len(values), level) * (error or 0.0)
    return mean - reach, mean + reach


def wilson(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of the share `count / of`, where `of` is at least 1."""
    from scipy.stats import binomtest  # half a second to import

    interval = binomtest(count, of).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def students_t(count: int, level: float = 0.95) -> float:
    """Half the width of Student's confidence interval of a mean over at least two values, in its standard errors."""
    from scipy.stats import t  # half a second to import

    return float(t.ppf(0.5 + level / 2, count - 1))


def summarise(episodes: Iterable[EpisodeRecord], make_run_record: int | None = None) -> Summary:
    """The summary of a game's episodes.

    Args:
        episodes: The latest record of each.
        make_run_record: Episodes that the run was to have; None: as many as there are.
    """
    tally = _GameTally()
    for episode in episodes:
        tally.add(episode)
    return tally.summary(make_run_record)


class Tally:
    """Adds up the episodes of a run, one after another: it keeps numbers of them only, so a run may be of any size."""

    def __init__(self, asked: RunRecord) -> None:
        """Begin.

        Args:
            asked: What the run was asked for: its games, and how many episodes of each.
        """
        self._asked = asked
        self._games = {game: _GameTally() for game in asked.game_ids}

    def add(self, episode: EpisodeRecord) -> None:
        """Add an episode by its latest record."""
        self._games.setdefault(episode.game.id, _GameTally()).add(episode)

    def summaries(self) -> dict[str, Summary]:
        """The summary of each game by its id."""
        return {game: tally.summary(self._asked.episodes_of(game)) for game, tally in self._games.items()}


def states_perception(response: str) -> bool:
    """Whether a response says anything of what it sees, right or wrong."""
    return "<perception" in response.casefold() and bool(parse_response(response).perceptions)


class _GameTally:
    """What a summary needs of a game's episodes. Sums are made at the end, so that they are exact in any order."""

    def __init__(self) -> None:
        self.episodes = self.turns = 0
        self.unfinished: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.numbers: dict[str, array[float]] = {}
        self.words: dict[str, Counter[str]] = {}
        self.tokens: dict[str, int] = {}
        self.stages: dict[str, array[float]] = {}
        self.served_models: Counter[str] = Counter()
        self.one_turn_each = True
        self.perception_stated = False
        self.scores, self.format, self.perception, self.exact = array("d"), array("d"), array("d"), array("d")
        self.latencies, self.costs = array("d"), array("d")

    def add(self, episode: EpisodeRecord) -> None:
        self.episodes += 1
        for turn in episode.turns:
            for name, tokens in (("prompt", turn.prompt_tokens), ("completion", turn.completion_tokens)):
                if tokens is not None:
                    self.tokens[name] = self.tokens.get(name, 0) + tokens
            if turn.latency is not None:
                self.latencies.append(turn.latency)
            if turn.cost is not None:
                self.costs.append(turn.cost)
            if turn.model is not None:
                self.served_models[turn.model] += 1
        if episode.score is None:
            self.unfinished[episode.status] += 1
        else:
            self._add_result(episode, episode.score)

    def _add_result(self, episode: EpisodeRecord, score: float) -> None:
        self.scores.append(score)
        if episode.stage is not None:
            self.stages.setdefault(episode.stage, array("d")).append(score)
        self.ends[episode.end] += 1
        for name, value in episode.metrics.items():
            if isinstance(value, str):
                self.words.setdefault(name, Counter())[value] += 1
            else:
                self.numbers.setdefault(name, array("d")).append(value)
        self.turns += len(episode.turns)
        self.one_turn_each &= len(episode.turns) == 1 and episode.status == "ended"
        for turn in episode.turns:
            self.outcomes[turn.outcome] += 1
            self.format.append(turn.reward.format)
            self.perception_stated = self.perception_stated or states_perception(turn.response)
            if turn.reward.perception is not None:
                self.perception.append(turn.reward.perception)
                self.exact.append(turn.reward.perception_exact or 0.0)

    def summary(self, make_run_record: int | None) -> Summary:
        unfinished = dict(self.unfinished)
        if make_run_record is not None and make_run_record > self.episodes:
            unfinished["not begun"] = make_run_record - self.episodes
        mean, error = mean_and_error(self.scores) if self.scores else (None, None)
        one_stage = len(self.stages) < 2
        latencies = sorted(self.latencies)

        def per_turn(total: float) -> float | None:
            return total / self.turns if self.turns else None

        return Summary(
            episodes=len(self.scores),
            unfinished=unfinished,
            turns=self.turns,
            score_mean=mean,
            score_stderr=error if one_stage else None,
            score_ci=confidence_interval(self.scores, within_one=self.one_turn_each) if one_stage else None,
            score_best=max(self.scores, default=None),
            illegal_rate=per_turn(self.outcomes[Outcome.ILLEGAL]),
            unparsable_rate=per_turn(self.outcomes[Outcome.UNPARSABLE]),
            format_mean=per_turn(math.fsum(self.format)),
            perception_mean=_mean(self.perception) if self.perception_stated else None,
            perception_exact_rate=_mean(self.exact) if self.perception_stated else None,
            ends=dict(self.ends.most_common()),
            metric_means={name: mean_and_error(values) for name, values in self.numbers.items()},
            metric_counts={name: dict(sorted(counts.items(), key=_by_number)) for name, counts in self.words.items()},
            prompt_tokens=self.tokens.get("prompt"),
            completion_tokens=self.tokens.get("completion"),
            cost=math.fsum(self.costs) if self.costs else None,
            latency_median=_at(latencies, 0.5),
            latency_p95=_at(latencies, 0.95),
            stages={name: _stage(scores) for name, scores in self.stages.items()},
            served_models=dict(self.served_models.most_common()),
        )


def _stage(scores: Sequence[float]) -> StageSummary:
    mean, error = mean_and_error(scores)
    return StageSummary(episodes=len(scores), score_mean=mean, score_stderr=error)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _at(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that this share of them does not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Words that are numbers come in the order of their values, others behind them."""
    word = item[0]
    return (float(word) if word.isdecimal() else math.inf), word


def summarize(run: StoredRun) -> dict[str, Summary]:
    """Summarize the stored episodes of each game, by game id.

    Raises:
        UsageError: A record cannot be read.
    """
    tally = Tally(run.asked)
    for episode in run.read():
        tally.add(episode)
    return tally.summaries()
