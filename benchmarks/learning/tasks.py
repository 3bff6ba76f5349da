"""Tasks: options that differ from the preset `single_moves`, and their description on the page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task of single answers whose mean reward is a share.

    Attributes:
        args: Options of `training.local.train`.
        title: Title of the page.
        question: The question, and the meaning of the reward.
        reward_label: Label of the reward axis.
        sft_outcome: Accuracy after SFT, and the part left to RL.
        seeds: Whether settings were chosen with the seeds of the page.
    """

    args: list[str]
    title: str
    question: str
    reward_label: str
    sft_outcome: str
    seeds: str = "settings were chosen with other seeds"


MERGES = (
    "A single move of 2048 on a {} board with tiles up to {}, in states where the direction matters: the share of "
    "moves that merge tiles"
)
SFT_OUTCOME = (
    "SFT answers are correct {} and random otherwise, so the most likely answers are already correct wherever the "
    "board is read correctly; RL makes the model confident in them"
)
TASKS: dict[str, Task] = {
    "3x3": Task(
        [],
        "2048 on 3x3",
        MERGES.format("3x3", 8),
        "share of moves that merge",
        SFT_OUTCOME.format("in two of five cases"),
        "settings were chosen with other seeds, except that seed 10 was used in early experiments",
    ),
    "4x4": Task(
        shlex.split("--config rows=4 columns=4 --size 128 --states.moves 0 40 --rollout.max-tokens 120 --sft.target 1"),
        "2048 on 4x4",
        MERGES.format("4x4", 8),
        "share of moves that merge",
        SFT_OUTCOME.format("in two of five cases"),
    ),
    "shisensho": Task(
        shlex.split(
            "--games shisensho --config rows=4 columns=4 copies=4 colours=4 shapes=1 theme=dark similarity=0.0 "
            "'prompt=Write the board, equal tiles, and a pair that a path joins.' --size 128 --states.moves 6 6 "
            "--states.no-informative --reward.shaping sign --reward.illegal 0 --reward.unparsable 0 "
            "--rollout.max-tokens 200 "
            "--sft.expert oracle --sft.accuracy 0.5 --sft.steps 900 --sft.target 2 --steps 120"
        ),
        "Shisen-Sho on 4x4",
        "A single answer in Shisen-Sho, the coordinates of two equal tiles connected by a path, on a 4x4 board with "
        "four colours and four tiles left: the share of answers that take a pair",
        "share of answers that take a pair",
        "SFT answers are correct in half of the cases and random otherwise; RL makes the model confident in the "
        "correct ones, and improves the most likely answers too",
    ),
}
"""Tasks by name."""
