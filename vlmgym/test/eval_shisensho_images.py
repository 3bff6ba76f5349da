"""Evaluate a policy on Shisen-Sho with images: `python vlmgym/test/eval_shisensho_images.py --help`."""

from vlmgym.cli.eval import evaluate_script
from vlmgym.policies import ImageArray, Prompt, random_response


def custom_policy(images_batch: list[list[ImageArray]], prompt_batch: list[Prompt]) -> list[str]:
    """Answer a batch of prompts, one string or `Reply` each. Edit this to query your own model.

    By default it plays at random, like `--policy random`.

    Args:
        images_batch: For each prompt its list of images, uint8 RGB arrays (height, width, 3).
        prompt_batch: The prompts: strings that also have `game`, `seed`, `turn`, `episode_id` and `images`.
    """
    return [random_response(prompt) for prompt in prompt_batch]


if __name__ == "__main__":
    evaluate_script(__file__, "shisensho", custom_policy, preset={"tiles": "digits"})
