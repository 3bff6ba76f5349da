"""Options of local training, and how they combine with presets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.in_training.runs import main
from tests.tiny_model import make_model
from vlmgym.errors import UsageError
from vlmgym.training.config import read_config
from vlmgym.training.engine.encoding import Encoder

TRAINING = Path(__file__).parents[2] / "vlmgym" / "training"


def test_options_override_the_preset() -> None:
    config = read_config(["--config", "rows=4", "theme=light", "--config", "columns=5", "--steps", "7"])
    (game,) = config.make_curriculum().games
    assert (game.config.rows, game.config.columns, game.config.theme) == (4, 5, "light")
    assert (game.config.similarity, game.config.size) == (0.0, 128)  # values of the preset
    assert (config.steps, config.batch_size) == (7, 64)
    with pytest.raises(UsageError, match="rows is set twice"):
        read_config(["--config", "rows=4", "rows=5"]).make_curriculum()


def test_images_are_shrunk_to_the_most_tokens_of_a_tiny_model(tmp_path: Path) -> None:
    make_model("qwen3_vl", tmp_path, size=read_config(["--settings", "tiny.image_tokens=16"]).tiny)
    encoder = Encoder(tmp_path)
    ids = encoder.encode("", [np.zeros((640, 640, 3), np.uint8)]).ids
    assert int((ids == encoder.family.image_token).sum()) == 16


def test_only_custom_presets_keep_config_fields_for_other_games(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("config = {rows = 6, columns = 6}")
    (game,) = read_config(["--preset", str(tmp_path / "mine.toml"), "--games", "swap"]).make_curriculum().games
    assert (game.name, game.config.rows) == ("swap", 6)
    (game,) = read_config(["--preset", "tiny", "--games", "swap", "--size", "256"]).make_curriculum().games
    assert (game.name, game.config.rows) == ("swap", 8)


@pytest.mark.parametrize(
    ("args", "shaping", "moves"),
    [
        ((), "log2", (0, 100)),
        (("--model", "any"), "log2", (0, 40)),
        (("--model", "any", "--curriculum", "three-games"), "sign", (0, 40)),
        (("--model", "any", "--games", "swap"), "raw", (0, 40)),
        (("--games", "scenes-questions", "caption"), "raw", (0, 0)),
        (
            ("--games", "scenes-questions", "--settings", "reward.shaping=sign", "--states.moves", "1", "1"),
            "sign",
            (1, 1),
        ),
    ],
)
def test_rewards_and_states_of_the_preset_apply_only_to_2048(
    args: tuple[str, ...], shaping: str, moves: tuple[int, int]
) -> None:
    config = read_config(args)
    assert (config.reward.shaping, config.states.moves) == (shaping, moves)
    other = "--games" in args
    assert (config.reward.illegal is None, config.reward.unparsable is None) == (other, other)


def test_default_preset_depends_on_the_model() -> None:
    assert read_config([]).model.lora == 0
    assert read_config(["--model", "Qwen/Qwen3-VL-4B-Instruct"]).model.lora == 64
    assert read_config(["--model", "Qwen/Qwen3-VL-4B-Instruct", "--preset", "1x80gb"]).batch_size > 64


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            "--games scenes-questions --states.no-informative --sft.expert greedy",
            "greedy expert require: use --sft.expert oracle",
        ),
        ("--games shisensho --config tiles=cifar10 data=nowhere", "nowhere"),
        (f"--output-dir {__file__}", "is a file: choose a folder"),
    ],
)
def test_check_finds_what_would_stop_a_run(args: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*args.split(), "--check"])
    assert words in capsys.readouterr().err
