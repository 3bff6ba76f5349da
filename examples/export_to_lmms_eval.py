"""Write single moves as lmms-eval tasks; docs/integrations/lmms_eval.md explains it.

python examples/export_to_lmms_eval.py --folder tasks --games geospot scenes-questions caption --rows 100
"""

import argparse

import vlmgym
from vlmgym.integrations.lmms_eval import write_tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, help="new folder for the tasks")
    parser.add_argument("--games", nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=100, help="rows per game")
    parser.add_argument("--size", type=int, default=640, help="image size in pixels")
    parser.add_argument("--max-tokens", type=int, default=1024, help="maximum number of tokens per response")
    options = parser.parse_args()

    rows = vlmgym.make_dataset(options.games, options.rows * len(options.games), split="validation", size=options.size)
    print("\n".join(write_tasks(options.folder, rows, options.max_tokens)))


if __name__ == "__main__":
    main()
