"""`metadata.toml` of a submission: the model and how it was run, as stated by the submitter."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter, ValidationError

from vlmgym.curriculum.file import StrictModel
from vlmgym.errors import UsageError, describe_validation_error, describe_validation_errors, short_repr
from vlmgym.policies.sampling import SamplingOptions
from vlmgym.records.run import RunRecord, Summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "metadata.toml"
SELF_HOSTED = "self-hosted"
"""Provider of a model that the submitter ran."""

WITHOUT_MODEL = ("random", "random-legal", "oracle", "human", "replay")
"""Policies without a model; a submission must state the name of such a policy as its model."""

Weights = Literal["open", "closed", "unknown"]
Relationship = Literal["first-party", "third-party", "collaborative", "other"]

SAMPLING = TypeAdapter(SamplingOptions)


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError(f"must be one line without leading or trailing spaces, got {short_repr(text)}")
    return text


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError(f"must be ASCII, so that it cannot look like another name, got {short_repr(text)}")
    return text


def _sampling(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        SAMPLING.validate_json(json.dumps(options), strict=True)
    except ValidationError as error:
        raise ValueError(describe_validation_error(error)) from None
    except UsageError as error:
        raise ValueError(str(error)) from None
    return options


Line = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]


class MetadataError(UsageError):
    """The metadata are invalid.

    Attributes:
        faults: What is wrong, one sentence each.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Metadata(StrictModel):
    """The submitter's statements about a run.

    `suite`, `date` and `sampling` must agree with the run. So must `cost` if the run recorded it, and `model` if the
    policy of the run has no model.

    Attributes:
        submission: Version of this format.
        suite: Name of the suite.
        model: Name of the model, as on the Hugging Face Hub or in the API of its provider.
        developer: Organisation that made the model.
        weights: Whether the weights of the model are open or closed.
        provider: Service that ran the model, or `self-hosted`.
        submitter: Person or organisation that made the submission.
        relationship: Relationship of the submitter to the developer.
        date: Day on which the run started.
        cost: Cost of the run in US dollars, if known.
        notes: Anything else, such as the hardware.
        sampling: Sampling options that were set.
    """

    submission: Literal[1] = 1
    suite: Line
    model: Annotated[Line, AfterValidator(_ascii)]
    developer: Line = "unknown"
    weights: Weights = "unknown"
    provider: Line
    submitter: Line
    relationship: Relationship = "other"
    date: date
    cost: Annotated[float, Field(ge=0)] | None = None
    notes: Annotated[str, Field(max_length=2000)] = ""
    sampling: Annotated[dict[str, JsonValue], AfterValidator(_sampling)]

    def to_toml(self) -> str:
        """Format as TOML; strings, numbers and lists are written as in JSON."""
        data = self.model_dump(mode="json", exclude_none=True)
        sampling = data.pop("sampling")
        lines = [f"{name} = {value if name == 'date' else _toml(value)}" for name, value in data.items()]
        return "\n".join([*lines, "", "[sampling]", *(f"{name} = {_toml(sampling[name])}" for name in sampling), ""])

    def differences(self, run: RunRecord, games: Mapping[str, Summary]) -> list[str]:
        """List the fields that contradict a run or the summaries of its games."""
        facts, cost, stated = facts_of(run), recorded_cost(games), self.model_dump(mode="json")
        found = [
            f"{FILE}: {name} is {short_repr(stated[name])}, but the run has {short_repr(value)}"
            for name, value in (facts if cost is None else facts | {"cost": cost}).items()
            if stated[name] != value
        ]
        if "model" not in facts and self.model.lower() in WITHOUT_MODEL:
            found.append(
                f"{FILE}: model is {self.model!r}, but the policy of the run is {short_repr(run.policy.label)}"
            )
        return found


def facts_of(run: RunRecord) -> dict[str, Any]:
    """Return the metadata that follow from `run.json`, as JSON values."""
    sampling = {field.name: run.policy.options.get(field.name) for field in fields(SamplingOptions)}
    return {
        **({"model": run.policy.name} if run.policy.name in WITHOUT_MODEL else {}),
        "suite": run.suite,
        "date": run.started[:10],
        "sampling": {name: value for name, value in sampling.items() if value not in (None, [])},
    }


def describe_policy(run: RunRecord, games: Mapping[str, Summary]) -> str:
    """Describe the policy of a run, with the model names that its server reported."""
    served = dict.fromkeys(name for summary in games.values() for name in summary.served_models)
    return f"{run.policy.label}{f', served as {short_repr(list(served))[1:-1]}' if served else ''}"


def recorded_cost(games: Mapping[str, Summary]) -> float | None:
    """Return the cost of all games, rounded to millionths; None for a run without prices."""
    costs = [summary.cost for summary in games.values() if summary.cost is not None]
    return round(math.fsum(costs), 6) if costs else None


def find_metadata(folder: Path) -> Metadata | None:
    """Read the metadata of a run if it is a submission, else return None; see `read_metadata`."""
    return read_metadata(folder) if (folder / FILE).exists() else None


def read_metadata(folder: Path) -> Metadata:
    """Read the metadata of a submission.

    Raises:
        MetadataError: The metadata are invalid.
    """
    try:
        return Metadata.model_validate(tomllib.loads((folder / FILE).read_text(encoding="utf-8")))
    except ValidationError as error:
        raise MetadataError([f"{FILE}: {fault}" for fault in describe_validation_errors(error)]) from None
    except (ValueError, RecursionError) as error:  # not TOML or not UTF-8
        raise MetadataError([f"{FILE} is not valid TOML: {error}"]) from None


def _toml(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)
