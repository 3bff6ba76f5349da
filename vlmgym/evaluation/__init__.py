"""Evaluate policies: play episodes, record them, and make summaries, curves and videos."""

from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.to_folder import evaluate_to_folder
from vlmgym.records.episode import EpisodeRecord, TurnRecord
from vlmgym.records.run import GameRunRecord, RunRecord, RunSummary, Summary
from vlmgym.records.run_folder import RunFolder
from vlmgym.records.store import Run, StoredEpisode, StoredRun, open_run, read_run
from vlmgym.rollout.limits import Budget
from vlmgym.rollout.runner import Hooks, evaluate

__all__ = [
    "Budget",
    "EpisodeRecord",
    "EvalConfig",
    "GameRunRecord",
    "Hooks",
    "Run",
    "RunFolder",
    "RunRecord",
    "RunSummary",
    "StoredEpisode",
    "StoredRun",
    "Summary",
    "TurnRecord",
    "evaluate",
    "evaluate_to_folder",
    "open_run",
    "read_run",
]
