"""The user's own function `custom_policy(images_batch, prompt_batch)`, plain or async, which returns the responses."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from vlmgym import checks
from vlmgym.errors import PolicyError, UsageError, one_line
from vlmgym.policies import base, daemon_thread
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply, check_timeout
from vlmgym.policies.batching import Batcher
from vlmgym.policies.daemon_thread import DaemonThread
from vlmgym.sandbox.core.game import ImageArray

Responses = Sequence[str | Reply]
"""The response to each prompt: a string, or a `Reply` that also has numbers of tokens and the like."""
CustomFunction = Callable[[list[list[ImageArray]], list[Prompt]], Responses | Awaitable[Responses]]
"""Takes, for each prompt, its list of uint8 RGB images (height, width, 3), and the prompts; returns the responses."""


@dataclass(frozen=True, kw_only=True)
class CustomOptions(PolicyOptions):
    """Options of a policy that is a function."""

    operational: ClassVar[frozenset[str]] = frozenset({"timeout"})

    timeout: float = 300.0
    """Seconds that one call of the function may take."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout)


class CustomPolicy(ModelPolicy):
    """Asks the function for all prompts that are ready, one batch at a time, in a thread of its own."""

    counts_tokens = True  # a function that returns strings is found out when a price is asked for
    Options = CustomOptions
    options: CustomOptions

    def __init__(self, function: CustomFunction, name: str | None = None, options: PolicyOptions | None = None) -> None:
        """Wrap a function.

        Args:
            function: The user's function.
            name: What to call it in records and messages.
            options: `CustomOptions`; None: defaults.
        """
        super().__init__(options)
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self._thread = DaemonThread(self.name)

    async def open(self) -> None:
        """Begin to gather batches in this event loop."""
        self._batcher = Batcher(self._ask)

    async def close(self) -> None:
        """Gather no more; a call that runs is left to its thread."""
        self._batcher.close()

    def set_running_episodes(self, episodes: int) -> None:
        """A batch is full when every running episode waits."""
        self._batcher.set_running_episodes(episodes)

    async def respond(self, images: list[ImageArray], prompt: Prompt) -> Reply:
        """The function's response to this prompt, asked together with whatever else is ready."""
        return await self._batcher.respond(images, prompt)

    async def _ask(self, images: list[list[ImageArray]], prompts: list[Prompt]) -> list[Reply]:
        expected, asked = len(prompts), time.perf_counter()
        call = self._thread.call(self.function, images, prompts)
        await asyncio.wait([call], timeout=self.options.timeout)
        if not call.done():
            call.cancel()
            raise PolicyError(f"{self.name} did not answer {expected} prompts within {self.options.timeout:g} s")
        try:
            returned = call.result()
        except Exception as error:
            # Whatever a user's function raises ends the run with the place in their code, not with our traceback.
            raise PolicyError(f"{self.name} raised {_told(error)}") from error
        latency = time.perf_counter() - asked
        return [
            reply if reply.latency is not None else replace(reply, latency=latency)
            for reply in self._replies(returned, expected)
        ]

    def _replies(self, returned: Any, expected: int) -> list[Reply]:
        if not isinstance(returned, list | tuple):
            raise PolicyError(
                f"{self.name} returned a {type(returned).__name__}; a list of strings or Replies is needed"
            )
        if len(returned) != expected:
            raise PolicyError(f"{self.name} returned {len(returned)} responses for {expected} prompts")
        for i, response in enumerate(returned):
            if not isinstance(response, str | Reply):
                told = f"returned a {type(response).__name__} as response {i}"
                raise PolicyError(f"{self.name} {told}, which is neither a string nor a Reply")
        return [response if isinstance(response, Reply) else Reply(response) for response in returned]


_OURS = (__file__, daemon_thread.__file__, base.__file__, checks.__file__, "<string>")
"""Files that stand between a user's code and an error, the generated `__init__` of `Reply` included."""


def load_function(spec: str) -> CustomFunction:
    """A function named as `MODULE:FUNCTION` (importable, also from the current folder) or `path/to/file.py:FUNCTION`.

    A file can import what lies beside it.

    Raises:
        UsageError: It does not load, or is not a function.
    """
    place, _, attribute = spec.rpartition(":")
    try:
        module = _load_file(Path(place)) if place.endswith(".py") else _load_module(place)
    except (Exception, SystemExit) as error:
        # Importing runs the user's code, which may raise anything.
        raise UsageError(f"{place!r} does not load: {_told(error)}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise UsageError(f"{place!r} has no function {attribute!r}")
    loaded: CustomFunction = function
    return loaded


def _load_module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    whole = path.resolve()
    # A name that no other module has: a file may be called openai.py and import openai.
    spec = importlib.util.spec_from_file_location(str(whole).replace(".", "_"), path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    if str(whole.parent) not in sys.path:
        sys.path.append(str(whole.parent))  # at the end, for the same reason
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def _told(error: BaseException) -> str:
    """An error of the user's code in one line: type, message, and ` (file, line n)` of where it was raised."""
    try:
        message = one_line(str(error))
    except Exception:
        message = "its message cannot be shown"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename not in _OURS and "importlib" not in frame.filename]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {message}{place}"
