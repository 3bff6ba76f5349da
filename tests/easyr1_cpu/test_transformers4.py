"""Checkpoints that transformers 5 saved, as LLaMA-Factory does, read by the transformers 4 of EasyR1."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_model import make_model
from tests.training import training_python
from vlmgym.errors import UsageError
from vlmgym.training.transformers4 import main

SAVE = """
import sys, transformers
assert transformers.__version__.startswith("5."), transformers.__version__
model = transformers.AutoModelForImageTextToText.from_pretrained(sys.argv[1])
model.save_pretrained(sys.argv[2])
"""


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_converted_checkpoint_is_the_same_model(tmp_path: Path, kind: Any) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    original, saved = tmp_path / "original", tmp_path / "saved"
    make_model(kind, original)
    subprocess.run([training_python(), "-c", SAVE, original, saved], check=True, capture_output=True)
    main(saved)
    configs = [AutoConfig.from_pretrained(folder) for folder in (original, saved)]
    for config in configs:
        assert config.architectures == configs[0].architectures
        assert config.get_text_config().rope_theta == 10_000
        assert (
            config.get_text_config().rope_scaling["mrope_section"]
            == configs[0].get_text_config().rope_scaling["mrope_section"]
        )
    tokens = torch.arange(20)[None]
    logits = [
        AutoModelForImageTextToText.from_pretrained(folder)(input_ids=tokens).logits for folder in (original, saved)
    ]
    assert torch.equal(*logits)
    converted = (saved / "config.json").read_bytes()
    main(saved)  # changes nothing
    assert (saved / "config.json").read_bytes() == converted


def test_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*config\.json"):
        main(tmp_path)
