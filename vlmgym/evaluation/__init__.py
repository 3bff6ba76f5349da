"""Episodes played by a policy, their records, and what follows from records alone: summary, curves, videos."""

from vlmgym.evaluation.budget import Budget
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.record import EpisodeRecord, GameRunRecord, RunRecord, RunSummary, Summary, TurnRecord
from vlmgym.evaluation.run_folder import RunFolder
from vlmgym.evaluation.runner import Hooks, evaluate
from vlmgym.evaluation.script import evaluate_script
from vlmgym.evaluation.stored import Run, StoredEpisode, StoredRun, find_run, read_run

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
    "evaluate_script",
    "find_run",
    "read_run",
]
