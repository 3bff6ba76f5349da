"""Configuration of a run: EasyR1's settings and a `vlmgym` section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from verl.trainer.config import PPOConfig
from yaml import YAMLError

from vlmgym.errors import UsageError, first_line


@dataclass
class RunConfig(PPOConfig):
    """EasyR1's configuration, extended with a `vlmgym` section."""

    vlmgym: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> dict[str, Any]:
        """Settings of the trained parts of `worker`, keyed by name: the actor and, if used, the critic."""
        worker = self.worker
        critic = {"critic": worker.critic} if self.algorithm.adv_estimator == "gae" else {}
        return {"actor": worker.actor, **critic}


def read_config(args: Sequence[str]) -> RunConfig:
    """Merge YAML files, then settings such as `a.b=value`; raise `UsageError` if any of them is invalid."""
    merged = OmegaConf.structured(RunConfig())
    settings = [arg for arg in args if "=" in arg]
    for name in (arg for arg in args if "=" not in arg):
        merged = _merge(merged, _load(Path(name)), name)
    for setting in settings:
        merged = _merge(merged, OmegaConf.from_dotlist([setting]), setting)
    try:
        config: RunConfig = OmegaConf.to_object(merged)
        for name, path in (
            ("trainer.load_checkpoint_path", config.trainer.load_checkpoint_path),
            ("data.override_chat_template", config.data.override_chat_template),
        ):
            if path is not None and not Path(path).exists():  # EasyR1 would ignore it (utils/py_functional.py)
                raise UsageError(f"{name}={path}: no such file or folder")
        critic, actor = config.worker.critic.model, config.worker.actor.model
        critic.model_path = critic.model_path or actor.model_path
        config.deep_post_init()
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise UsageError(first_line(error)) from None
    return config


def _load(path: Path) -> Any:
    try:
        return OmegaConf.load(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid YAML: {first_line(error)}") from None


def _merge(below: Any, above: Any, source: str) -> Any:
    try:
        for name, other in (("games", "curriculum"), ("curriculum", "games")):
            if OmegaConf.select(above, f"vlmgym.{name}") is not None:  # games replace a curriculum, and vice versa
                below.vlmgym.pop(other, None)
        return OmegaConf.merge(below, above)
    except (OmegaConfBaseException, TypeError, ValueError) as error:
        raise UsageError(f"{source}: {first_line(error)}") from None
