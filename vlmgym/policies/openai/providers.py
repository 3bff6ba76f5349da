"""Servers for `--provider`, and how many tokens images cost; the data, with sources, is in `providers.toml`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vlmgym.checks import read_toml
from vlmgym.errors import UsageError, describe_validation_error, did_you_mean

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
BUILT_IN = Path(__file__).with_name("providers.toml")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str | None = None
    checked: date | None = None


class ImageTokens(_Entry):
    """Rule for the number of tokens of an image; `providers.toml` describes the fields."""

    models: tuple[str, ...] = ()
    patch: int | None = None
    rounding: Literal["up", "nearest"] = "up"
    fit: tuple[int, int] | None = None
    base: int = 0
    tokens: float = 1.0
    min_patches: int = 0
    max_patches: int | None = None
    max_side: int | None = None

    def count(self, width: float, height: float, *, low: bool = False) -> int:
        """Count the tokens of an image; `low` is `--detail low`."""
        if low and self.fit is not None:
            return self.base
        if self.patch is None:
            return math.ceil(self.tokens)
        if self.fit is not None:
            largest_side, shorter_side = self.fit
            scale = min(1.0, largest_side / max(width, height))
            scale = min(scale, shorter_side / min(width, height))
            width, height = width * scale, height * scale
        round_side = math.ceil if self.rounding == "up" else round
        columns, rows = (max(1, round_side(side / self.patch)) for side in (width, height))
        if self.max_side is not None:
            columns, rows = min(columns, self.max_side), min(rows, self.max_side)
        patches = max(self.min_patches, columns * rows)
        return math.ceil(self.base + self.tokens * min(patches, self.max_patches or patches))


class Provider(_Entry):
    """An OpenAI-compatible server, and its deviations from OpenAI's; `providers.toml` describes the fields."""

    base_url: str
    key: str | None = None
    key_header: str | None = None
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    ignored: tuple[str, ...] = ()
    max_temperature: float | None = None
    images: ImageTokens | None = None
    prices: dict[str, tuple[Price, Price]] = {}
    requests_per_minute: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def price(self, model: str) -> tuple[float, float] | None:
        """Return the price of a million input and output tokens of a model; None if it is unknown."""
        return next((price for pattern, price in self.prices.items() if _matches(model, [pattern])), None)

    @property
    def url(self) -> str:
        """`base_url` with the value of the environment variable at its start, if there is one.

        Raises:
            UsageError: The variable is not set.
        """
        if not self.base_url.startswith("$"):
            return self.base_url
        name, slash, path = self.base_url[1:].partition("/")
        if not (value := os.environ.get(name)):
            raise UsageError(f"set the environment variable {name}, or --base-url")
        return f"{value.rstrip('/')}{slash}{path}"


def find_provider(name: str) -> Provider:
    """Return a built-in provider, one of the user's `providers.toml`, or, for `FILE.toml:NAME`, one of that file.

    Raises:
        UsageError: There is no such provider, or a file cannot be read.
    """
    path, colon, name_in_file = name.rpartition(":")
    if colon:
        providers, name = _read(Path(path))[0], name_in_file
    else:
        user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "vlmgym" / "providers.toml"
        providers = _read(BUILT_IN)[0] | (_read(user)[0] if user.exists() else {})
    if name not in providers:
        choices = f"the providers are {', '.join(providers)}; add your own as FILE.toml:NAME"
        raise UsageError(f"unknown provider {name!r}{did_you_mean(name, providers)}: {choices}")
    return providers[name]


def image_tokens(model: str, provider: Provider | None) -> ImageTokens | None:
    """Return the rule for images of a model, which is None if it is unknown."""
    if provider is not None and provider.images is not None:
        return provider.images
    return next((rule for rule in _read(BUILT_IN)[1] if _matches(model, rule.models)), None)


def _matches(model: str, patterns: Iterable[str]) -> bool:
    name = model.rpartition("/")[2].lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache
def _read(path: Path) -> tuple[dict[str, Provider], tuple[ImageTokens, ...]]:
    data = read_toml(path)
    try:
        images = tuple(map(ImageTokens.model_validate, data.pop("images", ())))
        return {name: Provider.model_validate(entry) for name, entry in data.items()}, images
    except ValidationError as error:
        raise UsageError(f"{path} cannot be read: {describe_validation_error(error)}") from None
