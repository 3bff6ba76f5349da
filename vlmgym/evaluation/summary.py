"""Summaries of runs, computed from their records."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from vlmgym.runs.record import (
    EpisodeRecord,
    RunRecord,
    RunSummary,
    StageSummary,
    StatementsRecord,
    Summary,
    TurnRecord,
)
from vlmgym.runs.store import StoredRun
from vlmgym.sandbox.core.response_format import parse_response
from vlmgym.sandbox.core.reward import Outcome
from vlmgym.statistics import confidence_interval, mean_and_stderr


def states_perception(response: str) -> bool:
    """Return whether a response has a `<perception>`, correct or not."""
    return "<perception" in response.casefold() and bool(parse_response(response).perceptions)


LATER_PARTS = ("predictions", "predictions_exact", "reasoning", "first_false", "rewarded_false")
"""Totals of `GameTally` about predictions and about checked statements."""


class GameTally:
    """Running totals of a game. Sums are computed at the end, exactly and independently of the order of episodes."""

    def __init__(self) -> None:
        self.unfinished: Counter[str] = Counter()
        self.end_reasons: Counter[str] = Counter()
        self.outcomes: Counter[Outcome] = Counter()
        self.numbers: dict[str, array[float]] = {}
        self.words: dict[str, Counter[str]] = {}
        self.tokens: Counter[str] = Counter()
        self.stages: dict[str, array[float]] = {}
        self.served_models: Counter[str] = Counter()
        self.one_turn_each = True
        self.perception_stated = False
        self.scores, self.format, self.perception, self.exact = array("d"), array("d"), array("d"), array("d")
        self.latencies, self.costs = array("d"), array("d")
        self.statements: int | None = None
        self.predictions, self.predictions_exact = array("d"), array("d")
        self.reasoning, self.first_false, self.rewarded_false = array("d"), array("d"), array("d")

    def add(self, episode: EpisodeRecord) -> None:
        """Add the latest record of an episode."""
        for turn in episode.turns:
            for name, tokens in (("prompt", turn.prompt_tokens), ("completion", turn.completion_tokens)):
                if tokens is not None:
                    self.tokens[name] += tokens
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

    def add_totals(self, other: GameTally) -> None:
        """Add the totals of other episodes."""
        self.one_turn_each &= other.one_turn_each
        self.perception_stated |= other.perception_stated
        for name in ("unfinished", "end_reasons", "outcomes", "tokens", "served_models"):
            getattr(self, name).update(getattr(other, name))
        if other.statements is not None:
            self.statements = other.statements + (self.statements or 0)
        for name in ("scores", "format", "perception", "exact", "latencies", "costs", *LATER_PARTS):
            getattr(self, name).extend(getattr(other, name))
        for metric, counts in other.words.items():
            self.words.setdefault(metric, Counter()).update(counts)
        for totals, others in ((self.numbers, other.numbers), (self.stages, other.stages)):
            for key, values in others.items():
                totals.setdefault(key, array("d")).extend(values)

    def _add_result(self, episode: EpisodeRecord, score: float) -> None:
        self.scores.append(score)
        if episode.stage is not None:
            self.stages.setdefault(episode.stage, array("d")).append(score)
        self.end_reasons[episode.end_reason] += 1
        for name, value in episode.metrics.items():
            if isinstance(value, str):
                self.words.setdefault(name, Counter())[value] += 1
            else:
                self.numbers.setdefault(name, array("d")).append(value)
        self.one_turn_each &= episode.is_single_turn
        for turn in episode.turns:
            self.outcomes[turn.outcome] += 1
            self.format.append(turn.reward.format)
            self.perception_stated = self.perception_stated or states_perception(turn.response)
            if turn.reward.perception is not None:
                self.perception.append(turn.reward.perception)
                self.exact.append(turn.reward.perception_exact or 0.0)
            if turn.reward.prediction is not None:
                self.predictions.append(turn.reward.prediction)
                self.predictions_exact.append(turn.reward.prediction_exact or 0.0)
            if turn.statements is not None:
                self._add_statements(turn, turn.statements)

    def _add_statements(self, turn: TurnRecord, statements: StatementsRecord) -> None:
        self.statements = statements.checked + (self.statements or 0)
        if statements.checked:
            self.reasoning.append(statements.true / statements.checked)
            if statements.first_false is not None:
                self.first_false.append(statements.first_false)
            if turn.is_rewarded:
                self.rewarded_false.append(statements.first_false is not None)

    def interval(self) -> tuple[float, float] | None:
        """Return the confidence interval of the mean score; None if it is undefined or stages are mixed."""
        if len(self.stages) > 1:
            return None
        return confidence_interval(self.scores, unit_interval=self.one_turn_each)

    def summary(self, planned: int | None = None) -> Summary:
        """Summarise the episodes; of the `planned` episodes, those without a record count as not started."""
        episodes, turns, unfinished = len(self.scores), len(self.format), dict(self.unfinished)
        recorded = episodes + self.unfinished.total()
        if planned is not None and planned > recorded:
            unfinished["not started"] = planned - recorded
        mean, error = mean_and_stderr(self.scores) if self.scores else (None, None)
        latencies = sorted(self.latencies)
        stages = {}
        for name, scores in self.stages.items():
            stage_mean, stage_error = mean_and_stderr(scores)
            stages[name] = StageSummary(episodes=len(scores), score_mean=stage_mean, score_stderr=stage_error)

        def per_turn(total: float) -> float | None:
            return total / turns if turns else None

        return Summary(
            episodes=episodes,
            unfinished=unfinished,
            turns=turns,
            score_mean=mean,
            score_stderr=error if len(self.stages) < 2 else None,
            score_ci=self.interval(),
            score_max=max(self.scores, default=None),
            illegal_rate=per_turn(self.outcomes[Outcome.ILLEGAL]),
            unparsable_rate=per_turn(self.outcomes[Outcome.UNPARSABLE]),
            format_compliance=per_turn(math.fsum(self.format)),
            perception_accuracy=_mean(self.perception) if self.perception_stated else None,
            perception_exact_match=_mean(self.exact) if self.perception_stated else None,
            prediction_accuracy=_mean(self.predictions),
            prediction_exact_match=_mean(self.predictions_exact),
            statements=self.statements,
            reasoning_accuracy=_mean(self.reasoning),
            reasoning_exact_match=_mean([share == 1.0 for share in self.reasoning]),
            wrong_reasoning=_mean(self.rewarded_false),
            first_false_statement=_quantile(sorted(self.first_false), 0.5),
            end_reasons=dict(self.end_reasons.most_common()),
            metric_means={name: mean_and_stderr(values) for name, values in self.numbers.items()},
            metric_counts={name: dict(sorted(counts.items(), key=_by_number)) for name, counts in self.words.items()},
            prompt_tokens=self.tokens.get("prompt"),
            completion_tokens=self.tokens.get("completion"),
            cost=math.fsum(self.costs) if self.costs else None,
            latency_p50=_quantile(latencies, 0.5),
            latency_p95=_quantile(latencies, 0.95),
            stages=stages,
            served_models=dict(self.served_models.most_common()),
        )


class Tally(defaultdict[str, GameTally]):
    """Running totals of the games of a run, by id. Records are not kept, so a run may be larger than memory."""

    def __init__(self, config: RunRecord) -> None:
        super().__init__(GameTally, {game: GameTally() for game in config.game_ids})
        self._config = config

    def summaries(self) -> dict[str, Summary]:
        """Return the summary of each game, by id."""
        return {game: tally.summary(self._config.episodes_of(game)) for game, tally in self.items()}


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return a quantile of sorted values (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Sort key: numeric words by value, before all others."""
    word = item[0]
    return (float(word) if word.isdecimal() else math.inf), word


def updated_summary(run: StoredRun, games: Mapping[str, Summary] | None = None) -> RunSummary:
    """Summarise a stored run again, or use `games` as its summaries; keep everything else in `summary.json`."""
    return run.last_summary().model_copy(update={"games": summarise_run(run) if games is None else games})


def summarise_run(run: StoredRun) -> dict[str, Summary]:
    """Return the summary of each game of a stored run, by id."""
    tally = Tally(run.config)
    for episode in run.read():
        tally[episode.game.id].add(episode)
    return tally.summaries()
