"""Write the leaderboard of a suite, with policies that need no model and runs of models.

python -m benchmarks.leaderboard

Plays the policies, and adds runs of models if there are any. Writes `docs/leaderboard.md` and an HTML page in
`docs/leaderboard`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.markdown import table, wrapped
from vlmgym.benchmark.leaderboard import LeaderboardEntry
from vlmgym.benchmark.suites import read_suite
from vlmgym.cli.eval import run_evaluation
from vlmgym.evaluation.config import EvalConfig, RunArguments
from vlmgym.evaluation.tables import format_estimate
from vlmgym.pages.leaderboard import LeaderboardConfig, leaderboard
from vlmgym.runs.files import replace_file
from vlmgym.runs.record import Estimate
from vlmgym.terminal import parse_options, reporting_errors

POLICIES = ("oracle", "random-legal", "random")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Play the policies that need no model, and write the leaderboard of a suite."""

    suite: str = "vlmgym-2026.2-lite"
    """Name of the suite."""
    run: RunArguments = ()
    """Runs of models: folders, or zips of them."""
    docs: Path = Path("docs")
    """Folder to write leaderboard.md to."""
    workers: int | None = None
    """Number of worker processes. Default: one per core."""


def write(config: Config) -> None:
    """Play the policies, verify and rank all runs, and write the pages."""
    page = config.docs / "leaderboard" / f"{config.suite}.html"
    with TemporaryDirectory(prefix="vlmgym-leaderboard-") as root:
        folders = [_play(policy, Path(root), config) for policy in POLICIES]
        runs = (*folders, *config.run)
        entries = leaderboard(LeaderboardConfig(run=runs, output=page, workers=config.workers))
    text = wrapped(_page(config.suite, entries, page.relative_to(config.docs)))
    replace_file(config.docs / "leaderboard.md", text.encode())


def _play(policy: str, root: Path, config: Config) -> Path:
    """Play a policy and return the folder of its run."""
    suite = read_suite(config.suite)
    quick: dict[str, Any] = {"videos": 0, "report": False, "workers": config.workers, **suite.options}
    options = EvalConfig(policy=policy, output_dir=root / policy, **quick)
    run_evaluation(suite.make_games(), options, suite=config.suite)
    return root / policy


def _page(suite: str, entries: Sequence[LeaderboardEntry], page: Path) -> str:
    head = ["", *(entry.label for entry in entries)]
    skills = [
        [skill, *(_words(entry.suite.skills.get(skill)) for entry in entries)] for skill in entries[0].suite.skills
    ]
    parts = [
        "# Leaderboard",
        f"Scores in [{suite}](suites.md), verified by replaying every response. Scores are normalised per game, so "
        "that the random policy has 0 and the oracle 1; the tables show means with standard errors. [The interactive "
        f"page]({page.as_posix()}) opens from disk, can be sorted by any column, and also shows scores by game, "
        "intervals, invalid responses, tokens and cost. [Submit a run](suites.md#submit-a-run) to add a model.",
        table(
            ["model", "prompt", "score"],
            [[entry.label, entry.prompt, format_estimate(entry.mean)] for entry in entries],
        ),
        "This page is written by `python -m benchmarks.leaderboard`, which also plays the policies that need no model. "
        "The scores of random and oracle differ from 0 and 1 because a run has fewer episodes per game than were "
        "played for the baselines.",
        "## Skills",
        table(head, skills),
    ]
    return "\n\n".join(parts)


def _words(value: Estimate | None) -> str:
    return "" if value is None else format_estimate(value)


if __name__ == "__main__":
    with reporting_errors():
        write(parse_options(Config, None, "benchmarks.leaderboard"))
