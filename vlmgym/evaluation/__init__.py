"""Episodes played by a policy, their records, and what follows from records alone: summary, curves, videos."""

from vlmgym.evaluation.config import EvalConfig
from vlmgym.evaluation.record import EpisodeRecord, RunRecord, TurnRecord
from vlmgym.evaluation.runner import evaluate
from vlmgym.evaluation.script import evaluate_script

__all__ = ["EpisodeRecord", "EvalConfig", "RunRecord", "TurnRecord", "evaluate", "evaluate_script"]
