"""Replay the recorded responses of a run, and check everything that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vlmgym.errors import EpisodeEnded, GameError, UsageError, short_repr
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.summary import GameTally, Tally, updated_summary
from vlmgym.policies.base import recorded_reply
from vlmgym.rollout.runner import run_async
from vlmgym.rollout.schedule import CurriculumSchedule
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.trained import recorded_curriculum
from vlmgym.rollout.turn import GameSetup, LiveEpisode, episode_record
from vlmgym.runs.record import Change, DifficultyRecord, EpisodeRecord, RunRecord, Summary, changes
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import StoredEpisode, StoredRun
from vlmgym.sandbox.core.game import Game
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool, num_workers_for

SHARED = ("policy", "reward", "max_turns")
"""Fields of episodes that must equal those of `run.json`; prompts are compared after filling in the game's defaults."""


@dataclass
class Verification:
    """Result of a verification.

    Attributes:
        episodes: Number of episodes replayed.
        turns: Number of turns replayed.
        problems: Differences between the record and the replay, one sentence each.
        games: Summary of the recorded episodes of each game, by id; empty if faults in `run.json` prevented the replay.
    """

    episodes: int = 0
    turns: int = 0
    problems: list[str] = field(default_factory=list)
    games: dict[str, Summary] = field(default_factory=dict)


class Replay(NamedTuple):
    """Result of replaying an episode.

    Attributes:
        turns: Number of turns.
        problems: Differences from the record.
        totals: Totals of the record; None if it cannot be read.
    """

    turns: int
    problems: Sequence[str]
    totals: GameTally | None


def verify_run(run: StoredRun, num_workers: int | None = None) -> Verification:
    """Replay every episode of a run, and check that `run.json`, the episodes and the summary agree.

    If `run.json` has faults, nothing else is checked; the summary is checked only if nothing else differs.
    """
    result, tally = Verification(problems=[*_config_problems(run.config)]), Tally(run.config)
    if result.problems:
        return result
    result.problems += [*_episode_problems(run), *_curriculum_problems(run)]

    def take(replayed: Replay) -> None:
        result.episodes += 1
        result.turns += replayed.turns
        result.problems += replayed.problems
        if replayed.totals is not None:
            tally[run.episodes[result.episodes - 1].game].add_totals(replayed.totals)

    calls = [(episode, run.config) for episode in run.episodes]
    with ProcessPool(num_workers_for(len(calls), num_workers)) as workers:
        call_in_order(workers, replay_episode, calls, take, label="Replaying", console=make_console(stderr=True))
    result.games = tally.summaries()
    if not result.problems:
        if (written := run.folder.read_summary()) is None:
            result.problems.append(f"{run.folder.summary} is missing or cannot be read")
        else:
            derived = updated_summary(run, result.games)
            differences = changes(written.model_dump(mode="json"), derived.model_dump(mode="json"))
            result.problems += summary_problems(run.folder, differences)
    return result


def replay_episode(stored: StoredEpisode, run: RunRecord) -> Replay:
    """Replay an episode, and compare it with its record."""
    totals = None
    try:
        episode = stored.read()
        totals = GameTally()
        totals.add(episode)
        differences = _differences(episode, run)
    except (UsageError, GameError) as error:
        text = str(error)
        return Replay(0, [text if stored.location in text else f"{stored.location}: {text}"], totals)
    return Replay(len(episode.turns), [f"{stored.location}: {difference}" for difference in differences], totals)


def _differences(episode: EpisodeRecord, run: RunRecord) -> list[str]:
    """List how an episode differs from its run or, if it does not, the first difference from its replay, if any."""
    if episode.game not in run.games:
        return [f"{episode.game.id} was played with a config that run.json does not have"]
    other = [name for name in SHARED if getattr(episode, name) != getattr(run, name)]
    if episode.prompts != run.prompts.of(episode.game.history):
        other.append("prompts")
    if other:
        return [f"{name} differs from run.json" for name in other]
    settings = EpisodeSettings.from_parts(episode.prompts, episode.max_turns, episode.reward)
    setup = GameSetup(episode.game.game(), settings)
    live = LiveEpisode(setup, episode.seed)
    for turn in episode.turns:
        try:
            live.respond(recorded_reply(turn), turn.cost)
        except EpisodeEnded:
            return [f"turn {turn.turn} was recorded, but the episode ended before it"]
    if episode.score is not None and not live.done:
        return [f"the record says {episode.status!r} after {len(live.turns)} turns, but the episode had not ended"]
    replayed = episode_record(
        setup,
        live.state(),
        live.turns,
        policy=episode.policy,
        seed=episode.seed,
        index=episode.index,
        started=episode.started,
        attempt=episode.attempt,
        stage=None if run.curriculum is None else episode.stage,
        failed=None if episode.score is not None else (episode.status, episode.end_reason),
    )
    before, after = (record.model_dump(mode="json", exclude={"versions"}) for record in (episode, replayed))
    # Other differences follow from those in the turns.
    differences = sorted(changes(before, after), key=lambda change: not change.path.startswith("turns"))
    return [_in_words(change, "the replay gives") for change in differences[:1]]


def _config_problems(config: RunRecord) -> Iterator[str]:
    """Check the list of games in `run.json`, and their difficulty."""
    if config.curriculum is None and len(config.game_ids) < len(config.games):
        yield "run.json has a game twice"
    stated = config.difficulty
    if stated is not None:
        games = [game.game() for game in config.games]
        if DifficultyRecord.of(stated.perception, stated.reasoning, games) != stated:
            yield "the difficulty in run.json does not match the configs of its games"


def _episode_problems(run: StoredRun) -> Iterator[str]:
    """Check that every planned episode has exactly one result, and that there are no other episodes."""
    config = run.config
    for episode in run.replaced:
        if episode.score is not None:
            yield f"{episode.location}: this result of {episode.game} with seed {episode.seed} was replaced"
    for episode in (*run.replaced, *run.episodes):
        if episode.seed != config.seed + episode.index or not 0 <= episode.index < config.episodes:
            yield (
                f"{episode.location}: seed {episode.seed} with index {episode.index} is not among the "
                f"{config.episodes:,} episodes from seed {config.seed}"
            )
    for game in config.game_ids:
        missing = config.episodes_of(game) - sum(
            episode.game == game and episode.score is not None for episode in run.episodes
        )
        if missing > 0:
            yield f"{missing:,} of {config.episodes_of(game):,} episodes of {game} have no result"


def _curriculum_problems(run: StoredRun) -> Iterator[str]:
    """Check that the curriculum assigns every episode its recorded game and stage, and that no episode is missing."""
    config = run.config
    if config.curriculum is None:
        return

    settings = EpisodeSettings.from_parts(config.prompts, config.max_turns, config.reward)

    def setup(game: Game[Any, Any]) -> GameSetup:
        return GameSetup(game, settings)

    try:
        curriculum = recorded_curriculum(config.curriculum.file)
    except UsageError as error:
        yield str(error)
        return
    try:
        schedule = CurriculumSchedule(curriculum, setup, config.seed, config.episodes)
        for episode in run.read():
            schedule.resume(episode)
        missing = run_async(schedule.next())
    except UsageError as error:
        yield f"the curriculum in run.json gives other episodes: {error}"
    else:
        if missing is not None:
            yield f"episode {missing.index} of the curriculum, {missing.setup.game.id}, has no result"


def summary_problems(folder: RunFolder, differences: Iterable[Change]) -> Iterator[str]:
    """Say how `summary.json` differs from the summary of the episodes."""
    return (f"{folder.summary}: {_in_words(change, 'the episodes give')}" for change in differences)


def _in_words(change: Change, source: str) -> str:
    return f"{change.path} is {short_repr(change.before)}, but {source} {short_repr(change.after)}"
