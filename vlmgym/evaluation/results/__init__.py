"""Export of results to formats of other projects; this module defines the results that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vlmgym.errors import UsageError
from vlmgym.evaluation.submission.metadata import Metadata, find_metadata
from vlmgym.evaluation.suite import read_suite
from vlmgym.evaluation.summary import updated_summary
from vlmgym.records.run import Estimate, RunSummary, SuiteResult
from vlmgym.records.store import StoredRun


@dataclass(frozen=True)
class Results:
    """A run and its results.

    Attributes:
        run: The run.
        summary: Summary of the run, computed from its records.
        metadata: Metadata of the run, if it is a submission.
    """

    run: StoredRun
    summary: RunSummary
    metadata: Metadata | None

    @classmethod
    def of(cls, run: StoredRun) -> Results:
        """Summarise a run, without verifying its scores.

        Raises:
            UsageError: The run is a submission that contradicts its suite or its metadata.
        """
        folder, summary = run.folder.folder, updated_summary(run)
        if (metadata := find_metadata(folder)) is not None:
            suite = [] if run.config.suite is None else read_suite(run.config.suite).differences(run.config)
            if faults := [*suite, *metadata.differences(run.config, summary.games)]:
                raise UsageError(f"{folder} is not a valid submission: {faults[0]}")
        return cls(run, summary, metadata)

    @property
    def model(self) -> str:
        """Name of the model; for a run that is not a submission, its policy and model."""
        return self.run.config.policy.label if self.metadata is None else self.metadata.model

    def submission(self) -> tuple[Metadata, Mapping[str, SuiteResult], Mapping[str, Estimate]]:
        """Return the metadata of a submission, the results of its games, and its normalised scores by name.

        There is a score for each game, named by its id, and one named after the suite if all of its games have results.
        """
        suite = self.summary.suite
        if self.metadata is None or suite is None:
            raise UsageError(f"{self.run.folder.folder} is not a submission: make one with vlmgym submit pack")
        name = self.metadata.suite
        scores = {} if suite.score is None else {name: suite.score}
        return self.metadata, suite.games, scores | {game: result.normalised for game, result in suite.games.items()}
