"""Tasks: options that differ from the preset `tiny`, and their description on the page."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task of single answers whose mean reward is a share.

    Attributes:
        args: Options of `training.local.train`.
        what: Title.
        asked: What the model is asked, and the meaning of the reward.
        share: Label of the reward's axis.
        known: What SFT leaves to be learned by RL.
        seeds: Whether settings were chosen with the seeds of the page.
    """

    args: list[str]
    what: str
    asked: str
    share: str
    known: str
    seeds: str = "no setting was chosen with these seeds"


MERGES = (
    "A single move of 2048 on a board of {} with tiles up to {}, from positions in which it matters which way tiles "
    "slide: the share of moves that merge tiles"
)
KNOWN = (
    "The answers of the cold start are right {} and else random, so that its likeliest answers are right already "
    "wherever the board is seen rightly: what rewards teach here is to be sure of them"
)
TASKS: dict[str, Task] = {
    "3x3": Task(
        [],
        "2048 on 3x3",
        MERGES.format("3x3", 8),
        "share of moves that merge",
        KNOWN.format("two times in five"),
        "settings were chosen with other seeds, but seed 10 was among those of the first tries",
    ),
    "4x4": Task(
        shlex.split("--config rows=4 columns=4 --size 128 --states.moves 0 40 --rollout.max-tokens 120 --sft.target 1"),
        "2048 on 4x4",
        MERGES.format("4x4", 8),
        "share of moves that merge",
        KNOWN.format("two times in five"),
    ),
    "shisensho": Task(
        shlex.split(
            "--games shisensho --config rows=4 columns=4 copies=4 colours=4 shapes=1 theme=dark similarity=0.0 "
            "'prompt=Write the board, equal tiles, and a pair that a path joins.' --size 128 --states.moves 6 6 "
            "--states.no-informative --reward.illegal 0 --reward.unparsable 0 --rollout.max-tokens 200 "
            "--sft.expert oracle --sft.accuracy 0.5 --sft.steps 900 --sft.target 2 --steps 120"
        ),
        "Shisen-Sho on 4x4",
        "A single answer in Shisen-Sho, two coordinates of equal tiles that a path joins, on a board of 4x4 with four "
        "colours and four tiles left: the share of answers that take a pair",
        "share of answers that take a pair",
        "The answers of the cold start are right half of the time and else random: what rewards teach is to be sure of "
        "the right ones, and the likeliest answers become better, too",
    ),
}
"""Tasks by name."""
