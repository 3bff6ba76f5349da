"""The `vllm` policy: offline vLLM, without a server."""

from __future__ import annotations

import gc
import itertools
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from vlmgym.checks import check_int
from vlmgym.errors import InfrastructureError, PolicyError, UsageError, pip_install
from vlmgym.policies.base import FAILURE_REASONS, ModelPolicy, PolicyOptions, Prompt, Reply, json_object
from vlmgym.policies.batching import DaemonThread
from vlmgym.policies.checkpoint import ChatTemplate, CheckpointOptions, SpecialTokens, error_text, resolve_checkpoint
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.prompt import chat_messages

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

INSTALL = f"run bash setup.sh --train and use .venv-train/bin/vlmgym, or run {pip_install('vllm')}"
ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # forking, the default, is not safe in a multi-threaded process
}
"""Environment variables for vLLM; the user's values take precedence."""


@dataclass(frozen=True, kw_only=True)
class VLLMOptions(CheckpointOptions):
    """Options of the `vllm` policy."""

    operational: ClassVar[frozenset[str]] = frozenset({"gpu_memory_utilization", "tensor_parallel_size"})

    max_model_len: int | None = None
    """Context length in tokens. None means the model's, which may need much memory."""
    gpu_memory_utilization: float | None = None
    """Fraction of GPU memory for weights and KV cache, above 0 and at most 1.
    On a CPU, the fraction of memory that must be free.
    None means vLLM's default, about 0.9."""
    tensor_parallel_size: int = 1
    """Number of GPUs for tensor parallelism."""
    engine_args: str = "{}"
    """Additional engine arguments as a JSON object, such as '{"enforce_eager": true, "max_num_seqs": 32}'."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_model_len", "tensor_parallel_size"):
            check_int(name, getattr(self, name), 1, optional=True)
        if reserved := self.more_args.keys() & self._option_args("").keys():
            raise UsageError(f"engine_args cannot set {min(reserved)}: use its own option")
        if "hf_token" in self.more_args:
            raise UsageError("engine_args cannot set hf_token, because it is recorded: set the variable HF_TOKEN")

    def to_dict(self) -> dict[str, Any]:
        """Return all options as JSON-serialisable values."""
        return super().to_dict() | {"engine_args": self.more_args}

    @cached_property
    def more_args(self) -> dict[str, Any]:
        """Parsed `engine_args`."""
        return json_object("engine_args", self.engine_args)

    def arguments(self, model: str) -> dict[str, Any]:
        """Return all engine arguments for a model."""
        defaults = {"disable_log_stats": True, "limit_mm_per_prompt": {"video": 0}}  # reserves no memory for videos
        return {**defaults, **self._option_args(model), **self.more_args}

    def _option_args(self, model: str) -> dict[str, Any]:
        share = self.gpu_memory_utilization
        return {
            "model": model,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "tensor_parallel_size": self.tensor_parallel_size,
            **({} if share is None else {"gpu_memory_utilization": share}),
        }


class VLLMPolicy(ModelPolicy):
    """Submits prompts to vLLM as they arrive (continuous batching).

    Uses the model's chat template and generation config, like vLLM's server. With `sample_seed`, each request has its
    own seed. Even with a seed or at temperature 0, batching changes rounding, which occasionally changes a token.

    A prompt that exceeds the context length ends its episode as an error. If vLLM dies, the run ends.
    """

    name = "vllm"
    counts_tokens = True
    Options = VLLMOptions
    options: VLLMOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Check the checkpoint and the installation; `open` loads the model."""
        super().__init__(options)
        self._model = resolve_checkpoint(self.options.model, self.name)
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        try:
            import vllm  # noqa: F401 - fails early if vLLM is missing
        except ImportError as error:
            raise UsageError(f"the vllm policy needs {error.name}: {INSTALL}") from None
        self._thread = DaemonThread("vllm")
        self._numbers = itertools.count()

    @property
    def loading(self) -> str:
        """The model's name."""
        return self.options.model

    async def open(self) -> None:
        """Start vLLM and load the model, which takes half a minute or more."""
        self._engine: AsyncLLM = await self._thread.call(self._start)
        defaults = self._engine.model_config.get_diff_sampling_param()
        tokenizer = self._engine.renderer.get_tokenizer()
        self._special_tokens = SpecialTokens(tokenizer)
        self._template = ChatTemplate(tokenizer, self.options.template_options)
        self._defaults = {"max_tokens": None, **defaults}  # vLLM's own default is 16 tokens

    async def close(self) -> None:
        """Shut down vLLM and its processes."""
        # Blocks the event loop on purpose: otherwise vLLM mistakes the end of its processes for a failure.
        self._engine.shutdown()
        del self._engine
        gc.collect()  # the engine is part of a reference cycle, and vLLM complains if it is collected at exit

    async def respond(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        """Return the model's response."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        try:
            return await self._generate(images, prompt)
        except EngineDeadError:
            raise PolicyError("vLLM died; see its output above") from None
        except (VLLMClientError, ValueError) as error:
            raise InfrastructureError(f"vLLM rejected the prompt: {error_text(error)}") from None
        except EngineGenerateError as error:
            raise InfrastructureError(f"vLLM failed: {error_text(error.__cause__ or error)}") from None

    async def _generate(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        from vllm import SamplingParams
        from vllm.renderers import ChatParams
        from vllm.sampling_params import RequestOutputKind

        self._special_tokens.check(prompt.conversation)
        messages: Any = chat_messages(
            prompt.conversation, images, lambda image: {"type": "image_pil", "image_pil": Image.fromarray(image)}
        )
        self._template.check_history(messages)
        renderer = self._engine.renderer
        _, (engine_prompt,) = await renderer.render_chat_async(
            [messages],
            ChatParams(chat_template_kwargs={"add_generation_prompt": True, **self.options.template_options}),
            # The template contains all special tokens.
            renderer.default_chat_tok_params.with_kwargs(add_special_tokens=False),
        )
        sampling = SamplingParams(
            **{**self._defaults, **self.options.sampling(prompt)}, output_kind=RequestOutputKind.FINAL_ONLY
        )
        async for output in self._engine.generate(engine_prompt, sampling, str(next(self._numbers))):
            last_output = output
        completion = last_output.outputs[0]
        if completion.finish_reason in FAILURE_REASONS:
            raise InfrastructureError(f"generation failed: finish_reason is {completion.finish_reason}")
        return Reply(
            completion.text,
            prompt_tokens=len(last_output.prompt_token_ids),
            completion_tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
        )

    def _start(self) -> AsyncLLM:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            args = AsyncEngineArgs(**self.options.arguments(self._model))
            return AsyncLLM.from_engine_args(args)
        except TypeError as error:
            raise UsageError(f"vLLM does not accept engine_args: {error_text(error)}") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"vLLM cannot load {self.options.model}: {error_text(error)}") from None
        except RuntimeError as error:
            raise PolicyError(f"vLLM did not start: {error_text(error)} (see its output above)") from None
