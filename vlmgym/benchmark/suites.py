"""Suites: frozen, versioned lists of games and settings, whose scores are comparable.

A suite is a TOML file in `files/`, written by `benchmarks/suites.py`. For each game, the file has a hash of the game's
behaviour on some seeds, and the mean scores of the random policy and of the oracle, which correspond to normalised
scores of 0 and 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vlmgym.checks import read_toml
from vlmgym.curriculum.file import StrictModel
from vlmgym.errors import UsageError, did_you_mean, short_repr
from vlmgym.evaluation.summary import updated_summary
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.runs.record import (
    DifficultyRecord,
    Estimate,
    GameRecord,
    RunRecord,
    RunSummary,
    SuiteResult,
    SuiteSummary,
    Summary,
)
from vlmgym.runs.store import StoredRun
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.game import Game, pick
from vlmgym.sandbox.core.prompt import ObservationType
from vlmgym.sandbox.registry import game_class, make_game

FOLDER = Path(__file__).with_name("files")
ORACLE_TURNS = 4
"""Maximum number of oracle turns per seed in a behaviour hash."""
RANDOM_TURNS = 30
"""Maximum number of turns with random responses per seed in a behaviour hash."""


class SuiteGame(StrictModel):
    """A game in a suite.

    Attributes:
        hash: `behaviour_hash` of the game.
        random: Mean score of the random policy.
        oracle: Mean score of the oracle.
    """

    hash: str
    random: float
    oracle: float

    def normalise(self, mean: float, stderr: float | None) -> Estimate:
        """Normalise a mean score and its standard error: random play is 0, the oracle 1."""
        scale = self.oracle - self.random
        return (mean - self.random) / scale, None if stderr is None else stderr / scale


class Suite(StrictModel):
    """A frozen evaluation.

    Attributes:
        description: Purpose and cost, in one sentence.
        episodes: Episodes per game.
        max_turns: Turn limit.
        seed: First seed of each game.
        perception: Perceptual difficulty.
        reasoning: Reasoning difficulty.
        baseline_episodes: Episodes per game used for the mean scores of the random policy and the oracle in `games`.
        games: Games by id.
    """

    description: str
    episodes: int
    max_turns: int
    seed: int
    perception: int
    reasoning: int
    baseline_episodes: int
    games: dict[str, SuiteGame]

    def make_games(self, observation: ObservationType = "image") -> list[Game[Any, Any]]:
        """Make the games with the suite's versions and configurations.

        If the observation includes text, games without a text description are left out.
        """
        games = [make_game(game, self.perception, self.reasoning) for game in self.games]
        return [game for game in games if observation == "image" or game.no_text_observation is None]

    @property
    def options(self) -> dict[str, Any]:
        """Options of an evaluation that the suite fixes."""
        return {name: getattr(self, name) for name in ("episodes", "max_turns", "seed", "perception", "reasoning")}

    def differences(self, run: RunRecord) -> list[str]:
        """List how a run differs from the suite, without making the games of the run."""
        games = self.make_games(run.prompts.observation)
        settings = {"episodes": self.episodes, "max_turns": self.max_turns, "seed": self.seed, "curriculum": None}
        differences = [
            f"{name} is {short_repr(getattr(run, name))}, but the suite has {value}"
            for name, value in settings.items()
            if getattr(run, name) != value
        ]
        if run.games != tuple(map(GameRecord.of, games)):
            differences.append("the games or their configurations differ from the suite's")
        if run.difficulty != DifficultyRecord.of(self.perception, self.reasoning, games):
            differences.append("the difficulty differs from the suite's")
        return differences


def suite_names() -> list[str]:
    """Return the names of all suites."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@lru_cache
def read_suite(name: str) -> Suite:
    """Read a suite."""
    if name not in suite_names():
        names = [*suite_names(), "all"]
        raise UsageError(f"unknown suite {name!r}{did_you_mean(name, names)}; the suites are {', '.join(names)}")
    return Suite.model_validate(read_toml(FOLDER / f"{name}.toml"))


def behaviour_hash(game: Game[Any, Any], first_seed: int) -> str:
    """Hash the behaviour of a game on three consecutive seeds, to detect changes in prompts, images and rewards.

    The hash includes the images, prompts, states, legal actions and game rewards of up to `ORACLE_TURNS` turns of the
    oracle, and the prompts, outcomes, feedback and total rewards of up to `RANDOM_TURNS` turns with random responses,
    some of them illegal or unparsable. The prompts of the random turns include history on the first seed, form
    a conversation on the second, and describe states as text on the third if the game has text descriptions.
    """
    digest = hashlib.sha256(game.fingerprint.encode())
    described: ObservationType = "image" if game.no_text_observation else "text"
    varied: tuple[dict[str, Any], ...] = ({"history": 2}, {"chat": True}, {"observation": described})
    for seed, prompts in enumerate(varied, first_seed):
        live = LiveEpisode(GameSetup(game, EpisodeSettings(max_turns=ORACLE_TURNS), np.asarray), seed)
        while not live.done:
            state = live.episode.state
            for part in (game.to_json(state), live.observation.prompt, str(game.legal_actions(state))):
                digest.update(part.encode())
            for image in live.observation.images:
                digest.update(image.tobytes())
            action = game.best_action(state)
            digest.update(repr(live.step("" if action is None else game.respond(state, action)).game).encode())
        digest.update(game.to_json(live.episode.state).encode())
        live = LiveEpisode(GameSetup(game, EpisodeSettings(max_turns=RANDOM_TURNS, **prompts)), seed)
        rng = np.random.default_rng(seed)
        while not live.done:
            scored = live.step(_any_response(game, live.episode.state, rng))
            result = (scored.outcome.value, scored.total, scored.feedback, *live.observation.messages)
            digest.update(repr(result).encode())
    return digest.hexdigest()


def _any_response(game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
    """Return an unparsable response, a random action or a random legal action, with probabilities 0.1, 0.3 and 0.6.

    If the game does not list legal actions, a random action replaces the legal one.
    """
    kind, legal = rng.random(), game.legal_actions(state)
    if kind < 0.1:
        return "?"
    action = game.answer.sample(rng) if kind < 0.4 or not legal else pick(rng, legal)
    # Without reasoning, whose text in demonstrations may change without a change of the task.
    return response_format.compose(game.describe(state), "", game.answer.format(action))


def summarise(run: StoredRun, games: Mapping[str, Summary] | None = None) -> RunSummary:
    """Summarise a stored run with `updated_summary`, and normalise its results if it is of a suite."""
    summary = updated_summary(run, games)
    return summary.model_copy(update={"suite": suite_summary(run.config, summary.games)})


def suite_summary(run: RunRecord, games: Mapping[str, Summary]) -> SuiteSummary | None:
    """Normalise the results of a run with the baselines of its suite; return None if the run has no suite.

    Games without a result are left out. Means over games need all their games complete, because episodes that end
    early are the first to have a result.
    """
    if run.suite is None:
        return None
    suite, results = read_suite(run.suite), {}
    for game, baseline in suite.games.items():
        summary = games.get(game)
        if summary is None or summary.score_mean is None:
            continue
        results[game] = SuiteResult(
            episodes=summary.episodes,
            score_mean=summary.score_mean,
            score_stderr=summary.score_stderr,
            random=baseline.random,
            oracle=baseline.oracle,
            normalised=baseline.normalise(summary.score_mean, summary.score_stderr),
        )
    complete = {game for game in results if not games[game].unfinished}

    def mean(names: Collection[str]) -> Estimate | None:
        return mean_with_error([results[name].normalised for name in names]) if complete.issuperset(names) else None

    skills: dict[str, list[str]] = {}
    for game in suite.games:
        for skill in game_class(game).skills:
            skills.setdefault(skill, []).append(game)
    means = {skill: mean(names) for skill, names in sorted(skills.items())}
    return SuiteSummary(
        games=results,
        skills={skill: value for skill, value in means.items() if value is not None},
        score=mean(suite.games),
    )


def mean_with_error(values: Sequence[Estimate]) -> Estimate:
    """Return the mean of independent means, and its standard error, which is None if any mean's error is unknown."""
    mean = math.fsum(value for value, _ in values) / len(values)
    errors = [error for _, error in values if error is not None]
    return mean, math.hypot(*errors) / len(values) if len(errors) == len(values) else None
