"""`vlmgym submit`: make a submission from a run of a suite, or check one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os.path import exists
from pathlib import Path
from typing import Annotated, TypeVar

import tyro
from pydantic import ValidationError

from vlmgym.errors import UsageError, VlmgymError, describe_validation_error
from vlmgym.evaluation.config import WorkerOptions
from vlmgym.evaluation.submission.check import CheckConfig, check, check_contents
from vlmgym.evaluation.submission.metadata import (
    FILE,
    SELF_HOSTED,
    WITHOUT_MODEL,
    Metadata,
    Relationship,
    Weights,
    facts_of,
    recorded_cost,
)
from vlmgym.evaluation.summary import Tally, updated_summary
from vlmgym.records.episode import EpisodeRecord, PolicyRecord
from vlmgym.records.files import json_bytes, replace_file
from vlmgym.records.output_folder import new_folder
from vlmgym.records.packed import pack as packed
from vlmgym.records.run import RunRecord
from vlmgym.records.run_folder import RunFolder
from vlmgym.records.store import open_run
from vlmgym.terminal import make_console

T = TypeVar("T")

SELF_RUN = {"vllm", "transformers", *WITHOUT_MODEL} - {"replay"}
"""Policies that run on the submitter's machine; `provider` defaults to self-hosted for these only."""
PATH = re.compile(r"(?:~|[A-Za-z]:|\.{1,2})?[/\\]")
"""Start of a string that must be a path, not the name of a model."""


@dataclass(frozen=True, kw_only=True)
class PackConfig(WorkerOptions):
    """Make a submission from a run of a suite, without local paths, and check it."""

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder of a complete run of a suite."""
    output_dir: Path
    """New folder for the submission."""
    submitter: str
    """Person or organisation that makes the submission."""
    model: str | None = None
    """Name of the model, as on the Hugging Face Hub or in the API of its provider. None means the model of the run."""
    developer: str | None = None
    """Organisation that made the model. None means the first part of a name such as Qwen/Qwen3-VL-4B-Instruct."""
    weights: Weights = "unknown"
    """Whether the weights of the model are open or closed."""
    provider: str | None = None
    """Service that ran the model, or self-hosted. None means self-hosted, if the policy itself ran the model."""
    relationship: Relationship = "other"
    """Relationship of the submitter to the developer of the model."""
    cost: float | None = None
    """Cost of the run in US dollars. None means the recorded cost, if the run was played with prices."""
    notes: str = ""
    """Anything else, such as the hardware."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("submitter", "model", "developer", "provider"):
            if getattr(self, name) == "":
                raise UsageError(f"{name} must not be empty")


@dataclass(frozen=True, kw_only=True)
class SubmitConfig:
    """Options of `vlmgym submit`."""

    config: Annotated[
        Annotated[PackConfig, tyro.conf.subcommand("pack")] | Annotated[CheckConfig, tyro.conf.subcommand("check")],
        tyro.conf.arg(name=""),
    ]


def submit(chosen: SubmitConfig) -> None:
    """Run the chosen subcommand."""
    if isinstance(chosen.config, PackConfig):
        pack(chosen.config)
    else:
        check(chosen.config)


def pack(config: PackConfig) -> None:
    """Write a submission and print what it proves."""
    run = open_run(config.run)
    if run.config.suite is None:
        raise UsageError(f"{run.folder.folder} is not a run of a suite: play one with vlmgym eval --suite")
    if config.provider is None and run.config.policy.name not in SELF_RUN:
        raise UsageError(f"name the service that ran the model with --provider, or {SELF_HOSTED}")
    policy = PolicyRecord(
        name=without_folders(run.config.policy.name),
        options={name: without_folders(value) for name, value in run.config.policy.options.items()},
    )
    record, tally = run.config.model_copy(update={"policy": policy, "options": {}}), Tally(run.config)

    def episodes() -> Iterator[bytes]:
        for episode in run.read():
            public = public_record(episode, policy)
            tally.add(public)
            yield public.model_dump_json().encode()

    with new_folder(config.output_dir) as part:
        folder = RunFolder(part)
        replace_file(folder.packed, packed(episodes()))
        games = tally.summaries()
        replace_file(folder.summary, json_bytes(updated_summary(run, games)))
        replace_file(folder.run, json_bytes(record))
        metadata = make_metadata(config, record, recorded_cost(games))
        replace_file(part / FILE, metadata.to_toml().encode())
        found = check_contents(part, config.workers)
        if found.faults:
            count, first = len(found.faults), found.faults[0].replace(f"{part}/", "")
            raise VlmgymError(f"not packed: {count:,} fault{'s' * (count != 1)}, the first: {first}")
    console = make_console()
    console.print(found.proof, soft_wrap=True)
    console.print(f"submission {config.output_dir.absolute()}", soft_wrap=True)


def make_metadata(config: PackConfig, run: RunRecord, cost: float | None) -> Metadata:
    """Make the metadata from options and the public `run.json`."""
    if None not in (config.cost, cost) and config.cost != cost:
        raise UsageError(f"cost is {config.cost}, but the run has {cost}: remove --cost")
    model = config.model or run.policy.model or run.policy.name
    stated = {
        "model": model,
        "developer": config.developer or (model.partition("/")[0] if "/" in model else "unknown"),
        "provider": config.provider or SELF_HOSTED,
        "cost": config.cost if cost is None else cost,
        **{name: getattr(config, name) for name in ("weights", "submitter", "relationship", "notes")},
    }
    try:
        return Metadata.model_validate({**facts_of(run), **stated}, strict=False)
    except ValidationError as error:
        raise UsageError(describe_validation_error(error)) from None


def public_record(episode: EpisodeRecord, policy: PolicyRecord) -> EpisodeRecord:
    """Return a copy of a record with this policy, and with paths in model names shortened to their last part."""
    turns = tuple(turn.model_copy(update={"model": without_folders(turn.model)}) for turn in episode.turns)
    return episode.model_copy(update={"policy": policy, "turns": turns})


def without_folders(value: T) -> T | str:
    """Shorten a path, or the path of a function, to its last part; return other values unchanged."""
    if isinstance(value, str) and (PATH.match(value) or exists(value) or exists(value.rpartition(":")[0])):
        return re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return value
