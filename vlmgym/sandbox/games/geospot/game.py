"""Geospot: find where on Earth an image was taken."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from vlmgym.errors import IllegalAction, ParseError, UsageError, short_repr
from vlmgym.sandbox.core.data_task import DataTask
from vlmgym.sandbox.core.game import ImageArray, Info, Infos, Metrics
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import TaskState
from vlmgym.sandbox.data.rows import DECIMAL, BadRow, DataRow, decimal_of, is_empty, number_of, text_of
from vlmgym.sandbox.data.tables import HUB_ID, Table
from vlmgym.sandbox.games.geospot.config import GeospotConfig
from vlmgym.sandbox.games.geospot.drawing import Viewport, mark_reach, paint_map, viewport_around
from vlmgym.sandbox.games.geospot.gazetteer import City, distance_km, gazetteer, normalise
from vlmgym.sandbox.games.geospot.osv5m import OSV5M
from vlmgym.sandbox.games.geospot.place import (
    UNKNOWN,
    Place,
    Places,
    clean_value,
    compare_places,
    compute_reward,
    format_place,
    parse_place,
    place_of,
)

NAMES = ("city", "region", "country")
KM_PER_DEGREE = 111.2  # of latitude
MAX_OFFSET = 0.3
"""Maximum sampled offset of the mark from the map's centre in x and in y, relative to the map's side.

Reduced if cropping would otherwise cut off the mark.
"""
GEOSCORE_KM = 1492.7
"""Distance at which the GeoScore falls from 5000 to 5000 / e (Haas et al., PIGEON, 2024; from GeoGuessr)."""
THRESHOLDS_KM = (25, 200, 750)
"""Thresholds for accuracy at city, region and country scale (Hays and Efros, IM2GPS, 2008)."""

PROMPT_V1 = """\
{image}
Answer with five lines: city, region (state, province or similar), country, latitude and longitude. Names may be in \
any language. Countries and regions may be ISO codes. Latitude and longitude are decimal degrees, positive for north \
and east. Write unknown for values that you do not know. Every line earns more the closer it is to the truth.
{form}"""

PHOTO = "Where on Earth was this image taken?"
MAP_V1 = "This is a map without borders. Dots are cities; larger cities are brighter. {degrees}Which city is marked?"
DEGREES = "Latitudes are labelled at the left edge and longitudes at the bottom edge. "

_MAP_PERCEPTION = "latitude ..., longitude ... (of the mark, in decimal degrees)"
_PHOTO_PERCEPTION = "what in the image indicates the location"

_SEEN = re.compile(rf"(?:latitude)?[:\s]*({DECIMAL})\s*,\s*(?:longitude)?[:\s]*({DECIMAL})", re.IGNORECASE | re.ASCII)
_MAX_SEEN_LENGTH = 200


Latitude = Annotated[float, Field(ge=-90, le=90)]
Longitude = Annotated[float, Field(ge=-180, le=180)]


@dataclass(frozen=True, kw_only=True)
class GeospotState(TaskState):
    """The place that an image shows: names or ISO codes, empty if unknown, and latitude and longitude in degrees."""

    city: str
    region: str
    country: str
    latitude: Latitude
    longitude: Longitude
    middle: tuple[Latitude, Longitude] | None = None
    """Latitude and longitude of the map's centre; None for data."""


def state_of(city: City, middle: tuple[float, float]) -> GeospotState:
    """Create the state of a map that marks a city; `middle` is the latitude and longitude of the map's centre."""
    place = place_of(city)
    return GeospotState(
        city=city.name,
        region=place.region or "",
        country=place.country or "",
        latitude=city.latitude,
        longitude=city.longitude,
        middle=middle,
    )


class Geospot(DataTask[GeospotState, str]):
    """Find where on Earth an image was taken.

    Description:
        Without `data`, the image is a map of land and sea at night on which cities appear as lights and a mark shows
        one of them. With `data`, the image is one of your own photos. The answer is a city, region, country, latitude
        and longitude.

    Observation:
        One RGB image.

    Action:
        `PlaceSpace`: text with five lines such as `city: Paris` in any order, or one line such as
        `Paris, Ile-de-France, France, 48.86, 2.35`. Any value may be `unknown`. A latitude beyond 90 or a longitude
        beyond 180 degrees is illegal.

    Reward:
        0 to 1: the weighted mean of the scores of country, region, city and coordinates. A score is exp(-distance /
        scale) or, if the scale is 0, 1 for a match and 0 otherwise. Names are looked up in a built-in gazetteer; a name
        that is not found scores 0, unless your data spell it the same. 0 for an illegal or unparsable answer.

    Episode end:
        After one turn. `info` has the distances `km` and the scores `score`, both by field, and the fields whose name
        was `not found` in the gazetteer. Metrics: distance, GeoScore, fraction of correct names by field, and fractions
        of answers within 25, 200 and 750 km.

    Arguments:
        `data`: Your own photos. Columns: `image`, `latitude`, `longitude` and optionally `country`, `region`, `city`.
    """

    name = "geospot"
    skills = ("knowledge", "spatial")
    prompt_template = PROMPT_V1
    Config = GeospotConfig
    State = GeospotState
    answer = Places()
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "photo", "image_url", "file_name", "path", "url"),
        "latitude": ("latitude", "lat"),
        "longitude": ("longitude", "lon", "lng"),
        "country": ("country", "country_code"),
        "region": ("region", "state", "province", "admin1"),
        "city": ("city", "town"),
    }
    optional_fields = frozenset(NAMES)
    image_fields = ("image",)

    # Questions ------------------------------------------------------------------------------------------------------

    def generate(self, rng: np.random.Generator) -> GeospotState:
        """Sample one of the `cities` most populous cities uniformly, and the position of the map around it."""
        city = gazetteer().city_at(int(rng.integers(min(self.config.cities, len(gazetteer())))))
        crop = self.config.crop
        limit = min(MAX_OFFSET, (1 - crop) / 2 - mark_reach(self.config))
        right, up = (int(value) / 1000 * limit for value in rng.integers(-1000, 1001, 2))
        viewport = viewport_around(city.latitude, city.longitude, self.config.span, right, up, crop)
        return state_of(city, (viewport.latitude, viewport.longitude))

    def open_data(self, data: str, split: str | None) -> Table:
        match = HUB_ID.fullmatch(data)
        if match is not None and match["repo"] == OSV5M and not Path(data).expanduser().exists():
            raise UsageError(f"{data} is hundreds of GB of zip files; `vlmgym data fetch osv5m` downloads part of it")
        return super().open_data(data, split)

    def from_row(self, fields: DataRow) -> GeospotState:
        """Read a place from a data row; raise `BadRow` if it is invalid or has no field that the reward needs."""
        latitude = _coordinate(fields, "latitude", 90)
        longitude = _coordinate(fields, "longitude", 180)
        city, region, country = (_name(fields, name) for name in NAMES)
        if country and gazetteer().country(country) is None:
            raise BadRow(f"country must be a country's name or ISO code, got {short_repr(country)}")
        needed = {name for name, weight in self.config.scoring[0]._asdict().items() if weight}
        present = {name for name, value in zip(NAMES, (city, region, country)) if value} | {"coordinates"}
        if not needed & present:
            raise BadRow(f"the row has no {' or '.join(sorted(needed))}, which the reward needs")
        return GeospotState(city=city, region=region, country=country, latitude=latitude, longitude=longitude)

    # Images and words ----------------------------------------------------------------------------------------------

    def paint(self, state: GeospotState) -> Sequence[ImageArray]:
        assert state.middle is not None
        viewport = Viewport(*state.middle, self.config.span)
        return [paint_map(viewport, (state.latitude, state.longitude), self.config, gazetteer())]

    def describe(self, state: GeospotState) -> str:
        """The coordinates of the mark, rounded to 0.01 degrees; photos are not described."""
        return "a photograph" if state.row else f"latitude {state.latitude:.2f}, longitude {state.longitude:.2f}"

    @property
    def image_source(self) -> str:
        return super().image_source or "cities from GeoNames (CC BY 4.0), land from Natural Earth (public domain)"

    @property
    def no_text_observation(self) -> str:
        return "photos are not described" if self.config.data else "its descriptions are the answers"

    def perceive(self, state: GeospotState, text: str) -> Perception | None:
        """Score coordinates by their distance from the mark; None for photos.

        With the distance d relative to the map's height, `partial` is exp(-10 * d), and `exact` is 1 if d <= 0.01.
        """
        if state.row is not None:
            return None
        match = _SEEN.fullmatch(text.strip()) if len(text) <= _MAX_SEEN_LENGTH else None
        latitude, longitude = map(decimal_of, match.groups()) if match is not None else (None, None)
        if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
            return Perception(0.0, 0.0)
        distance = distance_km(latitude, longitude, round(state.latitude, 2), round(state.longitude, 2))
        height = self.config.span * KM_PER_DEGREE
        return Perception(math.exp(-10 * distance / height), float(distance <= height / 100))

    def prompt(self, state: GeospotState) -> str:
        if state.row is not None:
            image, perception = PHOTO, _PHOTO_PERCEPTION
        else:
            image, perception = MAP_V1.format(degrees=DEGREES if self.config.degrees else ""), _MAP_PERCEPTION
        return self.fill_prompt(perception, image=image)

    # Answers --------------------------------------------------------------------------------------------------------

    def explain(self, state: GeospotState, action: str) -> str:
        place = parse_place(action)
        names = [name for name in (place.city, place.region, place.country) if name is not None]
        return f"This place seems to be {', '.join(names) or 'at these coordinates'}."

    def solution(self, state: GeospotState) -> str:
        return format_place(_true_place(state))

    def score(self, state: GeospotState, action: str) -> tuple[float, Info]:
        if not isinstance(action, str):
            raise IllegalAction(f"an action of geospot is a text, not {short_repr(action)}")
        try:
            place = parse_place(action)
        except ParseError as error:
            raise IllegalAction(str(error)) from None
        if place.coordinates is not None:
            for axis, value, limit in zip(("latitude", "longitude"), place.coordinates, (90, 180)):
                if abs(value) > limit:
                    raise IllegalAction(f"{axis} must be between -{limit} and {limit}, got {value:g}")
        comparison = compare_places(place, _true_place(state), gazetteer())
        reward, scores = compute_reward(comparison.distances, *self.config.scoring)
        info = {"km": dict(comparison.distances), "score": scores, "not found": list(comparison.not_found)}
        return reward, info

    def metrics(self, state: GeospotState, infos: Infos) -> Metrics:
        """Distance, GeoScore, correct names and thresholds; for an invalid answer, no distance and 0 for the others."""
        if not state.answered:
            return {}
        km: Mapping[str, float | None] = infos[-1].get("km", {}) if infos else {}
        distance = km.get("coordinates")
        metrics = dict(super().metrics(state, infos))
        if distance is not None:
            metrics["distance km"] = distance
        metrics["geoscore"] = 0.0 if distance is None else 5000 * math.exp(-distance / GEOSCORE_KM)
        for field in NAMES:
            if getattr(state, field):
                metrics[f"{field} right"] = float(km.get(field) == 0)
        for limit in THRESHOLDS_KM:
            metrics[f"within {limit} km"] = float(distance is not None and distance <= limit)
        return metrics


MISSING = ("", UNKNOWN, "none", "null", "nil", "n a", "na", "nan", "unk", "undefined", "unspecified", "missing")
"""Normalised values that stand for a missing name in tables; `-`, `?` and the like are normalised to an empty text."""
NAMES_LIKE_MISSING = ("Nan", "Na")
"""Names of places that are spelled like a missing value; Nan is a city and a province of Thailand."""
NAMIBIA = "NA"


def _name(fields: DataRow, name: str) -> str:
    """Read a name; empty if it is missing or a word for that, such as `unknown` or `N/A`."""
    text = "" if is_empty(fields[name]) else text_of(fields, name)
    if text in NAMES_LIKE_MISSING or (name == "country" and text == NAMIBIA):
        return text
    return "" if normalise(text) in MISSING else text


def _coordinate(fields: DataRow, name: str, limit: float) -> float:
    """Read a coordinate, also with a degree sign and a hemisphere as in answers, rounded as in answers."""
    value = fields[name]
    text = clean_value(name, value) if isinstance(value, str) else value
    return round(number_of({name: text}, name, -limit, limit), 6)


def _true_place(state: GeospotState) -> Place:
    coordinates = (state.latitude, state.longitude)
    return Place(state.city or None, state.region or None, state.country or None, coordinates)
