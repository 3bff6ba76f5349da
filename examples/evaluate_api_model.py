"""Evaluate a model behind an OpenAI-compatible API, and compare it with the random policy.

python examples/evaluate_api_model.py --base-url http://localhost:8000/v1 --model Qwen/Qwen2.5-VL-3B-Instruct
"""

import argparse

from vlmgym.evaluation import evaluate
from vlmgym.policies import make_policy, options_type
from vlmgym.statistics import confidence_interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--game", default="2048")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--turns", type=int, default=50)
    chosen = parser.parse_args()

    options = options_type("openai")(base_url=chosen.base_url, model=chosen.model, temperature=0.7, max_tokens=1024)
    for policy in ("random", make_policy("openai", options)):
        episodes = evaluate(chosen.game, policy, chosen.episodes, max_turns=chosen.turns)
        scores = [episode.score for episode in episodes if episode.score is not None]
        interval = confidence_interval(scores, unit_interval=False)
        shown = "" if interval is None else f", 95% interval {interval[0]:.1f} to {interval[1]:.1f}"
        name = policy if isinstance(policy, str) else chosen.model
        print(f"{name}: mean score {sum(scores) / len(scores):.1f} over {len(scores)} episodes{shown}")


if __name__ == "__main__":  # worker processes import this file
    main()
