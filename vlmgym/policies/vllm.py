"""Offline vLLM: the model in processes of this run, without a server."""

from __future__ import annotations

import gc
import itertools
import json
import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from PIL import Image

from vlmgym.checks import check_int
from vlmgym.errors import InfrastructureError, PolicyError, UsageError, truncate
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.policies.chat_api import FAILURE_REASONS
from vlmgym.policies.checkpoint import error_text, resolve_checkpoint
from vlmgym.policies.daemon_thread import DaemonThread
from vlmgym.policies.sampling import SamplingOptions
from vlmgym.sandbox.core.game import ImageArray

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

MISSING = "bash setup.sh --serve makes an environment that has it (.venv-serve/bin/vlmgym), or pip install vllm"
ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
"""Settings of vLLM that leave the terminal to the run; those that the user has set stay."""
SPAWN = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
"""vLLM forks by default, which is not safe beside the threads of a run."""

DType = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True, kw_only=True)
class VLLMOptions(SamplingOptions):
    """Options of a policy that runs vLLM itself."""

    operational: ClassVar[frozenset[str]] = frozenset({"gpu_memory_utilization", "tensor_parallel_size"})

    model: str = ""
    """Folder of a checkpoint, or its name on the Hugging Face hub."""
    dtype: DType = "auto"
    """Type of weights and activations. auto: as the checkpoint says, but never more than 16 bits."""
    max_model_len: int | None = None
    """Tokens of prompt and response together. Default: what the model was made for, which may need much memory."""
    gpu_memory_utilization: float | None = None
    """Share of a GPU's memory that vLLM takes for weights and cache, above 0, at most 1; on a CPU, the share of the
    machine's memory that has to be free. Default: vLLM's own, about 0.9."""
    tensor_parallel_size: int = 1
    """GPUs over which the model is spread."""
    images_per_prompt: int | None = None
    """Most images in a prompt, for which vLLM keeps memory free. Default: vLLM's own. A game with --history-images
    shows one turn's images more than that."""
    engine_args: str = "{}"
    """More arguments of vLLM's engine as a JSON object, for instance '{"enforce_eager": true, "max_num_seqs": 32}'."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_model_len", "tensor_parallel_size", "images_per_prompt"):
            check_int(name, getattr(self, name), 1, optional=True)
        share = self.gpu_memory_utilization
        if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
            raise UsageError(f"gpu_memory_utilization is a share above 0 and at most 1, not {share!r}")
        if self.dtype not in get_args(DType):
            raise UsageError(f"dtype is one of {', '.join(get_args(DType))}, not {self.dtype!r}")
        if ours := self.more_args.keys() & self._own_args("").keys():
            raise UsageError(f"engine_args cannot set {min(ours)}: another option does")
        if "hf_token" in self.more_args:
            raise UsageError("engine_args cannot set hf_token, which would be recorded: set the variable HF_TOKEN")

    def to_dict(self) -> dict[str, Any]:
        """All options as JSON-serialisable values."""
        return super().to_dict() | {"engine_args": self.more_args}

    @cached_property
    def more_args(self) -> dict[str, Any]:
        """The arguments of `engine_args`."""
        try:
            args = json.loads(self.engine_args)
        except (ValueError, RecursionError):
            args = None
        if not isinstance(args, dict):
            raise UsageError(f"engine_args is a JSON object, not {truncate(self.engine_args, 60)}")
        return args

    def arguments(self, model: str) -> dict[str, Any]:
        """All arguments of the engine for a model."""
        return {"disable_log_stats": True, **self._own_args(model), **self.more_args}

    def _own_args(self, model: str) -> dict[str, Any]:
        most_images = {} if self.images_per_prompt is None else {"image": self.images_per_prompt}
        share = self.gpu_memory_utilization
        return {
            "model": model,
            "dtype": self.dtype,
            "max_model_len": self.max_model_len,
            "tensor_parallel_size": self.tensor_parallel_size,
            "limit_mm_per_prompt": {**most_images, "video": 0},  # no memory is kept free for videos
            **({} if share is None else {"gpu_memory_utilization": share}),
        }


class VLLMPolicy(ModelPolicy):
    """Hands each prompt to vLLM at once; whatever is ready is generated together (continuous batching).

    Prompts are made by the model's own chat template, and what is not given follows its own generation configuration,
    as on vLLM's server. With `sample_seed`, every request has a seed of its own; yet which requests are computed
    together changes the last bits of the numbers, and so now and then a token, also at temperature 0.

    A prompt that does not fit ends its episode as an error; if vLLM itself dies, the run ends.
    """

    name = "vllm"
    counts_tokens = True
    Options = VLLMOptions
    options: VLLMOptions

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Nothing is loaded yet.

        Raises:
            UsageError: There is no checkpoint, or vLLM is not installed.
        """
        super().__init__(options)
        self._model = resolve_checkpoint(self.options.model, self.name)
        for name, value in (ENVIRONMENT | SPAWN).items():
            os.environ.setdefault(name, value)
        try:
            import vllm  # noqa: F401 - here, to say at once that it is missing
        except ImportError as error:
            raise UsageError(f"the policy vllm needs {error.name}: {MISSING}") from None
        self._thread = DaemonThread("vllm")
        self._numbers = itertools.count()

    @property
    def loading(self) -> str:
        """The model."""
        return self.options.model

    async def open(self) -> None:
        """Start vLLM and load the model, which takes half a minute and more."""
        self._engine: AsyncLLM = await self._thread.call(self._start)
        defaults = self._engine.model_config.get_diff_sampling_param()
        self._defaults = {"max_tokens": None, **defaults}  # vLLM's own default is 16 tokens

    async def close(self) -> None:
        """End vLLM and its processes."""
        # In the event loop, which holds still meanwhile: else vLLM takes the end of its processes for their failure.
        self._engine.shutdown()
        del self._engine
        gc.collect()  # it is part of a cycle, and complains if it goes only with the program

    async def respond(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        """The model's response."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        try:
            return await self._generate(images, prompt)
        except EngineDeadError:
            raise PolicyError("vLLM has died; what it said is above") from None
        except (VLLMClientError, ValueError) as error:
            raise InfrastructureError(f"vLLM refused the prompt: {error_text(error)}") from None
        except EngineGenerateError as error:
            raise InfrastructureError(f"vLLM failed: {error_text(error.__cause__ or error)}") from None

    async def _generate(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        from vllm import SamplingParams
        from vllm.renderers import ChatParams
        from vllm.sampling_params import RequestOutputKind

        shown = [{"type": "image_pil", "image_pil": Image.fromarray(image)} for image in images]
        message: Any = {"role": "user", "content": [*shown, {"type": "text", "text": str(prompt)}]}
        renderer = self._engine.renderer
        _, (rendered,) = await renderer.render_chat_async(
            [[message]],
            ChatParams(chat_template_kwargs={"add_generation_prompt": True}),
            # The template has written all special tokens.
            renderer.default_chat_tok_params.with_kwargs(add_special_tokens=False),
        )
        sampling = SamplingParams(
            **{**self._defaults, **self.options.sampling(prompt)}, output_kind=RequestOutputKind.FINAL_ONLY
        )
        async for output in self._engine.generate(rendered, sampling, str(next(self._numbers))):
            finished = output
        completion = finished.outputs[0]
        if completion.finish_reason in FAILURE_REASONS:
            raise InfrastructureError(f"vLLM broke off: finish_reason is {completion.finish_reason}")
        return Reply(
            completion.text,
            prompt_tokens=len(finished.prompt_token_ids),
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
            raise UsageError(f"engine_args has what vLLM does not know: {error_text(error)}") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"vLLM does not take {self.options.model}: {error_text(error)}") from None
        except RuntimeError as error:
            raise PolicyError(f"vLLM did not start: {error_text(error)} (what it said is above)") from None
