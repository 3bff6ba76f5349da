"""Convert the config of a checkpoint that transformers 5 saved, so that EasyR1's transformers 4 and vLLM read it.

    python -m vlmgym.training.transformers4 checkpoints/sft_2048

Transformers 4 finds neither the rotary embedding of such a checkpoint nor, in Qwen2-VL and Qwen2.5-VL, the name of its
class. Transformers 5 reads both forms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tyro

from vlmgym.errors import UsageError
from vlmgym.runs.files import json_bytes, replace_file
from vlmgym.terminal import reporting_errors

FLAT = ("qwen2_vl", "qwen2_5_vl")
"""Model types whose text config is at the top level, as in their checkpoints on the Hub."""


def saved_by_transformers5(config: Mapping[str, Any]) -> bool:
    """Return whether transformers 4 misreads a model's config."""
    return "rope_parameters" in config or "rope_parameters" in config.get("text_config", {})


def convert(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's config in the form of transformers 4."""
    if "text_config" not in config:
        return _with_rope_scaling(config)
    text = _with_rope_scaling(config["text_config"])
    if config["model_type"] in FLAT:
        return {**text, **{name: value for name, value in config.items() if name != "text_config"}}
    return {**config, "text_config": text}


def _with_rope_scaling(text: Mapping[str, Any]) -> dict[str, Any]:
    """Replace `rope_parameters` in the config of a language model with `rope_theta` and `rope_scaling`."""
    scaling = dict(text.get("rope_parameters", {}))
    theta = {"rope_theta": scaling.pop("rope_theta")} if "rope_theta" in scaling else {}
    others = {name: value for name, value in text.items() if name != "rope_parameters"}
    return {**others, **theta, **({"rope_scaling": scaling} if scaling else {})}


def main(folder: tyro.conf.Positional[Path], /) -> None:
    """Convert config.json of a checkpoint that transformers 5 saved, so that EasyR1 can train it.

    Args:
        folder: Folder of the checkpoint.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if saved_by_transformers5(config):
        replace_file(path, json_bytes(convert(config)))


if __name__ == "__main__":
    with reporting_errors():
        tyro.cli(main, prog="python -m vlmgym.training.transformers4")
