"""Evaluate a policy on statements about scenes, or on NLVR2 with data: `python vlmgym/test/eval_nlvr2.py --help`."""

from vlmgym.cli.eval import evaluate_script
from vlmgym.policies import ImageArray, Prompt, random_response


def custom_policy(images_batch: list[list[ImageArray]], prompt_batch: list[Prompt]) -> list[str]:
    """Answer each prompt from its uint8 RGB images (height, width, 3). Edit this to query your own model.

    A prompt is a string with the attributes `game`, `seed`, `turn`, `episode_id` and `images`. Return a string or a
    `Reply` for each prompt.
    """
    return [random_response(prompt) for prompt in prompt_batch]


if __name__ == "__main__":
    evaluate_script(__file__, "nlvr2", custom_policy)
