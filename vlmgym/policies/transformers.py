"""A checkpoint in this process, by Hugging Face transformers: slow beside vLLM, and needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from vlmgym.checks import check_int
from vlmgym.errors import UsageError, missing_extra
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.policies.batching import Batcher
from vlmgym.policies.checkpoint import error_text, resolve_checkpoint
from vlmgym.policies.daemon_thread import DaemonThread
from vlmgym.policies.sampling import SamplingOptions
from vlmgym.sandbox.core.game import ImageArray

if TYPE_CHECKING:
    from vlmgym.policies.local_model import LocalModel

DType = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True, kw_only=True)
class TransformersOptions(SamplingOptions):
    """Options of a policy that runs a checkpoint by transformers."""

    operational: ClassVar[frozenset[str]] = frozenset({"device", "batch_size"})

    model: str = ""
    """Folder of a checkpoint, or its name on the Hugging Face hub."""
    device: str | None = None
    """Where it runs, for instance cpu or cuda:1. Default: a GPU, if there is one."""
    dtype: DType = "auto"
    """Type of weights and activations. auto: as they were saved."""
    batch_size: int = 8
    """Prompts that are answered together, at most. More are faster and need more memory."""
    max_tokens: int = 2048
    """Longest response in tokens. A whole batch waits for its longest response."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("batch_size", self.batch_size, 1)
        if self.dtype not in get_args(DType):
            raise UsageError(f"dtype is one of {', '.join(get_args(DType))}, not {self.dtype!r}")


class TransformersPolicy(ModelPolicy):
    """Answers whatever prompts are ready in batches, one batch at a time, in a thread of its own.

    The model's own chat template makes the prompt, and its generation configuration decides what is not given. With
    `sample_seed`, every prompt's tokens are drawn by a seed of its own. Even so, and at temperature 0 too, the size of
    a batch and its padding change the last bits of the numbers, and so now and then a token; `batch_size` 1 does not.
    """

    name = "transformers"
    counts_tokens = True
    Options = TransformersOptions
    options: TransformersOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Nothing is loaded yet.

        Raises:
            UsageError: There is no checkpoint, or torch or transformers is not installed.
        """
        super().__init__(options)
        self._checkpoint = resolve_checkpoint(self.options.model, self.name)
        self._model_type = import_local_model(f"the policy {self.name}")
        self._thread = DaemonThread(self.name)

    @property
    def loading(self) -> str:
        """The model."""
        return self.options.model

    async def open(self) -> None:
        """Load the model."""
        self._model: LocalModel = await self._thread.call(
            self._model_type, self._checkpoint, self.options.device, self.options.dtype
        )
        self._batcher = Batcher(self._ask, self.options.batch_size)

    async def close(self) -> None:
        """Stop what is being generated, and let go of the model."""
        self._batcher.close()
        self._model.stop()
        await self._thread.call(lambda: None)  # until a call that runs has ended
        del self._model, self._batcher

    def set_running_episodes(self, episodes: int) -> None:
        """A batch is full when every running episode waits."""
        self._batcher.set_running_episodes(episodes)

    async def respond(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        """The model's response to this prompt, generated together with whatever else is ready."""
        return await self._batcher.respond(images, prompt)

    async def _ask(self, images: list[list[ImageArray]], prompts: list[Prompt]) -> Any:
        return await self._thread.call(self._answer, self._model, images, prompts)

    def _answer(self, model: LocalModel, shown: list[list[ImageArray]], prompts: list[Prompt]) -> Any:
        from vlmgym.policies.local_model import GenerationRequest

        options = self.options
        questions = [
            GenerationRequest(images, str(prompt), options.request_seed(prompt))
            for images, prompt in zip(shown, prompts, strict=True)
        ]
        return model.generate(
            questions,
            options.max_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            stop=options.stop,
        )


def import_local_model(who: str) -> type[LocalModel]:
    """The class `LocalModel`.

    Args:
        who: What needs it, for the message.

    Raises:
        UsageError: A package is missing.
    """
    try:
        from vlmgym.policies.local_model import LocalModel
    except ImportError as error:
        raise missing_extra(who, error.name or error_text(error), "transformers") from None
    return LocalModel
