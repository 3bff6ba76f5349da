"""What a policy is. There are two kinds, by where they run.

A `StatePolicy` (random, oracle) answers from the position and runs beside the episode in its worker process.
A `ModelPolicy` answers from images and prompt, lives in the main process, and is asked for many episodes at once.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from vlmgym.checks import as_int, check_int
from vlmgym.errors import UsageError
from vlmgym.records.episode import TurnRecord
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game, ImageArray


class Prompt(str):
    """The text of a prompt, which also knows its images and the turn it asks for. It can be used as any string.

    Attributes:
        game: Game that is played; `game.id` is its id and `game.config` its configuration.
        seed: Seed of the episode.
        turn: Turns taken before this one.
        images: Images of the prompt as the policy takes them, by default uint8 RGB arrays of shape (height, width, 3):
            those of earlier turns, oldest first, where a prompt repeats them, then the current one or ones.
        snapshot: The episode before this turn; None outside of an evaluation.
    """

    game: Game[Any, Any]
    seed: int
    turn: int
    images: Sequence[Any]
    snapshot: Snapshot | None

    def __new__(
        cls,
        text: str,
        game: Game[Any, Any],
        seed: int,
        turn: int,
        snapshot: Snapshot | None = None,
        images: Sequence[Any] = (),
    ) -> Prompt:
        """Attach a turn to a text."""
        prompt = super().__new__(cls, text)
        prompt.game, prompt.seed, prompt.turn, prompt.snapshot, prompt.images = game, seed, turn, snapshot, images
        return prompt

    @property
    def text(self) -> str:
        """The text alone, as a plain string."""
        return str.__str__(self)

    @property
    def episode_id(self) -> str:
        """Game and seed, for instance `2048-v0/7`, which no other episode of a run has."""
        return f"{self.game.id}/{self.seed}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Prompts can be copied, and sent to other processes."""
        return Prompt, (self.text, self.game, self.seed, self.turn, self.snapshot, self.images)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy said.

    Attributes:
        text: The response, unchanged.
        prompt_tokens: Tokens of prompt and images, where the policy counts them.
        completion_tokens: Tokens of the response (and of hidden reasoning), where the policy counts them.
        finish_reason: Why the model stopped, in its server's words (`stop`, `length`), where it says so.
        reasoning: What the model thought apart from its response, where its server shows it.
        latency: Seconds of the request that was answered, where waiting and retries are no part of it.
        requests: How often the model was asked until it answered, where the policy asks a server.
        model: Name of the model that responded, where its server says it.

    Raises:
        UsageError: A value is not of its type, or a number is negative.
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
                object.__setattr__(self, name, str.__str__(value))  # other processes may not know a class of its own
            elif value is not None or name == "text":
                raise UsageError(f"{name} of a Reply must be a string, got {type(value).__name__}")
        for name in ("prompt_tokens", "completion_tokens", "requests"):
            value = as_int(getattr(self, name))
            check_int(f"{name} of a Reply", value, 0, optional=True)
            object.__setattr__(self, name, value)
        if self.latency is not None:
            if not (isinstance(self.latency, int | float | np.floating) and 0 <= self.latency < math.inf):
                raise UsageError(f"latency of a Reply must be a number of seconds, got {self.latency!r}")
            object.__setattr__(self, "latency", float(self.latency))


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    """Options of a policy, which are options of the command line when it is chosen; each field has a docstring.

    A value that is not accepted raises `UsageError` in `__post_init__`.
    """

    operational: ClassVar[frozenset[str]] = frozenset()
    """Fields that decide nothing about a response (an address, a time-out): a resumed run may change them."""

    def without_operational(self) -> dict[str, Any]:
        """The options that decide what the policy says, as JSON-serialisable values."""
        return {name: value for name, value in self.to_dict().items() if name not in self.operational}

    def to_dict(self) -> dict[str, Any]:
        """All options as JSON-serialisable values that may be written down: no secret is among them."""
        return asdict(self)


def check_timeout(timeout: float) -> None:
    """Refuse a time-out that is not a positive, finite number of seconds.

    Raises:
        UsageError: It is not.
    """
    if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
        raise UsageError(f"timeout is a number of seconds above 0, not {timeout!r}")


class Policy(ABC):
    """What all policies have: a name, options, and games that they can play."""

    name: str
    """What it is called in records and messages."""
    Options: ClassVar[type[PolicyOptions]] = PolicyOptions
    """Type of the options; all of them have defaults."""
    options: PolicyOptions
    counts_tokens: ClassVar[bool] = False
    """Whether replies tell how many tokens they used, as prices and budgets need."""

    def __init__(self, options: PolicyOptions | None = None) -> None:
        self.options = self.Options() if options is None else options

    def check(self, game: Game[Any, Any]) -> None:  # noqa: B027 - optional to override
        """Refuse a game that this policy cannot play.

        Raises:
            UsageError: The message says why.
        """


class StatePolicy(Policy):
    """Answers from the position itself. It is sent to worker processes, so it holds settings only."""

    @abstractmethod
    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """The whole response to a position; all chance comes from `rng`."""


def identity(image: ImageArray) -> ImageArray:
    """The image as it is: the `look` of a policy that takes arrays."""
    return image


_BEGINNING = threading.Lock()


class ModelPolicy(Policy):
    """Answers from images and prompt."""

    look: Callable[[ImageArray], Any] | None = staticmethod(identity)
    """What becomes of each image in the worker process that draws it, before `respond` gets it: a function that can
    be pickled, for instance one that encodes. None: the policy does not look, and nothing is drawn."""
    max_concurrency: int | None = None
    """How many episodes can be played at once at most; None: any number."""
    supports_history_images: ClassVar[bool] = True
    """Whether the images of earlier turns reach who answers, where `--history-images` asks for them."""
    _in_use = False

    async def begin_run(self) -> None:
        """Open for one run, which `end_run` ends; what `open` takes belongs to that run alone.

        Raises:
            UsageError: Another run, maybe of another thread, uses this policy; or as `open`.
            PolicyError: As `open`.
        """
        with _BEGINNING:
            if self._in_use:
                raise UsageError(
                    f"this policy object ({self.name}) is in use by another run; runs at the same time need one each"
                )
            self._in_use = True
        try:
            await self.open()
        except BaseException:
            self._in_use = False
            raise

    async def end_run(self) -> None:
        """Close; then another run may begin."""
        try:
            await self.close()
        finally:
            self._in_use = False

    @property
    def loading(self) -> str | None:
        """What `open` loads, for the progress of a run; None: it takes no time."""
        return None

    async def open(self) -> None:
        """Get ready in the event loop that will ask: connect, load. Called once a run.

        Raises:
            UsageError: An option, a file or a package is missing or wrong.
            PolicyError: It does not start.
        """

    async def close(self) -> None:
        """Let go of what `open` took, also after an error; called if `open` has succeeded."""

    @abstractmethod
    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """The response to one prompt; called for many episodes at once.

        Args:
            images: What `look` made of each image: of earlier turns, oldest first, if asked for, then of the
                position. Empty if the policy does not look.
            prompt: The text.

        Raises:
            InfrastructureError: The model could not be asked; the episode ends as an error, others go on.
            PolicyError: The policy failed; the run ends, and what was finished stays.
        """

    def set_running_episodes(self, episodes: int) -> None:
        """How many episodes are running: no more than this many prompts wait at a time."""


def policy_rng(seed: int, turn: int) -> np.random.Generator:
    """Random generator for one turn of a policy, independent of the game and of the number of workers."""
    return np.random.default_rng([_POLICY_STREAM, seed, turn])


_POLICY_STREAM = 0x706F6C696379


def recorded_reply(turn: TurnRecord) -> Reply:
    """What the policy said in a recorded turn."""
    return Reply(
        turn.response,
        turn.prompt_tokens,
        turn.completion_tokens,
        turn.finish_reason,
        turn.reasoning,
        turn.latency,
        turn.requests,
        turn.model,
    )
