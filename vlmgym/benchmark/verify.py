"""`vlmgym verify RUN`: replay a run, which may be a zip from anyone, and compare a run of a suite with the suite."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from vlmgym.benchmark.suites import behaviour_hash, read_suite, suite_summary
from vlmgym.errors import UsageError, VlmgymError
from vlmgym.evaluation.config import RunArgument, SavedRunOptions
from vlmgym.evaluation.tables import format_estimate
from vlmgym.evaluation.verify import Verification, summary_problems, verify_run
from vlmgym.runs.record import RunRecord, changes, version_changes
from vlmgym.runs.run import RUN
from vlmgym.runs.store import StoredRun, open_run
from vlmgym.terminal import make_console

SHOWN = 10
"""Maximum number of differences that are printed."""
MIB = 1 << 20
FILES = {"run.json": 4 * MIB, "summary.json": 16 * MIB, "episodes.jsonl": 4096 * MIB}
"""Files that are read from a zip, and their maximum sizes in bytes; all others are ignored."""


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
        result = verify_results(run, config.workers)
    for problem in result.problems[:SHOWN]:
        console.print(problem, soft_wrap=True)
    if result.problems:
        count = len(result.problems)
        reasons = [f"{count:,} difference{'s' * (count != 1)} in {config.run}", version_changes(run.config)]
        raise VlmgymError(f"not verified: {'; '.join(filter(None, reasons))}")
    suite = suite_summary(run.config, result.games)
    score = "" if suite is None or suite.score is None else f"{run.config.suite}: {format_estimate(suite.score)}. "
    console.print(
        f"{score}Scoring verified: {result.episodes:,} episodes ({result.turns:,} turns) of "
        f"{', '.join(run.config.game_ids)} replayed with identical outcomes, rewards, states, metrics and summary. Not "
        "verified: who wrote the responses, whether there were other attempts, and latency, tokens and cost.",
        soft_wrap=True,
    )


def verify_results(run: StoredRun, num_workers: int | None = None) -> Verification:
    """Replay a run and, if it is of a suite, compare its configuration, games and normalised scores with the suite.

    If the configuration or a game differs from the suite's, nothing is replayed: a replay could then take any time.
    """
    if problems := [*suite_problems(run.config)]:
        return Verification(problems=problems)
    result = verify_run(run, num_workers)
    if not result.problems:
        normalised = suite_summary(run.config, result.games)
        stated, derived = (
            None if suite is None else suite.model_dump(mode="json") for suite in (run.last_summary().suite, normalised)
        )
        result.problems += summary_problems(run.folder, changes(stated, derived, "suite"))
    return result


def suite_problems(config: RunRecord) -> Iterator[str]:
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
