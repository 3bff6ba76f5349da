"""The `transformers` policy: a checkpoint in this process. Slower than vLLM, with fewer dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from vlmgym.checks import check_int
from vlmgym.errors import importing
from vlmgym.policies.base import PolicyOptions, Prompt
from vlmgym.policies.batching import BatchPolicy, DaemonThread
from vlmgym.policies.checkpoint import CheckpointOptions, resolve_checkpoint
from vlmgym.sandbox.core.game import ImageArray

if TYPE_CHECKING:
    from vlmgym.policies.local_model import LocalModel


@dataclass(frozen=True, kw_only=True)
class TransformersOptions(CheckpointOptions):
    """Options of the `transformers` policy."""

    operational: ClassVar[frozenset[str]] = frozenset({"device", "batch_size"})

    device: str | None = None
    """Device, such as cpu or cuda:1. None means a GPU if there is one, else the CPU."""
    batch_size: int = 8
    """Maximum batch size. Larger batches are faster and need more memory."""
    max_tokens: int = 2048
    """Maximum response length in tokens. The longest response determines the time of a batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("batch_size", self.batch_size, 1)


class TransformersPolicy(BatchPolicy):
    """Generates responses to batches of ready prompts, in a separate thread.

    Uses the model's chat template, and the model's generation config for sampling options that are not set. With
    `sample_seed`, each prompt has its own seed. Even with a seed or at temperature 0, batch size and padding change
    rounding, which occasionally changes a token; set `batch_size` to 1 for exact reproducibility.
    """

    name = "transformers"
    counts_tokens = True
    Options = TransformersOptions
    options: TransformersOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Check the checkpoint and the installation; `open` loads the model."""
        super().__init__(options)
        self.max_batch_size = self.options.batch_size
        self._checkpoint = resolve_checkpoint(self.options.model, self.name)
        with importing(f"the {self.name} policy", "transformers"):
            from vlmgym.policies.local_model import LocalModel
        self._model_type = LocalModel
        self._thread = DaemonThread(self.name)

    @property
    def loading(self) -> str:
        """The model's name."""
        return self.options.model

    async def open(self) -> None:
        """Load the model."""
        self._model: LocalModel = await self._thread.call(
            self._model_type,
            self._checkpoint,
            self.options.device,
            self.options.dtype,
            self.options.template_options,
        )
        await super().open()

    async def close(self) -> None:
        """Stop generating and release the model."""
        await super().close()
        self._model.stop()
        await self._thread.call(lambda: None)  # waits for a running call
        del self._model

    async def respond_to_batch(self, images: list[list[ImageArray]], prompts: list[Prompt]) -> Any:
        """Generate a reply to each prompt."""
        from vlmgym.policies.local_model import GenerationRequest

        options = self.options
        requests = [
            GenerationRequest(prompt_images, prompt.conversation, options.request_seed(prompt))
            for prompt_images, prompt in zip(images, prompts, strict=True)
        ]
        sampling: dict[str, Any] = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
        return await self._thread.call(partial(self._model.generate, requests, options.max_tokens, **sampling))
