"""The public interface for trainers and evaluators, documented in docs/api.md; import its names from `vlmgym`."""

from vlmgym.api.card import dataset_card
from vlmgym.api.dataset import Row, make_dataset, make_episodes, to_hf_dataset
from vlmgym.api.episode import Episode, reward_fn, score
from vlmgym.rollout.states import StateConfig
from vlmgym.sandbox.core.reward import Outcome, RewardConfig, Scored

__all__ = [
    "Episode",
    "Outcome",
    "RewardConfig",
    "Row",
    "Scored",
    "StateConfig",
    "dataset_card",
    "make_dataset",
    "make_episodes",
    "reward_fn",
    "score",
    "to_hf_dataset",
]
