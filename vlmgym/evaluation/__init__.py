"""Evaluate policies: play episodes, record them, and make summaries, curves and videos."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlmgym.evaluation.config import EvalConfig
    from vlmgym.evaluation.run import evaluate, evaluate_run, write_curves
    from vlmgym.rollout.runner import Hooks
    from vlmgym.rollout.settings import Budget
    from vlmgym.runs.record import EpisodeRecord, GameRunRecord, RunRecord, RunSummary, Summary, TurnRecord
    from vlmgym.runs.run import RunFolder
    from vlmgym.runs.store import Run, StoredEpisode, StoredRun, open_run, read_run

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
    "evaluate_run",
    "open_run",
    "read_run",
    "write_curves",
]

_MODULES = {
    **dict.fromkeys(["EvalConfig"], "vlmgym.evaluation.config"),
    **dict.fromkeys(["evaluate", "evaluate_run", "write_curves"], "vlmgym.evaluation.run"),
    **dict.fromkeys(["EpisodeRecord", "TurnRecord"], "vlmgym.runs.record"),
    **dict.fromkeys(["GameRunRecord", "RunRecord", "RunSummary", "Summary"], "vlmgym.runs.record"),
    **dict.fromkeys(["RunFolder"], "vlmgym.runs.run"),
    **dict.fromkeys(["Run", "StoredEpisode", "StoredRun", "open_run", "read_run"], "vlmgym.runs.store"),
    **dict.fromkeys(["Budget"], "vlmgym.rollout.settings"),
    **dict.fromkeys(["Hooks"], "vlmgym.rollout.runner"),
}


def __getattr__(name: str) -> Any:
    """Import names on first use, because most commands need few of them."""
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value
    raise AttributeError(f"module 'vlmgym.evaluation' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # for documentation and completion
