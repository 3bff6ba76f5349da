"""Configuration of a training run. Field docstrings are the help of the command line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from training.core.expert import Expert
from training.core.states import PlayConfig, blank
from training.tiny_vlm import TinySize
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.policies.base import identity
from vlmgym.rollout.states import StateConfig
from vlmgym.rollout.turn import Transform
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.options import GameOptions

DEFAULT_GAMES = ("2048",)
"""Games played if neither games nor a curriculum are given."""
LIMITS = {
    "above_0": (math.ulp(0.0), math.inf, "above 0"),
    "at_least_0": (0, math.inf, "at least 0"),
    "at_least_1": (1, math.inf, "at least 1"),
    "fractions": (0, 1, "between 0 and 1"),
}
"""Minimum, maximum and description of the limits of `check_numbers`."""


def check_numbers(config: object, **limits: Sequence[str]) -> None:
    """Raise `UsageError` unless fields of a config, named by their limit, are finite and within it, or None."""
    for limit, names in limits.items():
        least, most, text = LIMITS[limit]
        for name in names:
            value: float | None = getattr(config, name)
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise UsageError(f"{name} must be {text}, got {value}")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Model, precision and memory options."""

    model: str | None = None
    """Folder or Hub name of a Qwen2-VL, Qwen2.5-VL or Qwen3-VL. Default: create a tiny, random Qwen3-VL."""
    device: str | None = None
    """Device, for instance cpu or cuda:1. Default: a GPU if available."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of weights and activations."""
    lora: int = 0
    """Rank of LoRA adapters on all linear layers of the language model. 0 trains all weights."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, but needs less memory."""
    threads: int = 1
    """CPU threads of torch. 1 is fastest for a tiny model."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least_0=("lora",), at_least_1=("threads",))
        if self.dtype == "bfloat16" and not self.lora:
            raise UsageError("bfloat16 weights lose small updates: add --lora 64, or use --dtype float32")


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """Sampling options."""

    max_tokens: int = 512
    """Maximum response length in tokens."""
    temperature: float = 1.0
    """Sampling temperature, also applied to the log-probabilities in the loss."""
    batch_size: int = 64
    """Maximum generation batch size."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least_0=("temperature",), at_least_1=("max_tokens", "batch_size"))


@dataclass(frozen=True, kw_only=True)
class SftConfig:
    """Supervised fine-tuning before reinforcement learning (cold start)."""

    steps: int = 0
    """Maximum number of batches. 0 skips it."""
    batch_size: int = 32
    """Responses per batch, each to a new state."""
    lr: float = 3e-3
    """Peak learning rate: 20 steps of linear warm-up, then cosine decay to 2%."""
    accuracy: float = 0.4
    """Fraction of answers by the expert; the others are random, which leaves the right answer to be learned from
    rewards."""
    expert: Expert = "greedy"
    """Source of right answers: the oracle of the game, its simple rule, or an action with the highest immediate reward
    (greedy)."""
    random_turns: int = 0
    """Maximum number of random turns before a state, drawn uniformly, so that the model has seen prompts with feedback
    on an invalid turn. With --play.max-turns above 1, at least 1."""
    target: float = 0.99
    """Stop once perception accuracy and format compliance of generated responses reach this. Above 1, take all
    steps."""
    check_interval: int = 100
    """Steps between these checks. The last step is always checked."""
    gate: float = 0.5
    """Minimum perception accuracy and format compliance to start reinforcement learning, which has no signal to learn
    from below it."""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            above_0=("lr",),
            at_least_0=("steps", "target", "random_turns"),
            at_least_1=("batch_size", "check_interval"),
            fractions=("accuracy", "gate"),
        )


@dataclass(frozen=True, kw_only=True)
class GrpoConfig:
    """Group relative policy optimisation (Shao et al. 2024, https://arxiv.org/abs/2402.03300)."""

    group_size: int = 8
    """Episodes per initial state."""
    epochs: int = 1
    """Passes over the responses of a step."""
    minibatches: int = 1
    """Updates per pass. With a single update per step, nothing is clipped."""
    scale_rewards: bool = True
    """Divide by the standard deviation of the group. Turn off, with --update.loss-over constant, for Dr. GRPO."""
    gamma: float = 1.0
    """Discount factor per turn."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least_1=("epochs", "minibatches"), fractions=("gamma",))
        if self.group_size < 2:
            raise UsageError(f"group_size must be at least 2, got {self.group_size}")


@dataclass(frozen=True, kw_only=True)
class PpoConfig:
    """Proximal policy optimisation with a value head (Schulman et al. 2017, https://arxiv.org/abs/1707.06347)."""

    lr: float | None = None
    """Peak learning rate of the model. Default: --update.lr."""
    epochs: int = 4
    """Passes over the responses of a step."""
    minibatches: int = 4
    """Updates per pass."""
    gamma: float = 0.99
    """Discount factor per turn."""
    lam: float = 0.95
    """GAE lambda over turns."""
    gae_over: Literal["turns", "tokens"] = "turns"
    """Steps of GAE. turns: the critic values the state before a response, and all tokens of the response share the
    advantage. tokens: it values each token, with `token_gamma` and `token_lam` within a response."""
    token_gamma: float = 1.0
    """Discount factor per token."""
    token_lam: float = 1.0
    """GAE lambda over tokens."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    entropy_coef: float = 0.01
    """Coefficient of the entropy bonus."""
    value_coef: float = 0.5
    """Coefficient of the value loss."""
    value_clip: float = 0.2
    """Clip range of value updates, in units of the reward. 0 turns clipping off."""
    value_lr: float = 1e-2
    """Learning rate of the value head."""
    whiten: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 over the tokens of a step."""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            at_least_0=("lr", "clip", "entropy_coef", "value_coef", "value_clip", "value_lr"),
            at_least_1=("epochs", "minibatches"),
            fractions=("gamma", "lam", "token_gamma", "token_lam"),
        )


@dataclass(frozen=True, kw_only=True)
class UpdateConfig:
    """Optimiser and loss."""

    lr: float = 1e-6
    """Peak learning rate."""
    warmup_steps: int = 10
    """Steps of linear warm-up."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Betas of AdamW."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    max_grad_norm: float = 1.0
    """Maximum gradient norm."""
    clip_low: float = 0.2
    """Lower clip range of GRPO's probability ratio, which only matters with several updates per step."""
    clip_high: float = 0.28
    """Upper clip range; above clip_low it keeps rare tokens alive (DAPO, https://arxiv.org/abs/2503.14476)."""
    entropy_coef: float = 0.0
    """Coefficient of GRPO's entropy bonus."""
    kl_coef: float = 0.0
    """Coefficient of the KL divergence from the model before reinforcement learning."""
    kl_target: float | None = None
    """Adapt that coefficient to keep the divergence near this many nats per token (Ziegler et al. 2019,
    https://arxiv.org/abs/1909.08593). Default: keep it fixed."""
    loss_over: Literal["tokens", "responses", "constant"] = "tokens"
    """Averaging of the loss. tokens: over all tokens; responses: over the tokens of each response, then over responses;
    constant: over responses x max_tokens (Dr. GRPO)."""
    max_loss: float = 1e3
    """Stop if the policy loss exceeds this. Advantages are of order 1, so a healthy loss is near 0."""
    micro_batch_size: int = 64
    """Maximum number of responses per forward and backward pass. Fewer need less memory."""

    def __post_init__(self) -> None:
        check_numbers(
            self,
            above_0=("max_grad_norm", "max_loss"),
            at_least_0=("lr", "warmup_steps", "weight_decay", "clip_low", "clip_high", "entropy_coef", "kl_coef"),
            at_least_1=("micro_batch_size",),
        )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"betas must be at least 0 and below 1, got {self.betas}")
        if self.kl_target is not None and not (self.kl_target > 0 and self.kl_coef > 0):
            raise UsageError("kl_target must be above 0, and needs an initial --update.kl-coef above 0")


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Evaluation before and after training, on states and episodes that are not trained on."""

    states: int = 256
    """Validation states, with one response each."""
    episodes: int = 16
    """Whole episodes per game, with records, curves and a report."""
    max_turns: int = 50
    """Maximum number of turns of these episodes."""
    temperature: float = 1.0
    """Sampling temperature. 0 is greedy."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least_0=("states", "episodes", "temperature"), at_least_1=("max_turns",))


@dataclass(frozen=True, kw_only=True)
class TrainConfig(GameOptions):
    """Train a Qwen-VL on games by GRPO or PPO, in a single process."""

    preset: str | None = None
    """Base options: tiny or single_moves (a CPU), 1x24gb, 1x80gb, or a file of options. Other options override them.
    Default: tiny, or 1x24gb with --model."""
    algorithm: Literal["grpo", "ppo"] = "grpo"
    """Algorithm of reinforcement learning."""
    games: tuple[str, ...] | None = None
    """Games or tasks, sampled with equal weights. Default: 2048."""
    curriculum: Path | None = None
    """Curriculum to use instead: a TOML file, or a name such as geospot-mixtrain (docs/curricula.md)."""
    steps: int = 100
    """Steps of reinforcement learning."""
    batch_size: int = 64
    """Episodes per step: one per initial state with PPO, --grpo.group-size with GRPO."""
    seed: int = 0
    """Seed of states, tokens, minibatches, and of the weights of a tiny model."""
    output_dir: Path | None = None
    """Output folder. Default: a new folder in logs/."""
    resume: Path | None = None
    """Run to resume with its options: its folder, for the last checkpoint, or RUN/checkpoints/step_..., which puts
    aside later steps."""
    checkpoint_interval: int = 50
    """Steps between checkpoints."""
    keep_checkpoints: int = 2
    """Number of checkpoints to keep."""
    save_merged: bool = False
    """With --lora, also save the merged model in each checkpoint. The final model is always merged."""
    record_interval: int = 1
    """Steps between recorded rollouts. 0 records none."""
    wandb: str | None = None
    """Weights & Biases project to log to. TensorBoard files are always written."""
    check: bool = False
    """Report problems and the schedule of the curriculum, without training."""
    blank: bool = False
    """Train on grey images: a control for what can be learned without vision."""
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = field(default_factory=ModelConfig)
    tiny: TinySize = field(default_factory=TinySize)
    play: PlayConfig = field(default_factory=PlayConfig)
    states: StateConfig = field(default_factory=StateConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    grpo: GrpoConfig = field(default_factory=GrpoConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        at_least_1 = ("batch_size", "checkpoint_interval", "keep_checkpoints")
        check_numbers(self, at_least_0=("steps", "record_interval"), at_least_1=at_least_1)
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed must be at least 0 and below 2^63, got {self.seed}")
        if self.batch_size % self.group_size:
            raise UsageError(f"batch_size must be a multiple of group_size {self.group_size}, got {self.batch_size}")
        if (minibatches := self.method.minibatches) > self.batch_size:
            raise UsageError(
                f"{self.algorithm}.minibatches must be at most batch_size {self.batch_size}, got {minibatches}"
            )
        if self.rollout.temperature == 0:
            raise UsageError("rollout.temperature must be above 0: greedy rollouts do not explore")
        if self.blank and self.play.has_descriptions:
            raise UsageError("blank hides what images show, which descriptions tell: remove --play.observation")
        if self.games is not None and self.curriculum is not None:
            raise UsageError("a curriculum selects its own games: use either --games or --curriculum")
        if self.algorithm == "ppo":
            for name, ppo in (("entropy_coef", "entropy-coef"), ("clip_low", "clip"), ("clip_high", "clip")):
                if getattr(self.update, name) != getattr(UpdateConfig, name):
                    option = f"--update.{name.replace('_', '-')}"
                    raise UsageError(f"{option} only applies to GRPO: use --ppo.{ppo} with PPO")

    @property
    def method(self) -> GrpoConfig | PpoConfig:
        """Options of the algorithm."""
        return self.grpo if self.algorithm == "grpo" else self.ppo

    @property
    def group_size(self) -> int:
        """Episodes per initial state."""
        return self.grpo.group_size if self.algorithm == "grpo" else 1

    @property
    def prompts(self) -> int:
        """Initial states per step."""
        return self.batch_size // self.group_size

    @property
    def transform(self) -> Transform:
        """Transform applied to each image before the model sees it."""
        return blank if self.blank else identity

    def make_curriculum(self) -> Curriculum:
        """Create the games and their stages; raise `UsageError` if one does not exist, or options do not fit."""
        if self.curriculum is None:
            curriculum = Curriculum.of([self.make_game(game) for game in self.games or DEFAULT_GAMES])
        else:
            curriculum = Curriculum.read(self.curriculum, self.data_settings())
        for game in curriculum.games:
            self.play.check(game)
        return curriculum
