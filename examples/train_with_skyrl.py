"""Train a vision-language model on whole episodes with SkyRL; docs/integrations/skyrl.md has the full command.

python examples/train_with_skyrl.py --folder data/skyrl --only-data       # write the datasets
python examples/train_with_skyrl.py --folder data/skyrl OPTION=VALUE ...  # write them and train with SkyRL's options
"""

import argparse
from pathlib import Path

import vlmgym

# log2 keeps the rewards of large merges small; invalid responses earn less than moves that merge nothing.
REWARD = vlmgym.RewardConfig(shaping="log2", illegal=-1.0, unparsable=-1.0)


def write(path: Path, options: argparse.Namespace, rows: int, split: str) -> None:
    made = vlmgym.make_dataset(
        options.game, rows, split=split, max_turns=options.turns, chat=True, reward=REWARD, size=options.size
    )
    # Images are left out: the environment draws them from the snapshot.
    dataset = vlmgym.to_hf_dataset(made).select_columns(["prompt", "snapshot"])
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.add_column("env_class", ["vlmgym"] * rows).to_parquet(path)


def train(overrides: list[str]) -> None:
    import ray
    from skyrl.train.config import SkyRLTrainConfig
    from skyrl.train.entrypoints.main_base import BasePPOExp
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    @ray.remote(num_cpus=1)
    def run(config: SkyRLTrainConfig) -> None:
        import vlmgym.integrations.skyrl  # noqa: F401 - registers the environment in this process

        BasePPOExp(config).run()

    config = SkyRLTrainConfig.from_cli_overrides(overrides)
    validate_cfg(config)
    initialize_ray(config)
    ray.get(run.remote(config))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where to write the datasets")
    parser.add_argument("--only-data", action="store_true", help="do not train")
    parser.add_argument("--game", default="2048")
    parser.add_argument("--size", type=int, default=320, help="image size in pixels")
    parser.add_argument("--turns", type=int, default=10, help="turns per episode")
    parser.add_argument("--rows", type=int, default=1000)
    options, overrides = parser.parse_known_args()

    files = {split: options.folder.absolute() / f"{split}.parquet" for split in ("train", "validation")}
    write(files["train"], options, options.rows, "train")
    write(files["validation"], options, 64, "validation")
    if not options.only_data:
        data = [f"data.train_data=['{files['train']}']", f"data.val_data=['{files['validation']}']"]
        train([*data, "environment.env_class=vlmgym", f"generator.max_turns={options.turns}", *overrides])


if __name__ == "__main__":
    main()
