"""The public interface for trainers and evaluators, documented in docs/api.md; import its names from `vlmgym`."""

from vlmgym.api.card import dataset_card as dataset_card
from vlmgym.api.dataset import Row as Row
from vlmgym.api.dataset import make_dataset as make_dataset
from vlmgym.api.dataset import make_episodes as make_episodes
from vlmgym.api.dataset import to_hf_dataset as to_hf_dataset
from vlmgym.api.episode import Episode as Episode
from vlmgym.api.episode import reward_fn as reward_fn
from vlmgym.api.episode import score as score
from vlmgym.rollout.states import StateConfig as StateConfig
from vlmgym.sandbox.core.reward import Outcome as Outcome
from vlmgym.sandbox.core.reward import RewardConfig as RewardConfig
from vlmgym.sandbox.core.reward import Scored as Scored
