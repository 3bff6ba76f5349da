"""The states of a run as a dataset for verl, in place of files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import Dataset

from vlmgym import Episode
from vlmgym.curriculum import Curriculum, Pick
from vlmgym.errors import UsageError
from vlmgym.rollout.states import VALIDATION_STREAM
from vlmgym.training.easyr1.settings import Section
from vlmgym.training.states import advance, start_rollouts

VALIDATION = "validation"


class GameDataset(Dataset[dict[str, Any]]):
    """States from which episodes start, each a pure function of the settings and its index.

    Args:
        data_files: `validation` for initial states of each game at its last stage, otherwise the states of training.
        config: verl's options of `data`, with the section `vlmgym`.
        max_samples: Number of states.
    """

    def __init__(self, data_files: str, config: Any, max_samples: int, **_: Any) -> None:
        section = Section.read(config.vlmgym)
        self.curriculum, self.validation = section.make_curriculum(), data_files == VALIDATION
        if self.validation:
            entries, count = self.curriculum.entries, section.validation.episodes
            self.picks = [Pick(i // count, entries[i // count].stages[-1].game, None) for i in range(max_samples)]
            play = replace(section.play, max_turns=section.validation.max_turns)
            states = replace(section.states, moves=(0, 0), informative=False)
            self.start = (VALIDATION_STREAM, 1, play, states, section.reward)
        else:
            self.picks = training_picks(self.curriculum, config.seed, config.train_batch_size, max_samples)
            self.start = (config.seed, 1, section.play, section.states, section.reward)

    def __len__(self) -> int:
        return len(self.picks)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a row with the columns that verl and vlmgym's agent loop read."""
        (rollout,) = start_rollouts({index: self.picks[index]}, *self.start, validation=self.validation)
        episode = Episode.of(rollout)
        return {
            "agent_name": "vlmgym",
            "data_source": rollout.pick.game.id,
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),  # verl needs one
            "extra_info": {"index": index, "snapshot": episode.snapshot()},
            "index": index,
            "raw_prompt": [{"role": "user", "content": episode.prompt}],
            "reward_model": {"style": "rule", "ground_truth": ""},
        }


def training_picks(curriculum: Curriculum, seed: int, batch_size: int, count: int) -> list[Pick]:
    """Return the game of each of `count` states.

    Raises:
        UsageError: The curriculum depends on success, which is not known yet.
    """
    if curriculum.by_success:
        raise UsageError("verl reads states in advance: choose a curriculum whose stages advance by step or by episode")
    picks, progress = list[Pick](), curriculum.begin()
    while len(picks) < count:
        batch = curriculum.picks(progress, seed, range(len(picks), len(picks) + batch_size))
        picks += batch.values()
        progress = advance(curriculum, progress, ((index, pick, 0.0) for index, pick in batch.items()))
    return picks
