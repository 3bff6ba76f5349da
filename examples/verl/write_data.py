"""Write datasets of whole episodes for verl; docs/integrations/verl.md has the command that trains on them.

python examples/verl/write_data.py --folder data/2048 --game 2048 --turns 10
"""

import argparse
from pathlib import Path

from datasets import Dataset

import vlmgym
from vlmgym.integrations.verl import to_verl

# log2 keeps the rewards of large merges small; invalid responses earn less than moves that merge nothing.
REWARD = vlmgym.RewardConfig(shaping="log2", illegal=-1.0, unparsable=-1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--game", default="2048")
    parser.add_argument("--size", type=int, default=320, help="image size in pixels")
    parser.add_argument("--turns", type=int, default=10, help="turns per episode")
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", options.rows), ("validation", 64)):
        made = vlmgym.make_dataset(
            options.game, rows, split=split, max_turns=options.turns, chat=True, reward=REWARD, size=options.size
        )
        Dataset.from_list(to_verl(made)).to_parquet(options.folder / f"{split}.parquet")


if __name__ == "__main__":
    main()
