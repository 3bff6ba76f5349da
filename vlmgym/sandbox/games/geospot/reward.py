"""Reward of an answer, 0 to 1: the weighted mean of per-field scores, which depend on distances or matches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vlmgym.sandbox.games.geospot.gazetteer import City, Country, Gazetteer, Region, distance_km, normalise
from vlmgym.sandbox.games.geospot.place import Place

Preset = Literal["vlm-gym", "mixtrain"]


class Fields(NamedTuple):
    """One number per field of an answer."""

    country: float
    region: float
    city: float
    coordinates: float


class RewardStage(NamedTuple):
    """A stage of a curriculum."""

    begin: int
    """First episode (vlm-gym) or training step (mixtrain), counted from 0."""
    weights: Fields
    """Weights of the fields; they need not add up to 1."""
    scales: Fields
    """Distances in km at which the score of a field falls to 1/e; with a scale of 0, only a match scores."""


_SCALES = Fields(2000.0, 500.0, 100.0, 25.0)

CURRICULA: Mapping[Preset, tuple[RewardStage, ...]] = {
    # Episodes, weights and scales from the code of vlm-gym (github.com/sdan/vlm-gym), where coordinates have the weight
    # max(city, region / 2). Stage 1 has twice the scales, because vlm-gym's README says that stage 2 is stricter.
    "vlm-gym": (
        RewardStage(0, Fields(1.0, 0.0, 0.0, 0.0), Fields(*(2 * scale for scale in _SCALES))),
        RewardStage(100, Fields(0.5, 0.0, 0.0, 0.0), _SCALES),
        RewardStage(300, Fields(0.3, 0.4, 0.0, 0.2), _SCALES),
        RewardStage(600, Fields(0.2, 0.3, 0.3, 0.3), _SCALES),
        RewardStage(1000, Fields(0.15, 0.25, 0.4, 0.4), _SCALES),
    ),
    # Steps, weights and tolerances from the documentation of mixtrain (mixtrain.ai/docs/examples/vlm-rl-training).
    "mixtrain": tuple(
        RewardStage(step, Fields(*weights), Fields(tolerance, tolerance, tolerance, tolerance))
        for step, tolerance, weights in (
            (0, 500.0, (0.3, 0.0, 0.0, 0.0)),
            (100, 200.0, (0.3, 0.0, 0.0, 0.0)),
            (300, 100.0, (0.3, 0.2, 0.0, 0.0)),
            (600, 50.0, (0.3, 0.2, 0.2, 0.0)),
            (1000, 25.0, (0.3, 0.2, 0.2, 0.3)),
        )
    ),
}
"""Stages by preset; the last stage is the full task."""


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
