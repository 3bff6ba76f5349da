"""`vlmgym check-vision`: ask a model for digits in images, to find out whether the right images reach it at the right
turn.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vlmgym.cli.eval import option_value, parse_with_policy
from vlmgym.errors import UsageError
from vlmgym.evaluation.vision import FAULTS, Finding, check_vision
from vlmgym.policies import ModelPolicy, make_policy, options_type
from vlmgym.policies.base import SamplingOptions
from vlmgym.terminal import make_console

VERDICTS = {"right": "ok", "wrong": "FAULT", "unclear": "unclear"}
NOT_SHOWN = 1
"""Exit code if there is a fault, or if it is unclear whether there is one."""


@dataclass(frozen=True, kw_only=True)
class CheckVisionConfig:
    """Options of `vlmgym check-vision`."""

    policy: str = "openai"
    """openai, vllm, transformers, or MODULE:NAME or FILE.py:NAME of a function or a ModelPolicy.
    Each policy has its own options: --policy vllm --help."""


def run_check_vision(args: Sequence[str], about: str) -> None:
    """Run `vlmgym check-vision` with the options of a command line; `about` describes it in the help."""
    kind = options_type(option_value("--policy", args) or CheckVisionConfig.policy)
    defaults: dict[str, Any] = {"temperature": 0.0} if issubclass(kind, SamplingOptions) else {}
    config, options = parse_with_policy(CheckVisionConfig(), kind(**defaults), args, "vlmgym check-vision", about)
    policy = make_policy(config.policy, options)
    if not isinstance(policy, ModelPolicy):
        raise UsageError(f"the {config.policy} policy sees no images: choose openai, vllm, transformers or your own")
    console = make_console()
    columns = (SpinnerColumn(), TextColumn("asking"), TimeElapsedColumn())
    with Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        progress.add_task("asking", total=None)
        findings = check_vision(policy, on_finding=lambda finding: console.print(_line(finding), soft_wrap=True))
    faults = {finding.fault: finding.evidence for finding in findings if finding.verdict == "wrong"}
    for fault, evidence in faults.items():
        console.print(f"fault: {FAULTS[fault].meaning}{f' ({evidence})' if evidence else ''}", soft_wrap=True)
    unclear = [finding for finding in findings if finding.verdict == "unclear"]
    for finding in () if faults else unclear:
        meaning = FAULTS[finding.fault].meaning if finding.fault else "images are lost, damaged or mixed up"
        console.print(f"unclear: {meaning}, or the model is too weak ({finding.probe})", soft_wrap=True)
    if faults or unclear:
        sys.exit(NOT_SHOWN)
    passed = [finding for finding in findings if finding.passed]
    right, questions = sum(finding.right for finding in passed), sum(finding.questions for finding in passed)
    errors = f"; {questions - right} of {questions} answers are wrong: a weak model, or images that are lost at times"
    console.print(f"the right images reach the model{errors if right < questions else ''}", soft_wrap=True)


def _line(finding: Finding) -> str:
    """Show a finding as verdict, right answers and probe."""
    evidence = f" ({finding.evidence})" if finding.evidence and finding.verdict != "wrong" else ""
    share = f"{finding.right}/{finding.questions}"
    return f"{VERDICTS[finding.verdict]:<8}{share:<6}{finding.probe}{evidence}"
