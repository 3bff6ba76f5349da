"""What an answer says of a place, and how it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from vlmgym.errors import ParseError, truncate
from vlmgym.sandbox.core.answer_text import narrow, unlabelled, unwrap
from vlmgym.sandbox.decimals import decimal_of

UNKNOWN = "unknown"
KEYS = ("city", "region", "country", "latitude", "longitude")
LONGEST_NAME = 100
"""Characters of a name."""

_SHORT_KEYS: Mapping[str, str] = {"lat": "latitude", "lon": "longitude", "long": "longitude", "lng": "longitude"}
_LINE = re.compile(
    r"(?:(?:[-*\u2022\u2013]|[1-5][.)])\s+)?(\*\*|__|[*_`\"']?)"
    r"(city|region|country|lat(?:itude)?|lon(?:g(?:itude)?)?|lng)(?:\1\s*[:\uff1a]|\s*[:\uff1a]\1)\s*(.*)",
    re.IGNORECASE,
)
"""A line with Markdown or JSON around its key."""
_DEGREES = re.compile(
    r"([+\-\u2212]?)([0-9.]+(?:e-[0-9]+)?)\s*(?:[\u00b0\u00ba]|degrees)?\s*(n|north|s|south|e|east|w|west)?\.?",
    re.IGNORECASE,
)
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


def normalise_place(text: str) -> str:
    """Rewrite any unambiguous spelling of a place as `read_place` reads it.

    Accepted are JSON, Markdown around keys and values, `lat`, `lon`, `long` and `lng`, and coordinates with a degree
    sign and a hemisphere (`33.87° S`). What is not recognised stays, for `read_place` to refuse.
    """
    text = unwrap(unlabelled(unwrap(text)))
    lines = _json_lines(text) or [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) == 1 and _LINE.fullmatch(lines[0]) is None:
        values = [unwrap(value) for value in lines[0].split(",")]
        return ", ".join(
            [*values[:3], *(_degrees(key, value) for key, value in zip(KEYS[3:], values[3:5])), *values[5:]]
        )
    return "\n".join(map(_normalise_line, lines))


def _json_lines(text: str) -> list[str]:
    """The fields of a JSON object as lines; none if the text is no such object, or a value no text, number or null."""
    if not text.startswith("{"):
        return []
    try:
        fields = json.loads(text, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return []
    told = [(key, UNKNOWN if value is None else value) for key, value in fields]
    if not all(isinstance(value, str) for _, value in told):
        return []
    return [" ".join(f"{key}: {value}".split()) for key, value in told]


def _normalise_line(line: str) -> str:
    found = _LINE.fullmatch(unwrap(line))
    if found is None:
        return line
    mark, key, value = found.groups()
    key = _SHORT_KEYS.get(key.lower(), key.lower())
    value = unwrap(value.removesuffix(",") if mark == '"' else value)
    return f"{key}: {_degrees(key, value)}"


def _degrees(key: str, value: str) -> str:
    """Decimal degrees without a degree sign, negative for south and west; the value itself if it is anything else."""
    found = _DEGREES.fullmatch(narrow(value)) if key in KEYS[3:] else None
    if found is None:
        return value
    sign, number, side = found[1], found[2], (found[3] or "")[:1].lower()
    if not side:
        return f"{sign}{number}"
    if sign or side not in ("ns" if key == "latitude" else "ew"):
        return value
    return f"-{number}" if side in "sw" else number


def _keyed(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        key = key.strip().casefold()
        if not colon or key not in KEYS:
            raise ParseError(f"a line is one of {', '.join(KEYS)}, a colon and a value, not {truncate(line, 60)!r}")
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
            f"the {key} is a name of 1 to {LONGEST_NAME} characters or {UNKNOWN}, not {truncate(name, 60)!r}"
        )
    return name


def _number(fields: dict[str, str], key: str) -> float | None:
    text = fields[key]
    if text.casefold() == UNKNOWN:
        return None
    number = decimal_of(text)
    if number is None:
        raise ParseError(f"the {key} is decimal degrees such as -33.87 or {UNKNOWN}, not {truncate(text, 60)!r}")
    return round(number, 6) + 0.0  # no negative zero


def _written(number: float) -> str:
    return f"{round(number, 6) + 0.0:.6f}".rstrip("0").rstrip(".")
