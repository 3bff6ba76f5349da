"""Policy interfaces.

A `StatePolicy` (random, oracle) responds to the game state and runs alongside the episode, in its worker process.
A `ModelPolicy` responds to images and a prompt; it runs in the main process and serves many episodes concurrently.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

import numpy as np
from pydantic import TypeAdapter, ValidationError

from vlmgym import checks
from vlmgym.checks import check_int, to_int
from vlmgym.errors import PolicyError, UsageError, VlmgymError, describe_exception
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray
from vlmgym.sandbox.core.prompt import Message, PromptConfig, chat_messages

if TYPE_CHECKING:
    from vlmgym.runs.record import TurnRecord


class Prompt(str):
    """The prompt text of a turn: an ordinary string, with the images and details of the turn as attributes.

    Attributes:
        game: The game; `game.id` is its id and `game.config` its config.
        seed: Seed of the episode.
        turn: Number of turns already taken.
        images: Images of the prompt as the policy receives them, by default uint8 RGB arrays of shape
            (height, width, 3): images of earlier turns, oldest first, then the current ones.
        snapshot: The episode before this turn; None outside of evaluations.
        conversation: The prompt's messages, as accepted by `vlmgym.sandbox.core.prompt.chat_messages`.
    """

    game: Game[Any, Any]
    seed: int
    turn: int
    images: Sequence[Any]
    snapshot: Snapshot | None
    conversation: str | Sequence[Message]

    def __new__(
        cls,
        text: str,
        game: Game[Any, Any],
        seed: int,
        turn: int,
        snapshot: Snapshot | None = None,
        images: Sequence[Any] = (),
        conversation: Sequence[Message] | None = None,
    ) -> Prompt:
        """Create a prompt, by default a single user message."""
        prompt = super().__new__(cls, text)
        prompt.game, prompt.seed, prompt.turn, prompt.snapshot, prompt.images = game, seed, turn, snapshot, images
        prompt.conversation = text if conversation is None else conversation
        return prompt

    @property
    def text(self) -> str:
        """The text as a plain `str`."""
        return str.__str__(self)

    @property
    def episode_id(self) -> str:
        """Game id and seed, such as `2048-v0/7`; unique within a run."""
        return f"{self.game.id}/{self.seed}"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Chat messages with parts of type `image` and `text`, as expected by transformers chat templates."""
        return chat_messages(self.conversation, self.images, lambda image: {"type": "image", "image": image})

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling."""
        return Prompt, (self.text, self.game, self.seed, self.turn, self.snapshot, self.images, self.conversation)


FAILURE_REASONS = ("abort", "error")
"""Finish reasons with which vLLM and OpenRouter report a failure."""
MIN_SECRET = 8
"""Minimum length of redacted secrets; shorter ones occur in ordinary text."""
SECRET_VARIABLE = re.compile("(KEY|TOKEN|SECRET|PASSWORD)S?$", re.IGNORECASE | re.ASCII)
"""Names of environment variables that hold secrets."""
LIBRARY = (str(Path(__file__).parent), checks.__file__, "<string>")
"""Beginnings of the paths of files that can be in the traceback of an error in user code but are not the user's;
`<string>` is the generated `__init__` of `Reply`."""


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace secrets in a text with `[redacted]`."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, "[redacted]")
    return text


def json_object(name: str, text: str) -> dict[str, Any]:
    """Parse an option that holds a JSON object; errors do not show it, because it may contain a key."""
    try:
        return _JSON_OBJECT.validate_json(text)
    except ValidationError:
        raise UsageError(f"{name} must be a JSON object") from None


_JSON_OBJECT = TypeAdapter(dict[str, Any])


def environment_secrets() -> list[str]:
    """Return the values of environment variables that hold keys, tokens and passwords."""
    return [value for name, value in os.environ.items() if SECRET_VARIABLE.search(name)]


def describe_error(error: BaseException) -> str:
    """Describe an error in user code in one line without secrets."""
    return redact(describe_exception(error, LIBRARY), environment_secrets())


def storable(text: str) -> str:
    """Return text as a plain `str`, with lone surrogates escaped because UTF-8 cannot encode them."""
    return str.encode(text, "utf-8", "backslashreplace").decode("utf-8")


@dataclass(frozen=True, slots=True)
class Reply:
    """A policy's response to one prompt. Fields other than `text` are None if unknown.

    Lone surrogates in strings are escaped, because UTF-8 cannot encode them.

    Attributes:
        text: The response.
        prompt_tokens: Number of tokens of the prompt, including images.
        completion_tokens: Number of tokens of the response, including hidden reasoning.
        finish_reason: Finish reason reported by the server, such as `stop` or `length`.
        reasoning: Reasoning that the server returned separately from the response.
        latency: Duration of the successful request in seconds, without queueing and retries.
        requests: Number of requests sent to the server, including retries.
        model: Name of the responding model, as reported by the server.

    Raises:
        UsageError: A value has the wrong type, or a number is negative or not finite.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    latency: float | None = None
    requests: int | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        for name in ("text", "finish_reason", "reasoning", "model"):
            value = getattr(self, name)
            if isinstance(value, str):
                object.__setattr__(self, name, storable(value))
            elif value is not None or name == "text":
                raise UsageError(f"{name} of a Reply must be a string, got {type(value).__name__}")
        for name in ("prompt_tokens", "completion_tokens", "requests"):
            count = to_int(f"{name} of a Reply", getattr(self, name), 0, optional=True)
            object.__setattr__(self, name, count)
        if self.latency is not None:
            if not (isinstance(self.latency, int | float | np.floating) and 0 <= self.latency < math.inf):
                raise UsageError(f"latency of a Reply must be a number of seconds, got {self.latency!r}")
            object.__setattr__(self, "latency", float(self.latency))


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Options of a policy; on the command line, each field is an option with its docstring as help text.

    `__post_init__` raises `UsageError` for invalid values.
    """

    operational: ClassVar[frozenset[str]] = frozenset()
    """Fields that do not affect responses, such as an address or a timeout; a resumed run may change them."""

    def without_operational(self) -> dict[str, Any]:
        """Return the options that affect responses, as JSON-serialisable values."""
        return {name: value for name, value in self.to_dict().items() if name not in self.operational}

    def to_dict(self) -> dict[str, Any]:
        """Return all options as JSON-serialisable values without secrets, for the run's record."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(PolicyOptions):
    """Sampling options. Options that are not set use the defaults of the model or server."""

    temperature: float | None = None
    """Sampling temperature, at least 0; 0 is greedy."""
    top_p: float | None = None
    """Sample from the most likely tokens with this total probability, above 0 and at most 1."""
    top_k: int | None = None
    """Sample from this many of the most likely tokens. Supported by vLLM and others, not by OpenAI."""
    max_tokens: int | None = None
    """Maximum response length in tokens, including hidden reasoning."""
    enable_thinking: bool | None = None
    """Turn a model's own thinking on or off, if its chat template has this switch, as those of Qwen3.5 and Qwen3.6.
    None leaves it to the template."""
    sample_seed: int | None = None
    """Seed for reproducible sampling, where the model supports it.
    Each request gets its own seed, derived from this number, the game, the episode's seed and the turn."""

    def __post_init__(self) -> None:
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise UsageError(f"temperature must be at least 0, got {self.temperature!r}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p must be above 0 and at most 1, got {self.top_p!r}")
        for name, minimum in (("top_k", 1), ("max_tokens", 1), ("sample_seed", 0)):
            check_int(name, getattr(self, name), minimum, optional=True)

    def sampling(self, prompt: Prompt | None = None) -> dict[str, Any]:
        """Return the options that are set, named as in the OpenAI API and vLLM; without a prompt, there is no seed."""
        options = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_tokens": self.max_tokens,
            "seed": None if prompt is None else self.request_seed(prompt),
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def template_options(self) -> dict[str, Any]:
        """Arguments of the chat template."""
        return {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}

    def request_seed(self, prompt: Prompt) -> int | None:
        """Return the seed of a request, 0 to 2^31 - 1; None without `sample_seed`."""
        if self.sample_seed is None:
            return None
        entropy = (self.sample_seed, crc32(prompt.game.id.encode()), prompt.seed, prompt.turn)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1


class Policy:
    """Base class of all policies."""

    name: str = "custom"
    """Name in records and messages."""
    Options: ClassVar[type[PolicyOptions]] = PolicyOptions
    """Type of the options; every field has a default."""
    options: PolicyOptions = PolicyOptions()
    counts_tokens: ClassVar[bool] = False
    """True if replies include token counts, which prices and budgets require."""

    def __init__(self, options: PolicyOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    def check(self, game: Game[Any, Any]) -> None:
        """Raise `UsageError` unless this policy can play a game."""


class StatePolicy(Policy, ABC):
    """A policy that responds to the game state. Must be cheap to pickle, because it is sent to worker processes."""

    @abstractmethod
    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """Return the full response to a state; all randomness comes from `rng`."""


def identity(image: ImageArray) -> ImageArray:
    """Return the image unchanged; the default `ModelPolicy.transform`."""
    return image


_begin_lock = threading.Lock()


class ModelPolicy(Policy, ABC):
    """A policy that responds to images and a prompt."""

    transform: Callable[[ImageArray], Any] | None = staticmethod(identity)
    """Picklable function that the worker process applies to each image it renders, for instance to encode the image.
    None if the policy does not use images, in which case none are rendered."""
    max_concurrency: int | None = None
    """Maximum number of concurrent episodes; None for no limit."""
    timeout: float | None = None
    """Maximum seconds per reply; None for no limit."""
    _in_use = False

    def supports_prompts(self, prompts: PromptConfig) -> bool:
        """Return whether the policy can use prompts with these contents."""
        return True

    async def begin_run(self) -> None:
        """Open the policy and reserve it until `end_run`; raise `UsageError` if another run is using the policy."""
        with _begin_lock:
            if self._in_use:
                raise UsageError(f"policy {self.name} is already used by another run; create one policy object per run")
            self._in_use = True
        try:
            with self._describing_errors():
                await self.open()
        except BaseException:
            self._in_use = False
            raise

    async def end_run(self) -> None:
        """Close the policy, so that another run can use it."""
        try:
            with self._describing_errors():
                await self.close()
        finally:
            self._in_use = False

    @contextmanager
    def _describing_errors(self) -> Iterator[None]:
        try:
            yield
        except VlmgymError as error:
            error.args = (redact(str(error), environment_secrets()),)
            raise
        except Exception as error:
            raise PolicyError(f"{self.name} raised {describe_error(error)}") from error

    @property
    def loading(self) -> str | None:
        """Name of what `open` loads, shown in the progress bar; None if opening is instant."""
        return None

    @property
    def status(self) -> str:
        """Problems so far, such as retried requests, shown in the progress bar; empty if there are none."""
        return ""

    async def open(self) -> None:
        """Connect or load, in the event loop that will call `respond`. Called once per run.

        Raises:
            UsageError: An option, a file or a package is missing or invalid.
            PolicyError: The policy failed to start.
        """

    async def close(self) -> None:
        """Release what `open` acquired. Called if `open` succeeded, even after errors."""

    async def reply(self, images: list[Any], prompt: Prompt) -> Reply:
        """Call `respond`, and check its result, because it may be a user's.

        Raises:
            InfrastructureError: See `respond`.
            PolicyError: See `respond`; also if it timed out, raised another error, or did not return a response.
        """
        start = time.monotonic()
        with self._describing_errors():
            response: Any = self.respond(images, prompt)
            if not isawaitable(response):
                raise PolicyError(f"{self.name} must respond in an async function")
            try:
                response = await (response if self.timeout is None else asyncio.wait_for(response, self.timeout))
            except asyncio.TimeoutError:
                if self.timeout is None or time.monotonic() < start + self.timeout:
                    raise
                raise PolicyError(f"{self.name} timed out after {self.timeout:g} s") from None
        if not isinstance(response, str | Reply):
            raise PolicyError(f"{self.name} must return a string or a Reply, got {type(response).__name__}")
        return response if isinstance(response, Reply) else Reply(response)

    @abstractmethod
    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Respond to a prompt and its transformed images, oldest first. Called concurrently for many episodes.

        Raises:
            InfrastructureError: The request failed; the episode ends as an error, other episodes continue.
            PolicyError: The policy failed; the run ends and keeps the finished episodes.
        """

    def set_running_episodes(self, episodes: int) -> None:
        """Set the number of running episodes, an upper bound on the number of concurrent prompts."""


def policy_rng(seed: int, turn: int) -> np.random.Generator:
    """Return the random generator of a policy for one turn; depends only on the seed of the episode and the turn."""
    return np.random.default_rng([_POLICY_STREAM, seed, turn])


_POLICY_STREAM = 0x706F6C696379


REPLY_DETAILS = tuple(field.name for field in fields(Reply) if field.name != "text")
"""Fields of a reply besides its text; the record of a turn has them under the same names."""


def recorded_reply(turn: TurnRecord) -> Reply:
    """Return the reply stored in a recorded turn."""
    return Reply(turn.response, **{name: getattr(turn, name) for name in REPLY_DETAILS})
