"""Environment states, stored as the reset seed and the actions since."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, NonNegativeInt
from pydantic_core import CoreSchema, core_schema

End = Literal["terminated", "truncated"]


class Moves:
    """A string of action codes, which shares its prefix with the `Moves` that it extends.

    An episode's memory and time are therefore linear in its length, although every turn has its own state.

    Attributes:
        length: Number of characters in the string.
    """

    __slots__ = ("_before", "_digest", "_text", "length")

    def __init__(self, text: str = "", before: Moves | None = None) -> None:
        """Store `text`, appended to `before` if given."""
        self._text, self._before = text, before
        self._digest: blake2b = blake2b(digest_size=16) if before is None else before._digest.copy()
        self._digest.update(text.encode())
        self.length: int = len(text) + (0 if before is None else before.length)

    @property
    def digest(self) -> bytes:
        """16-byte digest of the actions."""
        return self._digest.digest()

    def __str__(self) -> str:
        parts, moves = list[str](), self
        while moves._before is not None:
            parts.append(moves._text)
            moves = moves._before
        return "".join([moves._text, *reversed(parts)])

    def __repr__(self) -> str:
        return repr(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moves) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return Moves, (str(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[Any], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Serialise moves as a string."""
        return core_schema.no_info_after_validator_function(
            cls, core_schema.str_schema(strict=True), serialization=core_schema.to_string_ser_schema()
        )


@dataclass(frozen=True, slots=True)
class GymState:
    """An environment state: reset seed, actions since, and how the episode ended, if it has."""

    seed: NonNegativeInt
    actions: Moves = field(default_factory=Moves)
    end: End | None = None

    @property
    def key(self) -> tuple[int, bytes]:
        """Seed and digest of the actions."""
        return self.seed, self.actions.digest
