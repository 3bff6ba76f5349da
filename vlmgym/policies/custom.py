"""User-defined policies: `custom_policy(images_batch, prompt_batch)`, sync or async, returns the responses."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from vlmgym.checks import check_timeout
from vlmgym.errors import PolicyError, UsageError, short_repr
from vlmgym.policies.base import PolicyOptions, Prompt, Reply, describe_error
from vlmgym.policies.batching import BatchPolicy, DaemonThread
from vlmgym.sandbox.core.game import ImageArray

Responses = Sequence[str | Reply]
"""One response per prompt: a string, or a `Reply` with token counts and other details."""
CustomFunction = Callable[[list[list[ImageArray]], list[Prompt]], Responses | Awaitable[Responses]]
"""Function that takes a list of uint8 RGB images (height, width, 3) for each prompt, and the prompts, and returns the
responses."""


@dataclass(frozen=True, kw_only=True)
class CustomOptions(PolicyOptions):
    """Options of a user-defined policy."""

    operational: ClassVar[frozenset[str]] = frozenset({"timeout"})

    timeout: float = 300.0
    """Maximum seconds per call of the function."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)


class CustomPolicy(BatchPolicy):
    """Calls a function with all prompts that are ready, one batch at a time, in a separate thread."""

    counts_tokens = True  # a response without counts raises an error if a price or budget is set
    Options = CustomOptions
    options: CustomOptions

    def __init__(self, function: CustomFunction, name: str | None = None, options: PolicyOptions | None = None) -> None:
        """Wrap a function; `name` defaults to the name of the function."""
        super().__init__(options)
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._thread = DaemonThread(self.name)

    async def respond_to_batch(self, images: list[list[ImageArray]], prompts: list[Prompt]) -> list[Reply]:
        """Call the function; replies without a latency get the duration of the call."""
        count, start = len(prompts), time.perf_counter()
        call = self._thread.call(self.function, images, prompts)
        try:
            await asyncio.wait([call], timeout=self.options.timeout)
        finally:
            call.cancel()  # no effect if the call is done
        if call.cancelled():
            raise PolicyError(f"{self.name} timed out after {self.options.timeout:g} s with {count} prompts")
        try:
            responses = call.result()
        except Exception as error:
            raise PolicyError(f"{self.name} raised {describe_error(error)}") from error
        latency = time.perf_counter() - start
        if not isinstance(responses, list | tuple) or not all(isinstance(reply, str | Reply) for reply in responses):
            raise PolicyError(f"{self.name} must return a list of strings or Replies, got {short_repr(responses)}")
        if len(responses) != count:
            raise PolicyError(f"{self.name} returned {len(responses)} responses to {count} prompts")
        replies = [reply if isinstance(reply, Reply) else Reply(reply) for reply in responses]
        return [replace(reply, latency=latency) if reply.latency is None else reply for reply in replies]


def load_object(spec: str) -> Any:
    """Load a function or a policy from `MODULE:NAME` or `path/to/file.py:NAME`.

    Modules are also found in the current folder. A file can import modules in its own folder.
    """
    source, _, attribute = spec.rpartition(":")
    if source.endswith(".py") and not Path(source).is_file():
        raise UsageError(f"cannot load {source!r}: no such file")
    try:
        module = _load_file(Path(source)) if source.endswith(".py") else _load_module(source)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, SystemExit included
        raise UsageError(f"cannot load {source!r}: {describe_error(error)}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UsageError(f"{source!r} has no function or policy {attribute!r}") from None


def _load_module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    full_path = path.resolve()
    # A unique module name, so that a file named openai.py can import openai.
    spec = importlib.util.spec_from_file_location(str(full_path).replace(".", "_"), path)
    assert spec is not None, "the file ends with .py"
    assert spec.loader is not None
    if str(full_path.parent) not in sys.path:
        sys.path.append(str(full_path.parent))  # last, so that installed packages take precedence
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up the module that defines them
    spec.loader.exec_module(module)
    return module
