"""What a policy is. There are two kinds, by where they run.

A `StatePolicy` (random, oracle) answers from the position and runs beside the episode in its worker process.
A `ModelPolicy` answers from pictures and prompt, lives in the main process, and is asked for many episodes at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vlmgym.sandbox.game import Game, Picture


class Prompt(str):
    """The text a model is told in a turn, which also knows where it comes from.

    Attributes:
        game: The game that is played.
        seed: Seed of the episode.
        turn: Turns taken before this one.
    """

    game: Game[Any, Any]
    seed: int
    turn: int

    def __new__(cls, text: str, game: Game[Any, Any], seed: int, turn: int) -> Prompt:
        """Attach an episode's place to a text."""
        prompt = super().__new__(cls, text)
        prompt.game, prompt.seed, prompt.turn = game, seed, turn
        return prompt

    def __reduce__(self) -> tuple[Any, ...]:
        """Prompts can be copied, and sent to other processes."""
        return Prompt, (str(self), self.game, self.seed, self.turn)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy said.

    Attributes:
        text: The response, unchanged.
        prompt_tokens: Tokens of prompt and pictures, where the policy counts them.
        completion_tokens: Tokens of the response, where the policy counts them.
    """

    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class StatePolicy(ABC):
    """Answers from the position itself. It is sent to worker processes, so it holds settings only."""

    name: ClassVar[str]

    def check(self, game: Game[Any, Any]) -> None:  # noqa: B027 - optional to override
        """Refuse a game that this policy cannot play.

        Raises:
            UsageError: The message says why.
        """

    @abstractmethod
    def respond(self, game: Game[Any, Any], state: Any, rng: np.random.Generator) -> str:
        """The whole response to a position; all chance comes from `rng`."""


class ModelPolicy(ABC):
    """Answers from pictures and prompt."""

    name: str

    @abstractmethod
    async def respond(self, images: list[Picture], prompt: Prompt) -> Reply:
        """The response to one prompt; called for many episodes at once.

        Raises:
            PolicyError: The policy failed; the run ends, and what was finished stays.
        """

    def expect(self, episodes: int) -> None:  # noqa: B027 - optional to override
        """How many episodes are running: no more than this many prompts wait at a time."""


def policy_rng(seed: int, turn: int) -> np.random.Generator:
    """Chance of a policy in one turn of an episode: apart from the game's, and the same for any number of workers."""
    return np.random.default_rng([_POLICY_STREAM, seed, turn])


_POLICY_STREAM = 0x706F6C696379
