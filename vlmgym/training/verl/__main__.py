"""Train a vision-language model on games with verl.

    python -m vlmgym.training.verl training/configs/base.yaml training/configs/2048.yaml trainer.n_gpus_per_node=4
    python -m vlmgym.training.verl training/configs/base.yaml training/configs/2048.yaml --check

Arguments are YAML files, of which only the section `vlmgym` is read, settings of this section such as
vlmgym.play.max_turns=8, and verl's options. --check only reports problems.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vlmgym.errors import UsageError, VlmgymError, first_line
from vlmgym.terminal import reporting_errors

DEFAULTS = f"""
    algorithm.adv_estimator=grpo
    actor_rollout_ref.actor.ppo_mini_batch_size=128
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1
    actor_rollout_ref.model.path=Qwen/Qwen2.5-VL-7B-Instruct
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1
    actor_rollout_ref.rollout.agent.agent_loop_config_path={Path(__file__).with_name("agent_loop.yaml")}
    data.train_batch_size=128
    data.max_prompt_length=2048
    data.max_response_length=8192
    data.seed=1
    data.shuffle=false
    data.train_files=training
    data.val_files=validation
    data.custom_cls.path=pkg://vlmgym.training.verl.dataset
    data.custom_cls.name=GameDataset
    trainer.project_name=vlmgym
    trainer.total_epochs=1
    trainer.total_training_steps=300
"""
"""Options that differ from verl's defaults."""


def main(args: list[str]) -> None:
    """Train, or only check with --check; raise `UsageError` if the configuration has problems."""
    if not args or {"-h", "--help"} & set(args):
        print(__doc__)
        return
    if unknown := [arg for arg in args if arg.startswith("-") and arg != "--check"]:
        raise UsageError(f"unknown option {unknown[0]}: use --check, --help, or settings NAME=VALUE")
    if find_spec("verl") is None or find_spec("verl.trainer.main_ppo") is None:  # EasyR1's package is also called verl
        raise UsageError("verl is not installed: docs/integrations/verl.md has the command")
    settings = [arg for arg in args if arg != "--check"]
    config = read_config(settings)
    for fact in check(config):
        print(fact)
    if settings != args:
        print("no problems found")
        return

    import ray
    from ray.exceptions import RayTaskError
    from verl.trainer.main_ppo import run_ppo

    from vlmgym.training.verl.trainer import TaskRunner

    try:
        run_ppo(config, ray.remote(TaskRunner))
    except RayTaskError as error:
        if isinstance(error.cause, VlmgymError):
            raise error.cause from None
        raise


def read_config(args: list[str]) -> Any:
    """Return verl's configuration, with the section `vlmgym` in `data`; raise `UsageError` if verl rejects it."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from vlmgym.training.easyr1.settings import Section, merge_settings

    ours = [arg for arg in args if "=" not in arg or arg.startswith("vlmgym.")]
    merged = merge_settings(OmegaConf.create({"vlmgym": {}}), ours).vlmgym
    section = Section.read(merged)
    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=DEFAULTS.split() + [arg for arg in args if arg not in ours])
        with open_dict(config.data):
            config.data.vlmgym = merged
        config.data.train_max_samples = config.data.train_batch_size * config.trainer.total_training_steps
        config.data.val_max_samples = section.validation.episodes * len(section.make_curriculum().entries)
        auto_set_device(config)
        validate_config(config, need_reference_policy(config), need_critic(config))
    except (HydraException, OmegaConfBaseException, AssertionError, TypeError, ValueError) as error:
        raise UsageError(first_line(error)) from None
    return config


def check(config: Any) -> list[str]:
    """Return facts about a run; raise `UsageError` if its model does not exist or its games do not fit."""
    from transformers import AutoProcessor

    from vlmgym import Episode
    from vlmgym.curriculum.schedule import describe
    from vlmgym.training.easyr1.settings import check_model
    from vlmgym.training.verl.dataset import GameDataset

    data, path, most = config.data, config.actor_rollout_ref.model.path, 0
    check_model(path)
    processor = AutoProcessor.from_pretrained(path)
    states = GameDataset(data.train_files, data, data.train_max_samples)
    for index in dict(zip(states.picks, range(len(states)))).values():  # one of each stage
        episode = Episode.restore(states[index]["extra_info"]["snapshot"])
        if episode.max_turns > 1 and episode.repeats_turns:
            raise UsageError("the conversation keeps earlier turns: set vlmgym.play.chat=true or vlmgym.play.history=0")
        tokens = processor.apply_chat_template(
            [episode.messages("pil")], add_generation_prompt=True, tokenize=True, return_dict=True
        )
        most = max(most, len(tokens["input_ids"][0]))
    if most > (limit := data.max_prompt_length):
        raise UsageError(f"prompts have up to {most:,} tokens, but data.max_prompt_length is {limit:,}")
    schedule = (states.curriculum, data.train_batch_size, config.trainer.total_training_steps, episode.max_turns)
    return [f"prompts have up to {most:,} tokens", *describe(*schedule)]


if __name__ == "__main__":
    with reporting_errors():
        main(sys.argv[1:])
