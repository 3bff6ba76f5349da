"""Episodes played by a policy, their records, and what follows from records alone: summary, curves, videos."""

from vlmgym.evaluation.budget import Budget
from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.record import EpisodeRecord, GameRunRecord, RunRecord, RunSummary, Summary, TurnRecord
from vlmgym.evaluation.run_folder import Run, RunFolder, read_run
from vlmgym.evaluation.runner import Hooks, evaluate
from vlmgym.evaluation.script import evaluate_script

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
    "Summary",
    "TurnRecord",
    "evaluate",
    "evaluate_script",
    "read_run",
]
