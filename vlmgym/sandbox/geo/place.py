"""What an answer says of a place, and how it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from vlmgym.errors import ParseError, shorten
from vlmgym.sandbox.decimals import decimal_of

UNKNOWN = "unknown"
KEYS = ("city", "region", "country", "latitude", "longitude")
LONGEST_NAME = 100
"""Characters of a name."""

_BULLET = re.compile(r"^[-*\u2022\u2013]\s+")


@dataclass(frozen=True, slots=True)
class Place:
    """A place as an answer names it.

    Attributes:
        city: Name of the city, None if unknown.
        region: Name of the state, province or the like, None if unknown.
        country: Name or ISO code of the country, None if unknown.
        coordinates: Latitude and longitude in degrees, north and east positive, None if unknown; any finite numbers.
    """

    city: str | None
    region: str | None
    country: str | None
    coordinates: tuple[float, float] | None


def write_place(place: Place) -> str:
    """A place as five lines, `city: Paris` and so on; `read_place` inverts it for coordinates of 6 decimals."""
    latitude, longitude = (UNKNOWN, UNKNOWN) if place.coordinates is None else map(_written, place.coordinates)
    names = (UNKNOWN if name is None else name for name in (place.city, place.region, place.country))
    return "\n".join(f"{key}: {value}" for key, value in zip(KEYS, (*names, latitude, longitude)))


@lru_cache(maxsize=1024)  # an answer is read to see whether it is one, and again to be scored
def read_place(text: str) -> Place:
    """A place from five lines as `write_place` writes them, in any order, or from one line of five values.

    The one line is `city, region, country, latitude, longitude` without keys. Any value may be `unknown`, latitude and
    longitude only together.

    Raises:
        ParseError: The text is anything else; the message says what is wrong.
    """
    lines = [_BULLET.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and lines[0].partition(":")[0].strip().casefold() not in KEYS:
        values = [value.strip() for value in lines[0].split(",")]
        if len(values) != len(KEYS):
            raise ParseError(f"a place in one line has the five values {', '.join(KEYS)}, not {len(values)}")
        fields = dict(zip(KEYS, values))
    else:
        fields = _keyed(lines)
    latitude, longitude = _number(fields, "latitude"), _number(fields, "longitude")
    if latitude is None or longitude is None:
        if latitude is not longitude:
            raise ParseError("latitude and longitude are both numbers or both unknown")
        coordinates = None
    else:
        coordinates = latitude, longitude
    return Place(_name(fields, "city"), _name(fields, "region"), _name(fields, "country"), coordinates)


def _keyed(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        key = key.strip().casefold()
        if not colon or key not in KEYS:
            raise ParseError(f"a line is one of {', '.join(KEYS)}, a colon and a value, not {shorten(line, 60)!r}")
        if key in fields:
            raise ParseError(f"there are two lines for the {key}")
        fields[key] = value.strip()
    for key in KEYS:
        if key not in fields:
            raise ParseError(f"there is no line for the {key}; what is not known is written '{key}: {UNKNOWN}'")
    return fields


def _name(fields: dict[str, str], key: str) -> str | None:
    name = " ".join(fields[key].split())
    if name.casefold() == UNKNOWN:
        return None
    if not name or not name.isprintable() or len(name) > LONGEST_NAME:
        raise ParseError(
            f"the {key} is a name of 1 to {LONGEST_NAME} characters or {UNKNOWN}, not {shorten(name, 60)!r}"
        )
    return name


def _number(fields: dict[str, str], key: str) -> float | None:
    text = fields[key]
    if text.casefold() == UNKNOWN:
        return None
    number = decimal_of(text)
    if number is None:
        raise ParseError(f"the {key} is decimal degrees such as -33.87 or {UNKNOWN}, not {shorten(text, 60)!r}")
    return round(number, 6) + 0.0  # no negative zero


def _written(number: float) -> str:
    return f"{round(number, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
