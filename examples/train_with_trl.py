"""Train a vision-language model on a game with TRL's GRPO; docs/integrations/trl.md explains it.

python examples/train_with_trl.py                # single moves, any vision-language model that TRL supports
python examples/train_with_trl.py --turns 10     # whole episodes; the model's chat template must support tools
accelerate launch --num_processes 4 examples/train_with_trl.py --lora 64 --vllm    # on four GPUs
"""

import argparse

import torch
from peft import LoraConfig
from transformers import AutoProcessor
from trl import GRPOConfig, GRPOTrainer

import vlmgym
from vlmgym.integrations.trl import GameEnvironment, check_sight, episode_limits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-VL-2B-Instruct")
    parser.add_argument("--game", default="2048")
    parser.add_argument("--size", type=int, default=320, help="image size in pixels")
    parser.add_argument("--turns", type=int, default=1, help="turns per episode")
    parser.add_argument("--response-tokens", type=int, default=256, help="maximum number of tokens per response")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="rollouts per device and step")
    parser.add_argument("--group", type=int, default=8, help="rollouts per state")
    parser.add_argument("--lora", type=int, help="rank of LoRA adapters on the language model; default: all weights")
    parser.add_argument("--vllm", action="store_true", help="generate with vLLM on the GPUs that train")
    parser.add_argument("--output-dir", default="logs/trl")
    options = parser.parse_args()

    reward = vlmgym.RewardConfig(shaping="log2", illegal=-1.0, unparsable=-1.0)
    states = vlmgym.StateConfig(moves=(0, 50))
    rows = vlmgym.make_dataset(
        options.game,
        options.rows,
        states=states,
        max_turns=options.turns,
        chat=options.turns > 1,
        reward=reward,
        size=options.size,
    )
    if options.turns == 1:
        limits = {"max_completion_length": options.response_tokens}
        how = {"reward_funcs": vlmgym.reward_fn}
    else:
        limits = episode_limits(rows[:1], AutoProcessor.from_pretrained(options.model), options.response_tokens)
        how = {"environment_factory": GameEnvironment}
    lora = None
    if options.lora:
        lora = LoraConfig(r=options.lora, target_modules="all-linear", exclude_modules=".*visual.*")
    gpu = torch.cuda.is_available()
    config = GRPOConfig(
        output_dir=options.output_dir,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch,
        num_generations=options.group,
        learning_rate=1e-5 if lora else 1e-6,
        logging_steps=1,
        report_to="none",
        bf16=gpu,
        use_cpu=not gpu,
        use_vllm=options.vllm,
        vllm_enable_sleep_mode=options.vllm,  # frees vLLM's memory during updates
        **limits,
    )
    dataset = vlmgym.to_hf_dataset(rows)
    trainer = GRPOTrainer(options.model, args=config, train_dataset=dataset, peft_config=lora, **how)
    check_sight(trainer)
    trainer.train()
    if lora:
        trainer.model = trainer.model.merge_and_unload()
    trainer.save_model(options.output_dir)


if __name__ == "__main__":
    main()
