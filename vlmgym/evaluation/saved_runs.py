"""Read many saved runs: their configurations and summaries, and their episodes as rows of a table."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vlmgym.errors import UsageError, importing
from vlmgym.evaluation.compare import read_metrics
from vlmgym.evaluation.summary import updated_summary
from vlmgym.runs.record import EpisodeRecord, RunRecord, RunSummary
from vlmgym.runs.run import RUN, RunFolder
from vlmgym.runs.store import StoredRun, open_run

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class SavedRun:
    """A saved run, finished or not, whose records are read only when needed.

    Attributes:
        folder: Folder of the run.
        config: Configuration of the run.
        data: Data of the run that may be opened.
    """

    folder: RunFolder
    config: RunRecord
    data: tuple[str, ...] = ()

    @cached_property
    def stored(self) -> StoredRun:
        """Locations of the records."""
        return open_run(self.folder, self.data)

    @cached_property
    def summary(self) -> RunSummary:
        """Contents of `summary.json`, or a summary of the records so far if the run was interrupted or is running."""
        return self.folder.read_summary() or updated_summary(self.stored)

    def facts(self, game: str) -> dict[str, Any]:
        """Return what identifies the results of a game in this run: run, policy, game, levels, turn limit, prompts."""
        config, levels = self.config, self.config.difficulty
        return {
            "run": os.path.relpath(self.folder.folder),  # not where the user's home is, since tables are published
            "policy": config.policy.name,
            "model": config.policy.model or None,
            "game": game,
            "perception": None if levels is None else levels.perception,
            "reasoning": None if levels is None else levels.reasoning,
            "observation": config.prompts.observation,
            "images": config.prompts.images,
            "skin": config.prompts.skin,
            "max_turns": config.max_turns,
        }

    def episodes(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each recorded episode: `facts`, seed, status, score, tokens, cost and metrics.

        Values that an episode does not have, such as the score of a failed one, are None or missing.
        """

        def facts(episode: EpisodeRecord) -> dict[str, Any]:
            totals = {
                name: [value for turn in episode.turns if (value := getattr(turn, name)) is not None]
                for name in ("prompt_tokens", "completion_tokens", "cost")
            }
            return {
                **self.facts(episode.game.id),
                **{name: getattr(episode, name) for name in ("seed", "stage", "status", "end_reason", "score")},
                **{name: sum(values) if values else None for name, values in totals.items()},
                **{name: value for name, value in episode.metrics.items() if isinstance(value, str)},
            }

        for row, metrics in read_metrics(self.stored.read(), facts):
            yield {name.replace(" ", "_"): value for name, value in (row | metrics).items()}


class Runs(list[SavedRun]):
    """Saved runs, in order."""

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each recorded episode; see `SavedRun.episodes`.

        Raises:
            UsageError: pandas is not installed, or a record cannot be read.
        """
        with importing("to_pandas", "data"):
            import pandas
        return pandas.DataFrame([row for run in self for row in run.episodes()])


def read_runs(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, data: Iterable[str] = ()) -> Runs:
    """Read the configurations of saved runs; summaries and records are read when they are used.

    Args:
        paths: Folder of a run, or a folder that is searched for runs at any depth, or several of these.
        data: Data named in the runs that may be opened; a stranger's run could name any file or URL.

    Raises:
        UsageError: A folder is not a run and contains none, or a run cannot be read.
    """
    folders: dict[Path, None] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        folder = Path(path)
        runs = [folder] if (folder / RUN).exists() else sorted(file.parent for file in folder.rglob(RUN))
        if not runs:
            raise UsageError(f"{folder} is not a run, and there is none in it: no {RUN}")
        folders |= dict.fromkeys(runs)
    allowed = tuple(data)
    return Runs(SavedRun(RunFolder(folder), RunFolder(folder).read_config(), allowed) for folder in folders)


def csv_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    """Format rows as CSV (RFC 4180), with a column for every name; missing values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
