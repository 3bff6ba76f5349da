"""Summaries of runs, computed from their records."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from vlmgym.runs.record import (
    EpisodeRecord,
    RunRecord,
    RunSummary,
    StageSummary,
    Summary,
    TurnRecord,
)
from vlmgym.runs.store import StoredRun
from vlmgym.sandbox.core.response_format import parse_response
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval, mean, mean_and_stderr


def states_perception(response: str) -> bool:
    """Return whether a response has a `<perception>`, correct or not."""
    return "<perception" in response.casefold() and bool(parse_response(response).perceptions)


def turn_values(turn: TurnRecord) -> dict[str, float]:
    """Return the values of a turn that are averaged over turns, by name, without those that it does not have."""
    names = ("format", "perception", "perception_exact", "prediction", "prediction_exact")
    values = {name: value for name in names if (value := getattr(turn.reward, name)) is not None}
    if (share := turn.reasoning_accuracy) is not None:
        values |= {"reasoning": share, "reasoning_exact": float(share == 1)}
    return values


def _numbers() -> array[float]:
    return array("d")


class GameTally:
    """Running totals of a game. Sums are computed at the end, exactly and independently of the order of episodes.

    Attributes:
        counts: Numbers of episodes or turns by what happened, and of tokens by kind.
        values: Scores, and values of those turns that have them.
        metrics: Values of each numeric metric of the game.
        words: Numbers of episodes with each value of the other metrics.
        stages: Scores at each stage of a curriculum.
        one_turn_each: Whether each episode ended after one turn.
        perception_stated: Whether a response has a `<perception>`.
    """

    def __init__(self) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.values: defaultdict[str, array[float]] = defaultdict(_numbers)
        self.metrics: defaultdict[str, array[float]] = defaultdict(_numbers)
        self.words: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.stages: defaultdict[str, array[float]] = defaultdict(_numbers)
        self.one_turn_each = True
        self.perception_stated = False

    def add(self, episode: EpisodeRecord) -> None:
        """Add the latest record of an episode."""
        for turn in episode.turns:
            for kind, tokens in (("prompt", turn.prompt_tokens), ("completion", turn.completion_tokens)):
                if tokens is not None:
                    self.counts["tokens"][kind] += tokens
            self._add_values(latency=turn.latency, cost=turn.cost)
            if turn.model is not None:
                self.counts["served_models"][turn.model] += 1
        if episode.score is None:
            self.counts["unfinished"][episode.status] += 1
        else:
            self._add_result(episode, episode.score)

    def add_totals(self, other: GameTally) -> None:
        """Add the totals of other episodes."""
        self.one_turn_each &= other.one_turn_each
        self.perception_stated |= other.perception_stated
        for counters, others in ((self.counts, other.counts), (self.words, other.words)):
            for name, counter in others.items():
                counters[name].update(counter)
        for arrays, more in ((self.values, other.values), (self.metrics, other.metrics), (self.stages, other.stages)):
            for name, numbers in more.items():
                arrays[name].extend(numbers)

    def _add_result(self, episode: EpisodeRecord, score: float) -> None:
        self._add_values(score=score)
        if episode.stage is not None:
            self.stages[episode.stage].append(score)
        self.counts["end_reasons"][episode.end_reason] += 1
        for name, value in episode.metrics.items():
            if isinstance(value, str):
                self.words[name][value] += 1
            else:
                self.metrics[name].append(value)
        self.one_turn_each &= episode.is_single_turn
        for turn in episode.turns:
            self.counts["outcomes"][turn.outcome] += 1
            self.perception_stated = self.perception_stated or states_perception(turn.response)
            self._add_values(**turn_values(turn))
            if (statements := turn.statements) is not None:
                self._add_values(statements=statements.checked, first_false=statements.first_false)
                if statements.checked and turn.is_rewarded:
                    self._add_values(rewarded_false=statements.first_false is not None)

    def _add_values(self, **values: float | None) -> None:
        for name, value in values.items():
            if value is not None:
                self.values[name].append(value)

    def interval(self) -> tuple[float, float] | None:
        """Return the confidence interval of the mean score; None if it is undefined or stages are mixed."""
        if len(self.stages) > 1:
            return None
        return confidence_interval(self.values["score"], unit_interval=self.one_turn_each)

    def summary(self, planned: int | None = None) -> Summary:
        """Summarise the episodes; of the `planned` episodes, those without a record count as not started."""
        values, counts, stated = self.values, self.counts, self.perception_stated
        scores, latencies = values["score"], sorted(values["latency"])
        turns, unfinished = len(values["format"]), dict(counts["unfinished"])
        recorded = len(scores) + sum(unfinished.values())
        if planned is not None and planned > recorded:
            unfinished["not started"] = planned - recorded
        score_mean, error = mean_and_stderr(scores) if scores else (None, None)
        stages = {}
        for name, stage_scores in self.stages.items():
            stage_mean, stage_error = mean_and_stderr(stage_scores)
            stages[name] = StageSummary(episodes=len(stage_scores), score_mean=stage_mean, score_stderr=stage_error)
        return Summary(
            episodes=len(scores),
            unfinished=unfinished,
            turns=turns,
            score_mean=score_mean,
            score_stderr=error if len(stages) < 2 else None,
            score_ci=self.interval(),
            score_max=max(scores, default=None),
            illegal_rate=counts["outcomes"][Outcome.ILLEGAL] / turns if turns else None,
            unparsable_rate=counts["outcomes"][Outcome.UNPARSABLE] / turns if turns else None,
            format_compliance=mean(values["format"]),
            perception_accuracy=mean(values["perception"]) if stated else None,
            perception_exact_match=mean(values["perception_exact"]) if stated else None,
            prediction_accuracy=mean(values["prediction"]),
            prediction_exact_match=mean(values["prediction_exact"]),
            statements=round(sum(values["statements"])) if values["statements"] else None,
            reasoning_accuracy=mean(values["reasoning"]),
            reasoning_exact_match=mean(values["reasoning_exact"]),
            wrong_reasoning=mean(values["rewarded_false"]),
            first_false_statement=_quantile(sorted(values["first_false"]), 0.5),
            end_reasons=dict(counts["end_reasons"].most_common()),
            metric_means={name: mean_and_stderr(numbers) for name, numbers in self.metrics.items()},
            metric_counts={name: dict(sorted(words.items(), key=_by_number)) for name, words in self.words.items()},
            prompt_tokens=counts["tokens"].get("prompt"),
            completion_tokens=counts["tokens"].get("completion"),
            cost=math.fsum(values["cost"]) if values["cost"] else None,
            latency_p50=_quantile(latencies, 0.5),
            latency_p95=_quantile(latencies, 0.95),
            stages=stages,
            served_models=dict(counts["served_models"].most_common()),
        )


class Tally(defaultdict[str, GameTally]):
    """Running totals of the games of a run, by id. Records are not kept, so a run may be larger than memory."""

    def __init__(self, config: RunRecord) -> None:
        super().__init__(GameTally, {game: GameTally() for game in config.game_ids})
        self._config = config

    def summaries(self) -> dict[str, Summary]:
        """Return the summary of each game, by id."""
        return {game: tally.summary(self._config.episodes_of(game)) for game, tally in self.items()}


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return a quantile of sorted values (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Sort key: numeric words by value, before all others."""
    word = item[0]
    return (float(word) if word.isdecimal() else math.inf), word


def rate_of_turns(games: Collection[Summary], *names: str) -> float | None:
    """Return the sum of some rates, such as `illegal_rate`, over the turns of all games; None without turns."""
    turns = sum(game.turns for game in games)
    counts = [game.turns * (getattr(game, name) or 0.0) for game in games for name in names]
    return sum(counts) / turns if turns else None


def updated_summary(run: StoredRun, games: Mapping[str, Summary] | None = None) -> RunSummary:
    """Summarise a stored run again, or use `games` as its summaries; keep everything else in `summary.json`."""
    return run.last_summary().model_copy(update={"games": summarise_run(run) if games is None else games})


def summarise_run(run: StoredRun) -> dict[str, Summary]:
    """Return the summary of each game of a stored run, by id."""
    tally = Tally(run.config)
    for episode in run.read():
        tally[episode.game.id].add(episode)
    return tally.summaries()
