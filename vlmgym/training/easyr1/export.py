"""Convert a sharded EasyR1 checkpoint to a Hugging Face folder.

    python -m vlmgym.training.easyr1.export checkpoints/vlmgym/2048/global_step_300 checkpoints/2048

It replaces EasyR1's own script (scripts/model_merger.py), which is not part of the installed package.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import tyro
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

from vlmgym.errors import UsageError
from vlmgym.policies.checkpoint import error_text
from vlmgym.rollout.trained import TRAINED, TrainedRecord
from vlmgym.runs.files import check_output_folder, new_folder
from vlmgym.terminal import reporting_errors
from vlmgym.training.engine.weights import PROCESSOR_FILES, saving


def export(checkpoint: Path, out: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the model of a checkpoint to a new folder; `checkpoint` is `global_step_...` or its subfolder `actor`.

    Raises:
        UsageError: The checkpoint is missing or incomplete, or `out` has files.
    """
    actor = checkpoint / "actor" if (checkpoint / "actor").is_dir() else checkpoint
    check_output_folder(out)
    source = actor / "huggingface"
    if not (source / "config.json").is_file():
        raise UsageError(f"{checkpoint} is not an EasyR1 checkpoint: it has no actor/huggingface/config.json")
    trained = TrainedRecord.read(actor.parent) if (actor.parent / TRAINED).is_file() else None
    weights = whole_weights(actor)
    config = AutoConfig.from_pretrained(source)
    adapter = actor / "lora_adapter" / "adapter_config.json"
    if adapter.is_file():
        model = _merged(adapter, weights)
    else:
        with torch.device("meta"):
            model = AutoModelForImageTextToText.from_config(config)
        _load(model, weights, checkpoint)
    model = model.to(dtype)
    model.config.dtype = dtype
    if (source / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(source)
    with new_folder(out) as part, saving(out):
        model.save_pretrained(part)
        for name in PROCESSOR_FILES:
            if (source / name).is_file() and not (part / name).exists():
                shutil.copy(source / name, part / name)
        if trained is not None:
            trained.write(part)


def whole_weights(actor: Path) -> dict[str, torch.Tensor]:
    """Merge the weights of all shards; raise `UsageError` if a file is missing or damaged."""
    files = {path.name: path for path in actor.glob("model_world_size_*_rank_*.pt")}
    sizes = {int(re.findall(r"\d+", name)[0]) for name in files}
    if len(sizes) != 1:
        raise UsageError(f"{actor} must have weights from runs with the same number of GPUs, got {sorted(sizes)}")
    size = sizes.pop()
    names = [f"model_world_size_{size}_rank_{rank}.pt" for rank in range(size)]
    if missing := [name for name in names if name not in files]:
        raise UsageError(f"{actor} lacks {', '.join(missing)}: the checkpoint is incomplete")
    parts = [_read(files[name]) for name in names]
    return {name: _joined(name, [part[name] for part in parts]) for name in parts[0]}


def _read(path: Path) -> dict[str, Any]:
    try:
        # Weights are pickled; without `weights_only`, a file from somebody else could run code.
        weights: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnpicklingError:
        raise UsageError(f"{path} has more than weights, or is damaged") from None
    except (OSError, RuntimeError, EOFError) as error:
        raise UsageError(
            f"cannot read {path}, perhaps because writing it was interrupted: {error_text(error)}"
        ) from None
    return weights


def _joined(name: str, parts: list[Any]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        return torch.as_tensor(first)
    placements = [place for place in first.placements if not place.is_replicate()]
    if not placements:
        return first.to_local()
    if len(placements) > 1 or not placements[0].is_shard():
        raise UsageError(f"{name} must be sharded along one dimension, as by FSDP, got {first.placements}")
    copies = 1
    if len(first.placements) > 1:  # otherwise do not read the mesh, which newer versions of torch cannot
        for place, length in zip(first.placements, first.device_mesh.mesh.shape):
            copies *= length if place.is_replicate() else 1
    shards = parts[: len(parts) // copies]
    return torch.cat([part.to_local() for part in shards], dim=placements[0].dim)


def _load(model: Any, weights: dict[str, torch.Tensor], checkpoint: Path) -> None:
    missing, unexpected = model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    tied = set(model._tied_weights_keys or ())
    if unexpected or set(missing) - tied:
        names = ", ".join([*unexpected, *missing][:3])
        raise UsageError(f"{checkpoint} does not contain the weights of its model: {names} ...")


def _merged(adapter: Path, weights: dict[str, torch.Tensor]) -> Any:
    """Load the base model and merge LoRA adapters into its weights."""
    from peft import LoraConfig, get_peft_model

    settings = json.loads(adapter.read_text(encoding="utf-8"))
    name = settings["base_model_name_or_path"]
    try:
        base = AutoModelForImageTextToText.from_pretrained(name, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot load the base model {name} of the adapters: {error_text(error)}") from None
    fields = LoraConfig.__dataclass_fields__.keys() - {"runtime_config"}  # runtime only, saved as a plain dict
    model = get_peft_model(base, LoraConfig(**{name: value for name, value in settings.items() if name in fields}))
    model.load_state_dict(weights)
    return model.merge_and_unload()


def main(checkpoint: tyro.conf.Positional[Path], out: tyro.conf.Positional[Path], /) -> None:
    """Convert an EasyR1 checkpoint to a Hugging Face folder.

    Args:
        checkpoint: Folder global_step_... of a run.
        out: New folder.
    """
    export(checkpoint, out)
    print(f"evaluate {out}: bash training/scripts/evaluate.sh {out} BASELINE")


if __name__ == "__main__":
    with reporting_errors():
        tyro.cli(main, prog="export.sh")
