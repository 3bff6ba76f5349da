"""Critics for PPO: Qwen-VL models with a scalar head, registered with the class that EasyR1 loads critics with."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForTokenClassification, GenerationConfig
from transformers.modeling_outputs import TokenClassifierOutput

from vlmgym.training.tiny_vlm import CLASSES


def register_critics() -> None:
    """Register Qwen-VL critics, which transformers lacks, with `AutoModelForTokenClassification`."""
    for kind, name in CLASSES.items():
        config = type(AutoConfig.for_model(kind))
        AutoModelForTokenClassification.register(config, critic_class(kind, name), exist_ok=True)


def critic_class(kind: str, name: str) -> type[Any]:
    """Create the critic class for a model type. Its head starts at zero; other weights come from the checkpoint."""
    module = import_module(f"transformers.models.{kind}.modeling_{kind}")
    base, backbone = getattr(module, f"{name}PreTrainedModel"), getattr(module, f"{name}Model")
    generator = getattr(module, f"{name}ForConditionalGeneration")

    class Critic(base):  # type: ignore[misc, valid-type]
        _checkpoint_conversion_mapping = getattr(generator, "_checkpoint_conversion_mapping", {})

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.model = backbone(config)
            self.score = nn.Linear(config.text_config.hidden_size, 1, bias=False)
            self.post_init()
            # EasyR1 saves the generation config with each checkpoint (utils/checkpoint/fsdp_checkpoint_manager.py),
            # but only models that generate text have one.
            self.generation_config = GenerationConfig.from_model_config(config)

        def _init_weights(self, module: nn.Module) -> None:
            super()._init_weights(module)
            if module is self.score:
                nn.init.zeros_(module.weight)

        def forward(self, use_cache: bool = False, **inputs: Any) -> TokenClassifierOutput:
            hidden = self.model(**inputs, use_cache=use_cache)[0]
            return TokenClassifierOutput(logits=self.score(hidden))

    Critic.__name__ = Critic.__qualname__ = f"{name}ForTokenClassification"
    return Critic
