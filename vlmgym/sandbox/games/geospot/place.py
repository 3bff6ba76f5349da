"""Places as answers: parsing, formatting, the action space and the reward."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from gymnasium import spaces

from vlmgym.errors import ParseError, UsageError, short_repr, truncate
from vlmgym.sandbox.answers.base import Answer, narrow, unlabelled, unwrap
from vlmgym.sandbox.data.rows import decimal_of
from vlmgym.sandbox.games.geospot.config import Fields
from vlmgym.sandbox.games.geospot.gazetteer import City, Country, Gazetteer, Region, distance_km, gazetteer, normalise

UNKNOWN = "unknown"
ALSO_UNKNOWN = ("n/a", "none", "null")
KEYS = ("city", "region", "country", "latitude", "longitude")
MAX_NAME_LENGTH = 100

_SHORT_KEYS: Mapping[str, str] = {"lat": "latitude", "lon": "longitude", "long": "longitude", "lng": "longitude"}
_SPACES = r"[\s\u00a0\u2000-\u200a\u202f\u205f\u3000]*"
_LINE = re.compile(
    r"(?:(?:[-*\u2022\u2013]|[1-5][.)])\s+)?(\*\*|__|[*_`\"']?)"
    rf"(city|region|country|lat(?:itude)?|lon(?:g(?:itude)?)?|lng)(?:\1{_SPACES}[:\uff1a]|{_SPACES}[:\uff1a]\1)\s*(.*)",
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

    is_np_flattenable = False  # elements are strings

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


class Places(Answer[str]):
    """Five lines such as `city: Paris`, or another spelling that `parse_place` accepts; actions are the lines."""

    form = "\n" + "\n".join(f"{key}: ..." for key in KEYS) + "\n"
    longest = 500

    @cached_property
    def space(self) -> PlaceSpace:
        """All places."""
        return PlaceSpace()

    def parse(self, text: str) -> str:
        return format_place(parse_place(text))

    def format(self, action: str) -> str:
        return action

    def from_data(self, data: Any) -> str:
        """Convert text that names a place to the five lines of `format_place`."""
        try:
            return self.parse(data if isinstance(data, str) else "")
        except ParseError as error:
            raise UsageError(
                f"an action of geospot must be a text that names a place, got {short_repr(data)}: {error}"
            ) from None


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
    latitude only together with longitude. Other unambiguous spellings are accepted too: JSON, Markdown around keys and
    values, `lat`, `lon`, `long` and `lng`, coordinates with a degree sign and a hemisphere (`33.87° S`), and `N/A`,
    `none` and `null` for `unknown`.
    """
    text = unwrap(unlabelled(unwrap(text)))
    lines = [_BULLET.sub("", line.strip()) for line in _json_lines(text) or text.splitlines() if line.strip()]
    fields: dict[str, str] = {}
    if len(lines) == 1 and _LINE.fullmatch(lines[0]) is None:
        values = lines[0].split(",")
        if len(values) != len(KEYS):
            raise ParseError(f"an answer on one line must have the five values {', '.join(KEYS)}, got {len(values)}")
        fields = {key: clean_value(key, value) for key, value in zip(KEYS, values)}
    else:
        for line in lines:
            if (match := _LINE.fullmatch(unwrap(line))) is None:
                raise ParseError(
                    f"expected a line KEY: VALUE with {', '.join(KEYS)} as key, got {truncate(line, 60)!r}"
                )
            mark, key, value = match.groups()
            key = _SHORT_KEYS.get(key.lower(), key.lower())
            if key in fields:
                raise ParseError(f"there is more than one line for {key}")
            fields[key] = clean_value(key, value.removesuffix(",") if mark == '"' else value)
    for key in KEYS:
        if key not in fields:
            raise ParseError(f"there is no line for {key}; write '{key}: {UNKNOWN}' if you do not know it")
    latitude, longitude = _number(fields, "latitude"), _number(fields, "longitude")
    if latitude is None or longitude is None:
        if latitude is not longitude:
            raise ParseError(f"latitude and longitude must both be numbers or both {UNKNOWN}")
        coordinates = None
    else:
        coordinates = latitude, longitude
    return Place(_name(fields, "city"), _name(fields, "region"), _name(fields, "country"), coordinates)


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


def clean_value(key: str, value: str) -> str:
    """Strip markup from a value; convert a coordinate to signed decimal degrees, and `N/A` to `unknown`."""
    value = unwrap(value)
    if value.casefold() in (UNKNOWN, *ALSO_UNKNOWN):
        return UNKNOWN
    match = _DEGREES.fullmatch(narrow(value)) if key in KEYS[3:] else None
    if match is None:
        return value
    sign, number, side = match[1], match[2], (match[3] or "")[:1].lower()
    if not side:
        return f"{sign}{number}"
    if sign or side not in ("ns" if key == "latitude" else "ew"):
        return value
    return f"-{number}" if side in "sw" else number


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


# Reward ---------------------------------------------------------------------------------------------------------------
# 0 to 1: the weighted mean of per-field scores, which depend on distances or matches.


@dataclass(frozen=True, slots=True)
class Comparison:
    """Distances between an answer and the truth."""

    distances: Mapping[str, float | None]
    """Distance in km by field; 0 if names match, None if the answer lacks the field or the name is not found. Fields
    that the truth lacks are omitted."""
    not_found: tuple[str, ...]
    """Fields for which the answer's name is not in the gazetteer."""


def compare_places(answer: Place, truth: Place, places: Gazetteer) -> Comparison:
    """Compare an answer with the truth field by field.

    Names match if the gazetteer lists them, in any language, for the same place. Otherwise, the distance is that
    between the two places in the gazetteer; a true region or city that is not in the gazetteer is located at the true
    coordinates. If either name is not in the gazetteer, the names match if they differ only in case, accents or
    punctuation; for regions and cities, the answer must also not name another country.

    A name shared by several cities refers to the true city, unless this contradicts the answer's country or region; it
    then refers to the city that `Gazetteer.city` returns. The truth must have coordinates.
    """
    assert truth.coordinates is not None
    true_country = places.country(truth.country) if truth.country else None
    true_region = places.region(truth.region, true_country) if truth.region else None
    if true_region is not None and true_country is not None and true_region.country != true_country.code:
        true_region = None
    true_city = places.city_near(truth.city, *truth.coordinates) if truth.city else None
    country = places.country(answer.country) if answer.country else None
    region = places.region(answer.region, country) if answer.region else None
    city = None
    if answer.city:
        is_true_city = (
            true_city is not None and _may_be(true_city, country, region) and true_city in places.cities(answer.city)
        )
        city = true_city if is_true_city else places.city(answer.city, country, region)
    wrong_country = country is not None and true_country is not None and country != true_country

    distances: dict[str, float | None] = {}
    not_found = []
    fields: list[tuple[str, str | None, str | None, _Entry, _Entry]] = [
        ("country", truth.country, answer.country, true_country, country),
        ("region", truth.region, answer.region, true_region, region),
        ("city", truth.city, answer.city, true_city, city),
    ]
    for field, true_name, name, true_entry, entry in fields:
        if name is not None and entry is None:
            not_found.append(field)
        if not true_name:
            continue
        if name is None:
            distances[field] = None
        elif entry is not None and true_entry is not None:
            away = distance_km(entry.latitude, entry.longitude, true_entry.latitude, true_entry.longitude)
            distances[field] = 0.0 if entry == true_entry else away
        elif normalise(name) == normalise(true_name) and not (wrong_country and field != "country"):
            distances[field] = 0.0
        elif entry is not None:
            distances[field] = distance_km(entry.latitude, entry.longitude, *truth.coordinates)
        else:
            distances[field] = None
    coordinates = answer.coordinates
    distances["coordinates"] = None if coordinates is None else distance_km(*coordinates, *truth.coordinates)
    return Comparison(distances, tuple(not_found))


def compute_reward(
    distances: Mapping[str, float | None], weights: Fields, scales: Fields
) -> tuple[float, dict[str, float]]:
    """Return the weighted mean of the scores of all fields, and the score of each field.

    A score is exp(-distance / scale), or, with a scale of 0, 1 for a match and 0 otherwise. A distance of None scores
    0. Fields missing from `distances` are excluded from the mean.
    """
    scores: dict[str, float] = {}
    total = total_weight = 0.0
    for field, weight, scale in zip(Fields._fields, weights, scales):
        if field not in distances:
            continue
        distance = math.inf if (given := distances[field]) is None else given
        scores[field] = math.exp(-distance / scale) if scale > 0 else float(distance == 0)
        total += weight * scores[field]
        total_weight += weight
    return total / total_weight if total_weight else 0.0, scores


_Entry = Country | Region | City | None


def _may_be(city: City, country: Country | None, region: Region | None) -> bool:
    """Return whether a city is consistent with the country and region of an answer."""
    if country is not None and country.code != city.country:
        return False
    return region is None or (region.country == city.country and city.region in ("", region.code))
