"""Play on an OpenEnv server with a model behind an OpenAI-compatible API; docs/integrations/openenv.md explains it.

python examples/openenv/play.py --url http://127.0.0.1:8001 --base-url http://127.0.0.1:8000/v1 --model MODEL
"""

import argparse
import os

from openai import OpenAI

from vlmgym.integrations.openenv import GameAction, GameClient


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="address of the server of games")
    parser.add_argument("--base-url", required=True, help="address of the model's server, up to /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--game", default="2048")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    model = OpenAI(base_url=options.base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"))
    with GameClient(base_url=options.url).sync() as games:
        turn = games.reset(seed=options.seed, game=options.game)
        while not turn.done:
            completion = model.chat.completions.create(model=options.model, messages=turn.observation.messages())
            turn = games.step(GameAction(response=completion.choices[0].message.content or ""))
            print(turn.observation.outcome.value, turn.reward, turn.observation.feedback)
        print(turn.observation.score, turn.observation.end_reason)


if __name__ == "__main__":
    main()
