"""Places as answers: parsing, formatting and the action space."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gymnasium import spaces

from vlmgym.errors import ParseError, truncate
from vlmgym.sandbox.core.answer_text import narrow, unlabelled, unwrap
from vlmgym.sandbox.data.rows import decimal_of
from vlmgym.sandbox.games.geospot.gazetteer import City, gazetteer

UNKNOWN = "unknown"
ALSO_UNKNOWN = ("n/a", "none", "null")
KEYS = ("city", "region", "country", "latitude", "longitude")
MAX_NAME_LENGTH = 100

_SHORT_KEYS: Mapping[str, str] = {"lat": "latitude", "lon": "longitude", "long": "longitude", "lng": "longitude"}
_LINE = re.compile(
    r"(?:(?:[-*\u2022\u2013]|[1-5][.)])\s+)?(\*\*|__|[*_`\"']?)"
    r"(city|region|country|lat(?:itude)?|lon(?:g(?:itude)?)?|lng)(?:\1[\s\u00a0]*[:\uff1a]|[\s\u00a0]*[:\uff1a]\1)\s*(.*)",
    re.IGNORECASE | re.ASCII,
)
"""A line `KEY: VALUE`; the key may be enclosed in Markdown or JSON markup."""
_DEGREES = re.compile(
    r"([+\-\u2212]?)([0-9.]+(?:e-[0-9]+)?)\s*(?:[\u00b0\u00ba]|degrees)?\s*(n|north|s|south|e|east|w|west)?\.?",
    re.IGNORECASE | re.ASCII,
)
_BULLET = re.compile(r"^[-*\u2022\u2013]\s+")


@dataclass(frozen=True, slots=True)
class Place:
    """A place: names or ISO codes, and (latitude, longitude) in degrees; unknown fields are None."""

    city: str | None
    region: str | None
    country: str | None
    coordinates: tuple[float, float] | None


class PlaceSpace(spaces.Space[str]):
    """Gymnasium space of all strings that `parse_place` accepts."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """False, because elements are strings."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Sample a city of the gazetteer uniformly; return it in the form of `format_place`."""
        cities = gazetteer()
        return format_place(place_of(cities.city_at(int(self.np_random.integers(len(cities))))))

    def contains(self, x: Any) -> bool:
        """True for a string that `parse_place` accepts."""
        try:
            return isinstance(x, str) and parse_place(x) is not None
        except ParseError:
            return False

    def __eq__(self, other: object) -> bool:
        """All place spaces are equal."""
        return isinstance(other, PlaceSpace)

    def __repr__(self) -> str:
        return "PlaceSpace()"


def place_of(city: City) -> Place:
    """Convert a city of the gazetteer to a `Place`."""
    cities = gazetteer()
    region = cities.region_of(city)
    return Place(
        city.name,
        None if region is None else region.name,
        cities.country_of(city).name,
        (city.latitude, city.longitude),
    )


def format_place(place: Place) -> str:
    """Format a place as five lines such as `city: Paris`. Coordinates are rounded to 6 decimals."""
    latitude, longitude = (UNKNOWN, UNKNOWN) if place.coordinates is None else map(_format_number, place.coordinates)
    names = (UNKNOWN if name is None else name for name in (place.city, place.region, place.country))
    return "\n".join(f"{key}: {value}" for key, value in zip(KEYS, (*names, latitude, longitude)))


@lru_cache(maxsize=1024)  # an answer is parsed once for validity and again for scoring
def parse_place(text: str) -> Place:
    """Parse a place from five lines as formatted by `format_place`, in any order, or from one line of five values.

    The single line is `city, region, country, latitude, longitude` without keys. Any value may be `unknown`, but
    latitude only together with longitude.
    """
    lines = [_BULLET.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].partition(":")[0].strip().casefold() not in KEYS:
        values = [value.strip() for value in lines[0].split(",")]
        if len(values) != len(KEYS):
            raise ParseError(f"an answer on one line must have the five values {', '.join(KEYS)}, got {len(values)}")
        fields = dict(zip(KEYS, values))
    else:
        fields = _parse_lines(lines)
    latitude, longitude = _number(fields, "latitude"), _number(fields, "longitude")
    if latitude is None or longitude is None:
        if latitude is not longitude:
            raise ParseError(f"latitude and longitude must both be numbers or both {UNKNOWN}")
        coordinates = None
    else:
        coordinates = latitude, longitude
    return Place(_name(fields, "city"), _name(fields, "region"), _name(fields, "country"), coordinates)


def normalise_place(text: str) -> str:
    """Rewrite other unambiguous spellings of a place so that `parse_place` accepts them.

    Accepts JSON, Markdown around keys and values, `lat`, `lon`, `long` and `lng`, coordinates with a degree sign and a
    hemisphere (`33.87° S`), and `N/A`, `none` and `null` for `unknown`. Anything else is left unchanged.
    """
    text = unwrap(unlabelled(unwrap(text)))
    lines = _json_lines(text) or [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and _LINE.fullmatch(lines[0]) is None:
        values = lines[0].split(",")
        return ", ".join([*(clean_value(key, value) for key, value in zip(KEYS, values)), *values[len(KEYS) :]])
    return "\n".join(map(_normalise_line, lines))


def _json_lines(text: str) -> list[str]:
    """Convert a JSON object of strings, numbers and nulls to lines; return an empty list for anything else."""
    if not text.startswith("{"):
        return []
    try:
        fields = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    items = [(key, UNKNOWN if value is None else value) for key, value in fields]
    if not all(isinstance(value, str) for _, value in items):
        return []
    return [" ".join(f"{key}: {value}".split()) for key, value in items]


def _normalise_line(line: str) -> str:
    found = _LINE.fullmatch(unwrap(line))
    if found is None:
        return line
    mark, key, value = found.groups()
    key = _SHORT_KEYS.get(key.lower(), key.lower())
    return f"{key}: {clean_value(key, value.removesuffix(',') if mark == chr(34) else value)}"


def clean_value(key: str, value: str) -> str:
    """Strip markup from a value; convert a coordinate to signed decimal degrees, and `N/A` to `unknown`."""
    value = unwrap(value)
    if value.casefold() in (UNKNOWN, *ALSO_UNKNOWN):
        return UNKNOWN
    found = _DEGREES.fullmatch(narrow(value)) if key in KEYS[3:] else None
    if found is None:
        return value
    sign, number, side = found[1], found[2], (found[3] or "")[:1].lower()
    if not side:
        return f"{sign}{number}"
    if sign or side not in ("ns" if key == "latitude" else "ew"):
        return value
    return f"-{number}" if side in "sw" else number


def _parse_lines(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        key = key.strip().casefold()
        if not colon or key not in KEYS:
            raise ParseError(f"expected a line KEY: VALUE with {', '.join(KEYS)} as key, got {truncate(line, 60)!r}")
        if key in fields:
            raise ParseError(f"there is more than one line for {key}")
        fields[key] = value.strip()
    for key in KEYS:
        if key not in fields:
            raise ParseError(f"there is no line for {key}; write '{key}: {UNKNOWN}' if you do not know it")
    return fields


def _name(fields: dict[str, str], key: str) -> str | None:
    name = " ".join(fields[key].split())
    if name.casefold() == UNKNOWN:
        return None
    if not name or not name.isprintable() or len(name) > MAX_NAME_LENGTH:
        raise ParseError(
            f"{key} must be a name of 1 to {MAX_NAME_LENGTH} characters or {UNKNOWN}, got {truncate(name, 60)!r}"
        )
    return name


def _number(fields: dict[str, str], key: str) -> float | None:
    text = fields[key]
    if text.casefold() == UNKNOWN:
        return None
    number = decimal_of(text)
    if number is None:
        raise ParseError(f"{key} must be decimal degrees such as -33.87, or {UNKNOWN}, got {truncate(text, 60)!r}")
    return round(number, 6) + 0.0  # no negative zero


def _format_number(number: float) -> str:
    return f"{round(number, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
