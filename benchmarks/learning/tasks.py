"""Tasks: options that differ from the preset `single_moves`, and their description on the page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task with single answers and rewards of 0 or 1, so the mean reward is the share of rewarded answers.

    Attributes:
        args: Options of `vlmgym train`.
        title: Title of the page.
        question: Description of the task and of the figures in the table.
        reward_label: Label of the reward axis.
        sft_outcome: What SFT teaches, and what is left to RL.
        seeds: Sentence about the seeds with which settings were chosen.
    """

    args: list[str]
    title: str
    question: str
    reward_label: str
    sft_outcome: str
    seeds: str = "Settings were chosen with other seeds"


MERGES = (
    "The model answers with a single move of 2048 on a {} board with tiles up to {}, in states where the direction "
    "matters. The table shows the share of moves that merge tiles"
)
SFT_OUTCOME = (
    "In SFT, {} of the target answers are correct and the others are random. Correct answers are therefore already the "
    "most likely ones wherever the model reads the board correctly, and RL makes it confident in them"
)
TASKS: dict[str, Task] = {
    "4x4": Task(
        shlex.split(
            "--config rows=4 columns=4 --size 128 --states.moves 0 40 --rollout.max-tokens 120 --settings sft.target=1"
        ),
        "2048 on 4x4",
        MERGES.format("4x4", 8),
        "share of moves that merge",
        SFT_OUTCOME.format("two fifths"),
    ),
    "shisensho": Task(
        shlex.split(
            "--games shisensho --config rows=4 columns=4 copies=4 colours=4 shapes=1 theme=dark similarity=0.0 "
            "'prompt=Write the board, equal tiles, and a pair that a path joins.' --size 128 --states.moves 6 6 "
            "--states.no-informative --settings reward.shaping=sign reward.illegal=0 reward.unparsable=0 "
            "--rollout.max-tokens 200 "
            "--sft.expert oracle --sft.accuracy 0.5 --sft.steps 900 --settings sft.target=2 --steps 120"
        ),
        "Shisen-Sho on 4x4",
        "The model answers once in Shisen-Sho, with the coordinates of two equal tiles connected by a path, on a 4x4 "
        "board with four colours and four tiles left. The table shows the share of answers that take a pair",
        "share of answers that take a pair",
        "In SFT, half of the target answers are correct and the others are random. RL makes the model confident in the "
        "correct ones, and also corrects many of the most likely answers",
    ),
}
"""Tasks by name."""
