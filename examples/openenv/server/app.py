"""A game server for OpenEnv; docs/integrations/openenv.md explains it.

cd examples/openenv && python -m server.app --port 8000
"""

import argparse

import uvicorn

import vlmgym
from vlmgym.integrations.openenv import make_app

# The reward of a turn is -1, 0 or 1, within the range that openenv.yaml declares.
REWARD = vlmgym.RewardConfig(shaping="sign", illegal=-1.0, unparsable=-1.0)

app = make_app(["2048", "shisensho", "swap"], max_turns=100, size=320, reward=REWARD)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    uvicorn.run(app, host=options.host, port=options.port)


if __name__ == "__main__":
    main()
