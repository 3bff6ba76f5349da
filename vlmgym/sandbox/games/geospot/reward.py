"""How near an answer is to a place: a reward from 0 to 1 of distances and matches, field by field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vlmgym.sandbox.games.geospot.distance import distance_km
from vlmgym.sandbox.games.geospot.gazetteer import City, Country, Gazetteer, Region
from vlmgym.sandbox.games.geospot.names import normalise
from vlmgym.sandbox.games.geospot.place import Place

Preset = Literal["hierarchical", "weighted"]


class Fields(NamedTuple):
    """A number for each field of an answer."""

    country: float
    region: float
    city: float
    coordinates: float


class Stage(NamedTuple):
    """A stage of a curriculum.

    Attributes:
        episode: The first training episode of this stage.
        weights: Weights of the fields; the reward is divided by their sum.
        scales: Distances in km at which the kernel of a field has fallen to 1/e; 0: match or nothing.
    """

    episode: int
    weights: Fields
    scales: Fields


_DECAY = Fields(2000.0, 500.0, 100.0, 25.0)
_PARTS = Fields(0.3, 0.2, 0.2, 0.3)

CURRICULA: Mapping[Preset, tuple[Stage, ...]] = {
    # Weights and episodes as in vlm-gym (github.com/sdan/vlm-gym), where coordinates weigh max(city, region / 2).
    "hierarchical": (
        Stage(0, Fields(1.0, 0.0, 0.0, 0.0), _DECAY),
        Stage(100, Fields(0.5, 0.0, 0.0, 0.0), _DECAY),
        Stage(300, Fields(0.3, 0.4, 0.0, 0.2), _DECAY),
        Stage(600, Fields(0.2, 0.3, 0.3, 0.3), _DECAY),
        Stage(1000, Fields(0.15, 0.25, 0.4, 0.4), _DECAY),
    ),
    "weighted": tuple(
        Stage(episode, _PARTS, Fields(0.0, 0.0, 0.0, tolerance))
        for episode, tolerance in zip((0, 100, 300, 600, 1000), (500.0, 200.0, 100.0, 50.0, 25.0))
    ),
}
"""The stages of each preset, from the first; the last one is the whole task."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Where an image was taken: names as the data have them, empty where they do not, and degrees."""

    city: str
    region: str
    country: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near an answer is to the truth.

    Attributes:
        distances: km from the answer to the truth by field, 0 where a name matches; None where the answer has no such
            field, or names something that the gazetteer does not know. Fields that the truth lacks are missing.
        not_found: Fields whose name the gazetteer does not know.
    """

    distances: Mapping[str, float | None]
    not_found: tuple[str, ...]


def nearness(truth: Truth, answer: Place, places: Gazetteer) -> Nearness:
    """Compare an answer with the truth field by field.

    Names of the same place match, in whatever language they are. What the gazetteer does not know matches if it is
    written the same but for case, accents and punctuation, a region or city only if the countries do not differ. Other
    names are as far apart as their places, which are those of the gazetteer; that of a true region or city it does not
    know is where the image was taken. A city's name means the true city where that has it and lies in the country
    and region of the answer, of those it names; else `Gazetteer.city` says which.
    """
    true_country = places.country(truth.country) if truth.country else None
    true_region = places.region(truth.region, true_country) if truth.region else None
    if true_region is not None and true_country is not None and true_region.country != true_country.code:
        true_region = None
    true_city = places.city_near(truth.city, truth.latitude, truth.longitude) if truth.city else None
    country = places.country(answer.country) if answer.country else None
    region = places.region(answer.region, country) if answer.region else None
    city = None
    if answer.city:
        meant = (
            true_city is not None
            and _may_be(true_city, country, region)
            and true_city in places.cities_named(answer.city)
        )
        city = true_city if meant else places.city(answer.city, country, region)
    elsewhere = country is not None and true_country is not None and country != true_country

    distances: dict[str, float | None] = {}
    not_found = []
    named: list[tuple[str, str, str | None, _Known, _Known]] = [
        ("country", truth.country, answer.country, true_country, country),
        ("region", truth.region, answer.region, true_region, region),
        ("city", truth.city, answer.city, true_city, city),
    ]
    for field, true_name, name, known_truth, known in named:
        if name is not None and known is None:
            not_found.append(field)
        if not true_name:
            continue
        if name is None:
            distances[field] = None
        elif known is not None and known_truth is not None:
            distances[field] = 0.0 if known == known_truth else _between(known, known_truth)
        elif normalise(name) == normalise(true_name) and not (elsewhere and field != "country"):
            distances[field] = 0.0
        elif known is not None:
            distances[field] = distance_km(known.latitude, known.longitude, truth.latitude, truth.longitude)
        else:
            distances[field] = None
    coordinates = answer.coordinates
    distances["coordinates"] = (
        None if coordinates is None else distance_km(*coordinates, truth.latitude, truth.longitude)
    )
    return Nearness(distances, tuple(not_found))


def reward(distances: Mapping[str, float | None], weights: Fields, scales: Fields) -> tuple[float, dict[str, float]]:
    """The weighed mean of a kernel of each field, and those kernels: exp(-distance / scale), or 1 for a match.

    Fields that are missing in `distances` do not count; a distance of None has a kernel of 0.
    """
    kernels: dict[str, float] = {}
    total = whole = 0.0
    for field, weight, scale in zip(Fields._fields, weights, scales):
        if field not in distances:
            continue
        distance = distances[field]
        if distance is None:
            kernels[field] = 0.0
        else:
            kernels[field] = math.exp(-distance / scale) if scale > 0 else float(distance == 0)
        total += weight * kernels[field]
        whole += weight
    return total / whole if whole else 0.0, kernels


_Known = Country | Region | City | None


def _between(one: Country | Region | City, other: Country | Region | City) -> float:
    return distance_km(one.latitude, one.longitude, other.latitude, other.longitude)


def _may_be(city: City, country: Country | None, region: Region | None) -> bool:
    """Whether neither a country nor a region of an answer says that a city is elsewhere."""
    if country is not None and country.code != city.country:
        return False
    return region is None or (region.country == city.country and city.region in ("", region.code))
