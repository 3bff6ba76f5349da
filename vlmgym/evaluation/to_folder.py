"""Evaluate inside a program such as a trainer, and write the results to a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vlmgym.evaluation.config import EvalConfig
from vlmgym.policies import Policy
from vlmgym.runs.record import RunSummary
from vlmgym.runs.run import RunFolder
from vlmgym.runs.store import open_run
from vlmgym.sandbox.core.game import Game
from vlmgym.workers.pool import ProcessPool


def evaluate_to_folder(
    folder: Path, games: Sequence[Game[Any, Any]], policy: Policy, config: EvalConfig, console: Console
) -> RunSummary:
    """Play episodes in this process, write a run folder (records, summary, curves), and return the summary.

    Files of an earlier evaluation in the same folder are removed first.

    Raises:
        VlmgymError: The run failed.
    """
    # Imported here because many programs import `vlmgym.evaluation` but never write a run.
    from vlmgym.evaluation.artifacts import session_summary, write_curves
    from vlmgym.evaluation.run import make_run_record, play_run

    run_folder = RunFolder(folder)
    with run_folder.reserved(), ProcessPool(0) as workers:
        run_folder.begin(make_run_record(config, games, policy))
        session = play_run(run_folder, games, policy, config, None, workers, console, standalone=False)
        run = open_run(run_folder)
        summary = session_summary(run, session)
        run_folder.write_summary(summary)
        write_curves(run)
    return summary
