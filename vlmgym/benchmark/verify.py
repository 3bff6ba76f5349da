"""`vlmgym verify RUN`: replay the responses of a saved run without its model, and check scores, states, metrics and
summary.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from vlmgym.benchmark.suites import behaviour_hash, read_suite, suite_summary, summarise
from vlmgym.errors import EpisodeEnded, GameError, UsageError, VlmgymError, short_repr
from vlmgym.evaluation.config import RunArgument, SavedRunOptions
from vlmgym.evaluation.progress import call_in_order
from vlmgym.evaluation.summary import GameTally, Tally
from vlmgym.evaluation.tables import format_estimate
from vlmgym.policies.base import recorded_reply
from vlmgym.rollout.runner import run_async
from vlmgym.rollout.schedule import CurriculumSchedule
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.trained import recorded_curriculum
from vlmgym.rollout.turn import GameSetup, LiveEpisode, episode_record
from vlmgym.runs.record import Change, DifficultyRecord, EpisodeRecord, RunRecord, Summary, changes, version_changes
from vlmgym.runs.run import RUN
from vlmgym.runs.store import StoredEpisode, StoredRun, open_run
from vlmgym.sandbox.core.game import Game
from vlmgym.terminal import make_console
from vlmgym.workers.pool import ProcessPool, num_workers_for

SHOWN = 10
"""Maximum number of differences that are printed."""
MIB = 1 << 20
FILES = {"run.json": 4 * MIB, "summary.json": 16 * MIB, "episodes.jsonl": 4096 * MIB}
"""Files that are read from a zip, and their maximum sizes in bytes; all others are ignored."""
SHARED = ("policy", "reward", "max_turns")
"""Fields of episodes that must equal those of `run.json`; prompts are compared after filling in the game's defaults."""


@dataclass(frozen=True, kw_only=True)
class VerifyConfig(SavedRunOptions):
    """Options of `vlmgym verify`."""

    run: RunArgument
    """Folder of the run, which is not changed, or a zip of it."""


def verify(config: VerifyConfig) -> None:
    """Verify a run and print the result."""
    console = make_console()
    with run_folder(config.run) as folder:
        run = open_run(folder, config.data)
        result = verify_run(run, config.workers)
    for problem in result.problems[:SHOWN]:
        console.print(problem, soft_wrap=True)
    if result.problems:
        count = len(result.problems)
        reasons = [f"{count:,} difference{'s' * (count != 1)} in {config.run}", version_changes(run.config)]
        raise VlmgymError(f"not verified: {'; '.join(filter(None, reasons))}")
    suite = suite_summary(run.config, result.games)
    score = "" if suite is None or suite.score is None else f"{run.config.suite}: {format_estimate(suite.score)}. "
    episodes, turns = (sum(counts) for counts in zip(*((game.episodes, game.turns) for game in result.games.values())))
    console.print(
        f"{score}Scoring verified: {episodes:,} episodes ({turns:,} turns) of "
        f"{', '.join(run.config.game_ids)} replayed with identical outcomes, rewards, states, metrics and summary. Not "
        "verified: who wrote the responses, whether there were other attempts, and latency, tokens and cost.",
        soft_wrap=True,
    )


@dataclass
class Verification:
    """Result of a verification.

    Attributes:
        problems: Differences between the record and the replay, one sentence each.
        games: Summary of the recorded episodes of each game, by id; empty if faults in `run.json` prevented the replay.
    """

    problems: list[str] = field(default_factory=list)
    games: dict[str, Summary] = field(default_factory=dict)


def verify_run(run: StoredRun, num_workers: int | None = None) -> Verification:
    """Replay every episode of a run, and check that its suite, `run.json`, the episodes and the summary agree.

    If `run.json` has faults, nothing is replayed, because that could take any time. The summary is checked only if
    nothing else differs.
    """
    result, tally = Verification(problems=[*_config_problems(run.config)]), Tally(run.config)
    if result.problems:
        return result
    result.problems += [*_episode_problems(run), *_curriculum_problems(run)]

    games = iter([episode.game for episode in run.episodes])

    def take(replayed: tuple[list[str], GameTally]) -> None:
        problems, totals = replayed
        result.problems += problems
        tally[next(games)].add_totals(totals)

    calls = [(episode, run.config) for episode in run.episodes]
    with ProcessPool(num_workers_for(len(calls), num_workers)) as workers:
        call_in_order(workers, replay_episode, calls, take, label="Replaying")
    result.games = tally.summaries()
    if not result.problems:
        if (written := run.folder.read_summary()) is None:
            result.problems.append(f"{run.folder.summary} is missing or cannot be read")
        else:
            derived = summarise(run, result.games)
            differences = changes(written.model_dump(mode="json"), derived.model_dump(mode="json"))
            sentences = (_in_words(change, "the episodes give") for change in differences)
            result.problems += [f"{run.folder.summary}: {sentence}" for sentence in sentences]
    return result


def replay_episode(stored: StoredEpisode, run: RunRecord) -> tuple[list[str], GameTally]:
    """Replay an episode; return the differences from its record, and the totals of the record, if it can be read."""
    totals = GameTally()
    try:
        episode = stored.read()
        totals.add(episode)
        return [f"{stored.location}: {difference}" for difference in _differences(episode, run)], totals
    except (UsageError, GameError) as error:
        text = str(error)
        return [text if stored.location in text else f"{stored.location}: {text}"], totals


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
    """Compare `run.json` with its suite, if any, and check its list of games, and their difficulty."""
    if problems := [*_suite_problems(config)]:
        yield from problems
        return
    if config.curriculum is None and len(config.game_ids) < len(config.games):
        yield "run.json has a game twice"
    stated = config.difficulty
    if stated is not None:
        games = [game.game() for game in config.games]
        if DifficultyRecord.of(stated.perception, stated.reasoning, games) != stated:
            yield "the difficulty in run.json does not match the configs of its games"


def _suite_problems(config: RunRecord) -> Iterator[str]:
    """List how a run and the installed games differ from the run's suite, if it has one."""
    if config.suite is None:
        return
    suite = read_suite(config.suite)
    differences = suite.differences(config)
    yield from differences
    if differences:
        return  # verification fails anyway, and hashing takes time
    for game in suite.make_games(config.prompts.observation):
        if suite.games[game.id].hash != behaviour_hash(game, suite.seed):
            yield f"{game.id} as installed differs from the one in the suite {config.suite}"


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


def _in_words(change: Change, source: str) -> str:
    return f"{change.path} is {short_repr(change.before)}, but {source} {short_repr(change.after)}"


@contextmanager
def run_folder(path: Path) -> Iterator[Path]:
    """Yield the folder of a run; for a zip, a temporary folder with its records."""
    if not path.is_file():
        yield path
        return
    with TemporaryDirectory(prefix=f"{path.stem}-") as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                _extract(archive, path, Path(folder))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise UsageError(f"{path} is not a zip that can be read: {error}") from None
        yield Path(folder)


def _extract(archive: zipfile.ZipFile, path: Path, folder: Path) -> None:
    """Extract the records of a run, wherever they are in an archive."""
    for member in archive.infolist():
        name = PurePosixPath(member.filename).name
        if name not in FILES:
            continue
        if (folder / name).exists():
            raise UsageError(f"{path} has more than one {name}: zip the folder of one run")
        if member.file_size > FILES[name]:
            raise UsageError(f"{path}: {name} has more than {FILES[name]:,} bytes")
        member.filename = name
        archive.extract(member, folder)
    if not (folder / RUN).exists():
        raise UsageError(f"{path} has no {RUN}: zip the folder of a run")
