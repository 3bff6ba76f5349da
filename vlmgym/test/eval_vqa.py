"""Evaluate a policy on questions about scenes, or on VQA with data: `python vlmgym/test/eval_vqa.py --help`."""

from vlmgym.cli.eval import evaluate_script
from vlmgym.policies import ImageArray, Prompt, random_response


def custom_policy(images_batch: list[list[ImageArray]], prompt_batch: list[Prompt]) -> list[str]:
    """Answer each prompt from its uint8 RGB images (height, width, 3). Edit this to query your own model.

    A prompt is a string with the attributes `game`, `seed`, `turn`, `episode_id` and `images`. Return a string or a
    `Reply` for each prompt.
    """
    return [random_response(prompt) for prompt in prompt_batch]


if __name__ == "__main__":
    evaluate_script(__file__, "vqa", custom_policy)
