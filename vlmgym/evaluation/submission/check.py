"""`vlmgym submit check FOLDER`: validate a submission, which may come from anyone."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro
from pydantic import BaseModel

from vlmgym.errors import UsageError, VlmgymError, short_repr
from vlmgym.evaluation.config import WorkerOptions
from vlmgym.evaluation.submission.metadata import FILE, MetadataError, describe_policy, read_metadata
from vlmgym.evaluation.suite import format_estimate, mean_with_error, suite_summary
from vlmgym.evaluation.verify import SHOWN, Replay, replay_episode, verify_run
from vlmgym.records.run import RunRecord, Summary, changes
from vlmgym.records.store import StoredEpisode, open_run
from vlmgym.terminal import make_console

MIB = 1 << 20
FILES = {FILE: MIB, "run.json": 4 * MIB, "summary.json": 4 * MIB, "episodes.jsonl.gz": 1024 * MIB}
"""Files of a submission, and their maximum sizes in bytes."""

SECRETS = re.compile(
    rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # in JSON, a line break before a key is a backslash and a letter
    rb"(?:sk-[\w-]{20}|hf_[A-Za-z0-9]{30}|gh[opsu]_[A-Za-z0-9]{36}|github_pat_\w{22}|AKIA[0-9A-Z]{16}|AIza[\w-]{35}"
    rb"|xox[abprs]-[\w-]{10}|(?:gsk_|r8_|fw_|pplx-)[A-Za-z0-9]{20}|(?:xai|nvapi)-[\w-]{20}"
    rb"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----)"
)
"""Pattern for API keys of common services."""
PATHS = re.compile(rb'"(?:~|[A-Za-z]:)?(?:/|\\\\)[^"]|/(?:home|Users|root)/|\\\\Users\\\\')
"""Pattern for strings that begin with an absolute path, and for home folders anywhere in a string."""


@dataclass(frozen=True, kw_only=True)
class CheckConfig(WorkerOptions):
    """Check the files, metadata and scoring of a submission, and list its faults."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of the submission, which is not changed."""


class Submission(NamedTuple):
    """Result of checking a submission.

    Attributes:
        faults: Faults of the submission, one sentence each.
        proof: One line on what was and was not proven; empty if there are faults.
        games: Summary of each game, by id; empty if faults prevented the replay.
    """

    faults: list[str]
    proof: str = ""
    games: Mapping[str, Summary] = {}


def check(config: CheckConfig) -> None:
    """Check a submission and print the result."""
    found = check_submission(config.folder, config.workers)
    console = make_console()
    for fault in found.faults[:SHOWN]:
        console.print(fault, soft_wrap=True)
    if found.faults:
        count = len(found.faults)
        raise VlmgymError(f"{config.folder} is not a valid submission: {count:,} fault{'s' * (count != 1)}")
    console.print(found.proof, soft_wrap=True)


def check_submission(folder: Path, workers: int | None) -> Submission:
    """Check the list of files of a submission and, if it has no faults, their contents."""
    faults = file_faults(folder)
    return Submission(faults) if faults else check_contents(folder, workers)


def file_faults(folder: Path) -> list[str]:
    """List files that are missing, superfluous, too large, or not regular files."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder")
    found = {entry.name: entry for entry in os.scandir(folder)}
    if FILE not in found and "episodes.jsonl" in found:
        return ["this is a run folder: make a submission from it with vlmgym submit pack"]
    faults = [f"{short_repr(name)} does not belong to a submission" for name in sorted(found.keys() - FILES.keys())]
    for name, most in FILES.items():
        entry = found.get(name)
        if entry is None:
            faults.append(f"{name} is missing")
        elif not entry.is_file(follow_symlinks=False):
            faults.append(f"{name} is not a regular file")
        elif entry.stat().st_size > most:
            faults.append(f"{name} has more than {most:,} bytes")
    return faults


def check_contents(folder: Path, workers: int | None) -> Submission:
    """Check everything except the list of files."""
    faults, metadata = [], None
    texts = {name: (folder / name).read_bytes() for name in (FILE, "run.json", "summary.json")}
    try:
        metadata = read_metadata(folder)
    except MetadataError as error:
        faults += error.faults
    else:
        texts[FILE] += metadata.to_toml().encode()  # also as parsed, because TOML's quotes and escapes can hide text
    for name, text in texts.items():
        if SECRETS.search(text):
            faults.append(f"{name} seems to contain an API key")
        if path := PATHS.search(text):
            found_path = short_repr(path[0].decode(errors="replace"))
            faults.append(f"{name} contains the path of a file or folder: {found_path}...")
    try:
        run = open_run(folder)
        if run.config.suite is None:
            raise UsageError("run.json names no suite")
        if run.config.private_salt is not None:
            raise UsageError("run.json has private seeds: submissions are played on the public seeds of a suite")
        faults += ambiguities(texts["run.json"], run.config, "run.json")
        if (summary := run.folder.read_summary()) is not None:
            faults += ambiguities(texts["summary.json"], summary, "summary.json")
        faults += [f"{one.location}: a later record replaces this one" for one in run.replaced if one.score is None]
        found = verify_run(run, workers, replay_strictly)
    except UsageError as error:
        return Submission([*faults, str(error)])
    faults += found.problems
    suite = suite_summary(run.config, found.games)
    if metadata is not None:
        faults += metadata.differences(run.config, found.games)
    if faults or metadata is None or suite is None:
        return Submission(faults, games=found.games)
    score = format_estimate(mean_with_error([result.normalised for result in suite.games.values()]))
    policy = describe_policy(run.config, found.games)
    name = metadata.model if policy == metadata.model else f"{metadata.model} ({policy})"
    proof = (
        f"{name} scores {score} in {metadata.suite}. Proven: the responses of {found.episodes:,} "
        f"episodes ({found.turns:,} turns) give these scores. Not proven: who wrote the responses, whether "
        "there were other attempts, and latency, tokens, cost and other metadata."
    )
    return Submission(faults, proof, found.games)


def replay_strictly(stored: StoredEpisode, run: RunRecord) -> Replay:
    """Replay an episode, and also report ambiguous fields of its record, and anything that looks like an API key."""
    replay, text = replay_episode(stored, run), stored.text()
    problems = [*replay.problems]
    if replay.totals is not None:
        problems += ambiguities(text, stored.read(), stored.location)
    if SECRETS.search(text):
        problems.append(f"{stored.location} seems to contain an API key")
    return replay._replace(problems=problems)


def ambiguities(text: bytes, record: BaseModel, where: str) -> Iterator[str]:
    """Report the first repeated JSON field, and the first field that vlmgym ignores or reads as another value, if any.

    Other programs may take the first of two values, or show fields that are not part of a record.
    """
    repeated: list[str] = []

    def fields(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        return found

    written = json.loads(text, object_pairs_hook=fields)
    if repeated:
        yield f"{where}: {short_repr(repeated[0])} is repeated"
    for change in changes(written, record.model_dump(mode="json")):
        if change.before is not None:  # missing fields have their defaults
            yield f"{where}: {change.path} is {short_repr(change.before)}, but vlmgym reads {short_repr(change.after)}"
            return
