"""`vlmgym submit`: pack or check a submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from vlmgym.evaluation.submission.check import CheckConfig, check
from vlmgym.evaluation.submission.pack import PackConfig, pack


@dataclass(frozen=True, kw_only=True)
class SubmitConfig:
    """Make a submission from a run of a suite, or check one."""

    config: Annotated[
        Annotated[PackConfig, tyro.conf.subcommand("pack")] | Annotated[CheckConfig, tyro.conf.subcommand("check")],
        tyro.conf.arg(name=""),
    ]


def submit(chosen: SubmitConfig) -> None:
    """Pack or check."""
    if isinstance(chosen.config, PackConfig):
        pack(chosen.config)
    else:
        check(chosen.config)
