"""`vlmgym train`: train a Qwen-VL on games by GRPO, PPO, distillation or DAgger, on one machine.

Settings of a training run: options, TOML files and presets. Field docstrings are the help.

Fields marked `Fixed` are set in TOML files or by --settings, and have no option.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from tyro.conf import Fixed

from vlmgym.checks import read_toml
from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError, describe_validation_error, short_repr
from vlmgym.policies.base import identity
from vlmgym.rollout.states import StateConfig
from vlmgym.rollout.turn import Transform
from vlmgym.sandbox.core.config import parse_config_fields
from vlmgym.sandbox.core.prompt import blank
from vlmgym.sandbox.core.reward import RewardConfig
from vlmgym.sandbox.core.task import Task
from vlmgym.sandbox.options import GameOptions
from vlmgym.sandbox.registry import make_game
from vlmgym.training.algorithm import Algorithm, Options, cosine_rate
from vlmgym.training.dagger import Dagger
from vlmgym.training.grpo import Distill, Grpo
from vlmgym.training.ppo import Ppo
from vlmgym.training.sft import Sft
from vlmgym.training.states import Expert, MultiTurnConfig
from vlmgym.workers.pool import available_cores

DEFAULT_GAMES = ("2048",)
"""Games played if neither games nor a curriculum are given."""
Beta = Annotated[float, Field(ge=0, lt=1)]
Kind = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5", "internvl"]
"""Model types in transformers that tests train."""
HEAD_SIZE = 32
"""Head size of tiny models: the minimum of vLLM's attention on the CPU."""
MIN_IMAGE_TOKENS = 4
"""Minimum number of tokens per image of a tiny model; smaller images are enlarged."""
Width = Annotated[int, Field(gt=0, multiple_of=HEAD_SIZE)]


@dataclass(frozen=True, kw_only=True)
class TinySize(Options):
    """Size of a tiny model. The defaults give 0.3 million parameters."""

    kind: Kind = "qwen3_vl"
    """Model type of a tiny model that a run creates."""
    hidden: Width = 64
    """Width of the language model, a multiple of 32."""
    layers: PositiveInt = 3
    """Layers of the language model."""
    vision_hidden: Width = 32
    """Width of the vision encoder, a multiple of 32."""
    vision_layers: PositiveInt = 2
    """Layers of the vision encoder."""
    vocabulary: PositiveInt = 1024
    """Maximum vocabulary size; the texts of the games need about 700 tokens."""
    words: NonNegativeInt = 0
    """Number of frequent words that become single tokens, including any leading space and trailing punctuation.
    A frequent number is then one token instead of one per digit."""
    tied: bool = True
    """Tie input and output embeddings. An untrained model with tied embeddings repeats the last token."""
    context: PositiveInt = 4096
    """Maximum number of tokens in prompt and response together."""
    image_tokens: Annotated[int, Field(ge=MIN_IMAGE_TOKENS)] = 256
    """Maximum number of tokens per image; larger images are shrunk. A token covers 28x28 pixels, 32x32 in Qwen3-VL."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Options):
    """Model, precision and memory options."""

    model: str | None = None
    """Folder or Hub name of a vision-language model, such as a Qwen3-VL; docs/models.md lists what was tested.
    None creates a tiny, randomly initialised Qwen3-VL."""
    device: str | None = None
    """Device, for instance cpu or cuda:1. None means a GPU if available."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of weights and activations."""
    lora: NonNegativeInt = 0
    """Rank of LoRA adapters on all linear layers of the language model. 0 trains all weights."""
    enable_thinking: bool | None = None
    """Turn a model's own thinking on or off, if its chat template has this switch, as those of Qwen3.5 and Qwen3.6.
    None leaves it to the template."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: slower, but needs less memory."""
    threads: Fixed[PositiveInt] = 1
    """CPU threads of torch per process. 1 is fastest for a tiny model."""

    @property
    def used_device(self) -> str:
        """Device to train on."""
        if self.device is not None:
            return self.device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(Options):
    """Sampling options."""

    max_tokens: PositiveInt = 512
    """Maximum response length in tokens."""
    temperature: Fixed[NonNegativeFloat] = 1.0
    """Sampling temperature, also applied to the log-probabilities in the loss."""
    batch_size: PositiveInt = 64
    """Maximum generation batch size."""


@dataclass(frozen=True, kw_only=True)
class UpdateConfig(Options):
    """Optimiser and loss."""

    lr: NonNegativeFloat = 1e-6
    """Peak learning rate."""
    warmup_steps: Fixed[NonNegativeInt] = 10
    """Steps of linear warm-up."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or cosine decay to 2% at the last step."""
    betas: Fixed[tuple[Beta, Beta]] = (0.9, 0.95)
    """Betas of AdamW."""
    weight_decay: Fixed[NonNegativeFloat] = 0.0
    """Weight decay of AdamW."""
    max_grad_norm: Fixed[PositiveFloat] = 1.0
    """Maximum gradient norm."""
    kl_coef: NonNegativeFloat = 0.0
    """Coefficient of the KL divergence from the model before reinforcement learning."""
    perception_coef: NonNegativeFloat = 0.0
    """Coefficient of a supervised loss on the true <perception> of the states of a step: the mean negative
    log-likelihood of its tokens, as the start of a response. 0.1 keeps what rewards would make the model forget."""
    loss_over: Fixed[Literal["tokens", "responses", "constant"]] = "tokens"
    """Averaging of the loss.
    tokens: over all tokens.
    responses: over the tokens of each response, then over responses.
    constant: the sum over tokens, divided by responses x --rollout.max-tokens (Dr. GRPO)."""
    micro_batch_size: PositiveInt = 64
    """Maximum number of responses per forward and backward pass. Lower numbers need less memory."""

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, as a fraction of the peak."""
        warmup = min(1.0, (step + 1) / max(1, self.warmup_steps))
        return warmup * (cosine_rate(step, steps) if self.schedule == "cosine" else 1.0)


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig(Options):
    """Evaluation before and after training, on states and episodes drawn separately from training."""

    states: NonNegativeInt = 256
    """Number of validation states. The model responds once to each."""
    episodes: NonNegativeInt = 16
    """Number of whole episodes per game. Records, curves and a report are written."""
    max_turns: PositiveInt = 50
    """Maximum number of turns per whole episode."""
    temperature: Fixed[NonNegativeFloat] = 1.0
    """Sampling temperature. 0 is greedy."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig(GameOptions, Options):
    """Train a Qwen-VL on games by GRPO, PPO, on-policy distillation or DAgger, on one machine."""

    preset: str | None = None
    """Preset to start from: demo, tiny or single_moves (for a CPU), 1x24gb, 1x80gb, or a TOML file. None means tiny, or
    1x24gb with --model."""
    settings: Annotated[
        tuple[tuple[str, ...], ...], tyro.conf.arg(metavar="FILE|NAME=VALUE ..."), tyro.conf.UseAppendAction
    ] = ()
    """Settings that override the preset: TOML files, or single ones such as ppo.lam=0.9. Options override both.
    Besides all options, there are settings without an option: see docs/training_local.md."""
    algorithm: str = "grpo"
    """Algorithm: grpo; ppo; distill (a teacher scores the tokens of the model's own responses); or dagger (the expert,
    --sft.expert, responds in the states that the model reaches)."""
    games: tuple[str, ...] | None = None
    """Games or tasks, sampled with equal weights. None means 2048."""
    curriculum: Path | None = None
    """Curriculum to use instead of --games: a TOML file, or a name such as geospot-mixtrain (docs/curricula.md)."""
    steps: NonNegativeInt = 100
    """Steps of reinforcement learning."""
    batch_size: PositiveInt = 64
    """Episodes per step. Each initial state has --grpo.group-size or --distill.group-size episodes, otherwise one."""
    processes: PositiveInt | None = None
    """Number of processes on a CPU that share the SFT batches, states and updates, each with a copy of the model.
    None means 2 on a CPU with at least two cores and two states per step, otherwise 1."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of states, tokens and minibatches, and of a tiny model's weights."""
    output_dir: Path | None = None
    """Output folder. None means a new folder in logs/."""
    resume: Path | None = None
    """Run to resume: its folder, to start from the last checkpoint, or the checkpoint RUN/checkpoints/step_....
    The run keeps its options. Later steps are moved to a separate folder."""
    checkpoint_interval: PositiveInt = 50
    """Steps between checkpoints."""
    keep_checkpoints: Fixed[PositiveInt] = 2
    """Number of checkpoints to keep."""
    save_merged: Fixed[bool] = False
    """With --lora, also save the merged model in each checkpoint. The final model is always merged."""
    record_interval: NonNegativeInt = 1
    """Steps between recorded rollouts. 0 records none."""
    wandb: str | None = None
    """Weights & Biases project to log to. TensorBoard files are always written."""
    check: bool = False
    """Report problems and the schedule of the curriculum, without training."""
    control: Literal["blank", "permuted"] | None = None
    """Train a control instead.
    blank: grey images, to see what can be learned without vision.
    permuted: rewards permuted among the episodes of a group, to see what the updates do without a signal."""
    model: Annotated[ModelConfig, tyro.conf.arg(name="")] = field(default_factory=ModelConfig)
    tiny: Fixed[TinySize] = field(default_factory=TinySize)
    play: Annotated[MultiTurnConfig, tyro.conf.arg(name="")] = field(default_factory=MultiTurnConfig)
    states: StateConfig = field(default_factory=StateConfig)
    reward: Fixed[RewardConfig] = field(default_factory=RewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    sft: Sft = field(default_factory=Sft)
    grpo: Grpo = field(default_factory=Grpo)
    ppo: Ppo = field(default_factory=Ppo)
    distill: Distill = field(default_factory=Distill)
    dagger: Dagger = field(default_factory=Dagger)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def check_together(self) -> None:
        """Raise `UsageError` if settings contradict each other."""
        if self.model.dtype == "bfloat16" and not self.model.lora:
            raise UsageError("bfloat16 weights lose small updates: add --lora 64, or use --dtype float32")
        if self.algorithm not in self.algorithms:
            *names, last = self.algorithms
            raise UsageError(f"algorithm must be {', '.join(names)} or {last}, got {short_repr(self.algorithm)}")
        if self.batch_size % self.group_size:
            raise UsageError(f"batch_size must be a multiple of group_size {self.group_size}, got {self.batch_size}")
        if (minibatches := self.method.minibatches) > self.batch_size:
            raise UsageError(
                f"{self.algorithm}.minibatches must be at most batch_size {self.batch_size}, got {minibatches}"
            )
        if self.processes is not None and self.processes > 1:
            if self.processes > self.prompts:
                limit = f"{self.prompts}, the number of states of a step"
                raise UsageError(f"processes must be at most {limit}, got {self.processes}")
            if not self._on_cpu:
                raise UsageError(f"processes above 1 need the CPU, not {self.model.used_device}: add --device cpu")
        if self.rollout.temperature == 0:
            raise UsageError("rollout.temperature must be above 0: greedy rollouts do not explore")
        if self.blank and self.play.has_descriptions:
            raise UsageError("--control blank hides the images, but descriptions reveal them: remove --observation")
        if self.method.imitates and self.update.kl_coef:
            raise UsageError(f"{self.algorithm} learns from responses that are not the model's: remove update.kl_coef")
        if self.control == "permuted" and not self.method.uses_rewards:
            raise UsageError(f"--control permuted has no effect on {self.algorithm}, which does not use rewards")
        if (teacher := self.method.teacher_model) is not None:
            if not self.play.has_images and teacher.observation != "text":
                raise UsageError(f"with --observation text there are no images for a teacher of {teacher.observation}")
            if teacher.checkpoint is None and teacher.observation == self.play.observation:
                raise UsageError(
                    f"the model would be its own teacher, as both read {teacher.observation}: "
                    f"set --{self.algorithm}.teacher or --{self.algorithm}.observation"
                )
            self.play_of_teacher()
        if self.games is not None and self.curriculum is not None:
            raise UsageError("a curriculum selects its own games: use either --games or --curriculum")

    @property
    def _on_cpu(self) -> bool:
        return self.model.used_device.partition(":")[0] == "cpu"

    @property
    def num_processes(self) -> int:
        """Number of processes, given or chosen for this machine."""
        if self.processes is not None:
            return self.processes
        return min(2, available_cores(), self.prompts) if self._on_cpu else 1

    @property
    def algorithms(self) -> list[str]:
        """Names of all algorithms: the fields with their options."""
        return [field.name for field in dataclasses.fields(self) if isinstance(getattr(self, field.name), Algorithm)]

    @property
    def method(self) -> Algorithm:
        """The chosen algorithm."""
        algorithm: Algorithm = getattr(self, self.algorithm)
        return algorithm

    @property
    def expert(self) -> Expert | None:
        """The expert from whose responses the algorithm learns, or None."""
        return self.sft.expert if self.method.imitates else None

    @property
    def group_size(self) -> int:
        """Episodes per initial state."""
        return self.method.episodes_per_state

    @property
    def blank(self) -> bool:
        """Whether all images are grey."""
        return self.control == "blank"

    @property
    def prompts(self) -> int:
        """Initial states per step."""
        return self.batch_size // self.group_size

    @property
    def transform(self) -> Transform:
        """Transform applied to each image before the model sees it."""
        return blank if self.blank else identity

    def make_curriculum(self) -> Curriculum:
        """Create the games and their stages; raise `UsageError` if a game does not exist or options do not fit it."""
        if self.curriculum is None:
            curriculum = Curriculum.of([self.make_game(game) for game in self.games or DEFAULT_GAMES])
        else:
            curriculum = Curriculum.read(self.curriculum, self.data_settings())
        for game in curriculum.games:
            self.play.check(game)
            if (play := self.play_of_teacher()) is not None:
                play.check(game)
        return curriculum

    def play_of_teacher(self) -> MultiTurnConfig | None:
        """Return the contents of a teacher's prompts, or None; raise `UsageError` if there are no such prompts."""
        teacher = self.method.teacher_model
        return None if teacher is None else dataclasses.replace(self.play, observation=teacher.observation)


PRESETS = Path(__file__).parent / "presets"
FLAT = {"model": ModelConfig, "play": MultiTurnConfig}
"""Sections whose settings have no prefix, as their options have none."""
PER_COMMAND = ("preset", "settings", "resume", "output_dir", "check")
"""Options of a single command, which are not settings of a run."""
Settings = dict[str, Any]


def read_config(
    args: Sequence[str], run: Mapping[str, Any] | None = None, kind: type[TrainConfig] = TrainConfig
) -> TrainConfig:
    """Parse a command line. Options override --settings, and these the preset, or the settings of a resumed `run`.

    `kind` may be a subclass with the options of further algorithms; see `Algorithm`.

    Raises:
        UsageError: A setting is invalid, or settings contradict each other.
    """
    known = parse_known(args)
    given = _given_settings([word for words in known.settings for word in words])
    if run is None:
        name = known.preset or ("tiny" if known.model is None and "model" not in given.get("model", {}) else "1x24gb")
        base = read_settings(preset_path(name))
        if preset_path(name).parent == PRESETS:  # a user's file is not adapted
            base = _for_games(
                base,
                tuple(known.games or given.get("games", DEFAULT_GAMES)),
                known.curriculum or given.get("curriculum"),
            )
    elif known.preset is not None:
        raise UsageError("a resumed run has its settings: remove --preset")
    else:
        base = {name: value for name, value in run.items() if name not in PER_COMMAND}
    settings = _merged(base, given)
    stored, fields = tuple(map(tuple, settings.pop("overrides", ()))), settings.pop("config", {})
    for name in PER_COMMAND:
        if name in settings:
            raise UsageError(f"{name} is not a setting, but the option --{name.replace('_', '-')}")
    try:
        default = TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        sentence = describe_validation_error(error).replace("unexpected keyword argument", "unknown setting")
        raise UsageError(sentence) from None
    config = tyro.cli(kind, args=args, default=default, prog="vlmgym train", config=(tyro.conf.SuppressFixed,))
    config_names = {word.partition("=")[0] for words in known.config for word in words}
    words = tuple(f"{name}={_word(value)}" for name, value in fields.items() if name not in config_names)
    config = dataclasses.replace(config, overrides=(*stored, *((words,) if words else ()), *config.overrides))
    config.check_together()
    if "tiny" in given and config.model.model is not None:
        raise UsageError("settings of tiny only apply to a tiny model: remove them or --model")
    _check_algorithm(config, args, given)
    return config


def parse_known(args: Sequence[str]) -> argparse.Namespace:
    """Parse the options that select settings."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--preset", "--model", "--curriculum", "--resume"):
        parser.add_argument(name)
    parser.add_argument("--games", nargs="*")
    parser.add_argument("--config", nargs="+", action="append", default=[])
    parser.add_argument("--settings", nargs="+", action="append", default=[])
    try:
        return parser.parse_known_args(args)[0]
    except argparse.ArgumentError:  # an option without a value, which tyro reports
        return parser.parse_args([])


def preset_path(preset: str) -> Path:
    """Return the file of a built-in preset, or the file that `preset` names."""
    builtin = PRESETS / f"{preset}.toml"
    if not builtin.is_file() and not Path(preset).is_file():
        names = ", ".join(sorted(file.stem for file in PRESETS.glob("*.toml")))
        raise UsageError(f"preset {preset!r} not found: use {names}, or a TOML file")
    return builtin if builtin.is_file() else Path(preset)


def read_settings(path: Path) -> Settings:
    """Read a TOML file of settings, by section; raise `UsageError` on failure."""
    return _by_section(read_toml(path))


def _given_settings(words: Sequence[str]) -> Settings:
    """Merge the files and NAME=VALUE words of --settings."""
    merged: Settings = {}
    for word in words:
        if "=" not in word:
            merged = _merged(merged, read_settings(Path(word)))
            continue
        ((name, value),) = parse_config_fields([word]).items()
        for part in reversed(name.split(".")):
            value = {part: value}
        merged = _merged(merged, _by_section(value))
    return merged


def _by_section(settings: Settings) -> Settings:
    """Move the settings without a prefix into their sections."""
    for section, kind in FLAT.items():
        names = [field.name for field in dataclasses.fields(kind) if field.name in settings]
        values = {name: settings.pop(name) for name in names}
        if values:
            settings[section] = values
    return settings


def _merged(below: Settings, above: Settings) -> Settings:
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(below.get(name), dict)
        merged[name] = _merged(below[name], value) if both else value
    return merged


def _word(value: Any) -> str:
    """Write a config field as --config takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _for_games(preset: Settings, names: tuple[str, ...], curriculum: str | None) -> Settings:
    """Adapt a built-in preset, written for 2048, to other games: drop 2048's config fields, states and rewards."""
    preset = copy.deepcopy(preset)
    if curriculum is None:
        games = {make_game(name) for name in names}
        if names != DEFAULT_GAMES:
            preset.pop("config", None)
    else:
        games = {*Curriculum.read(Path(curriculum)).games}
        for name in ("config", "size"):
            preset.pop(name, None)
    kinds = {game.name for game in games}
    reward = preset.setdefault("reward", {})
    if "2048" not in kinds:
        for name in ("shaping", "illegal", "unparsable"):
            reward.pop(name, None)
    elif len(kinds) > 1:
        reward["shaping"] = "sign"  # otherwise the large rewards of 2048 would dominate
    if all(isinstance(game, Task) for game in games):
        preset.get("states", {}).pop("moves", None)
    return preset


def _check_algorithm(config: TrainConfig, args: Sequence[str], given: Settings) -> None:
    """Reject settings of the other algorithms. A preset may have them, because it serves all algorithms."""
    words = [word.partition("=")[0] for word in args if word.startswith("--")]
    for other in config.algorithms:
        if other != config.algorithm and (other in given or any(word.startswith(f"--{other}.") for word in words)):
            raise UsageError(f"{other}.* only applies to {other.upper()}: remove it, or use --algorithm {other}")
    lr, _ = config.method.learning_rates(config.update.lr)
    if lr != config.update.lr and ("--update.lr" in words or "lr" in given.get("update", {})):
        raise UsageError(f"--{config.algorithm}.lr {lr:g} overrides --update.lr: set --{config.algorithm}.lr instead")
