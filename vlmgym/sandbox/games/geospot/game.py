"""Geospot: where on earth an image was taken."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import field_validator

from vlmgym.errors import IllegalAction, ParseError, StateError, UsageError
from vlmgym.sandbox.core import response_format
from vlmgym.sandbox.core.config import Dial, Levels, config_field, setting
from vlmgym.sandbox.core.game import ImageArray
from vlmgym.sandbox.core.perception import Perception
from vlmgym.sandbox.core.task import Task, TaskConfig, TaskState
from vlmgym.sandbox.core.task_perception import with_task_perception
from vlmgym.sandbox.datasets.rows import BadRow, Row, is_empty, number_of, shown, text_of
from vlmgym.sandbox.decimals import DECIMAL, decimal_of
from vlmgym.sandbox.games.geospot.distance import distance_km
from vlmgym.sandbox.games.geospot.gazetteer import City, gazetteer
from vlmgym.sandbox.games.geospot.locator import MapStyle, Window, paint_map, window_around
from vlmgym.sandbox.games.geospot.place import Place, normalise_place, read_place, write_place
from vlmgym.sandbox.games.geospot.reward import CURRICULA, Fields, Preset, Truth, nearness, reward
from vlmgym.sandbox.games.geospot.space import PlaceSpace, place_of

NAMES = ("city", "region", "country")
KM_PER_DEGREE = 111.2
"""Of latitude."""
OFF_THE_MIDDLE = 0.3
"""How far the mark may be from the middle of the map, over the map's side; less where the map's edges are cut away."""
GEOSCORE_KM = 1492.7
"""Distance at which GeoScore, 5000 at best, has fallen to 1/e (Haas et al., PIGEON, 2024; from GeoGuessr)."""
NEAR_KM = (25, 200, 750)
"""Distances within which an answer is at the city, the region and the country (Hays and Efros, IM2GPS, 2008)."""

PROMPT_V1 = """\
{image}
The answer has five lines: city, region (state, province or the like), country, latitude and longitude. Names may be \
in any language, a country or region may be its ISO code. Latitude and longitude are decimal degrees, north and east \
positive. Write unknown for what you do not know; in each line, the nearer to the truth the better.
{form}"""

PHOTOGRAPH = "Where on earth was this image taken?"
MAP_V1 = "This is a map without borders: its dots are cities, larger ones are brighter. {degrees}Which city is marked?"
DEGREES = "Parallels and meridians have their degrees at the left and lower edge. "

_ANSWER = "\n" + "\n".join(f"{key}: ..." for key in ("city", "region", "country", "latitude", "longitude")) + "\n"
_ON_THE_MAP = "the mark as latitude ..., longitude ... in decimal degrees"
_IN_PHOTOGRAPHS = "what you see that tells where it is"

_SEEN = re.compile(rf"(?:latitude)?[:\s]*({DECIMAL})\s*,\s*(?:longitude)?[:\s]*({DECIMAL})", re.IGNORECASE)
_LONGEST_SEEN = 200


class GeospotConfig(TaskConfig):
    """Difficulty of geospot, and how answers are scored.

    `span`, `lights`, `degrees`, `mark`, `cities` and `names` concern the map that is drawn where no data are named.
    """

    span: int = config_field("perception", 60, "Degrees from the lower to the upper edge of the map.", ge=5, le=160)
    lights: int = config_field("perception", 4000, "Cities drawn on the map, the largest ones.", ge=1, le=40_000)
    degrees: bool = config_field("perception", True, "Label the parallels and meridians of the map.")
    mark: float = config_field("perception", 2.0, "Radius of the mark in percent of the map's side.", ge=0.5, le=10.0)
    cities: int = config_field(
        "reasoning", 2000, "The marked city is one of so many most populous ones.", ge=1, le=34_000
    )
    names: int = config_field(
        "reasoning", 2, "Names written on the map, of its largest cities but for the marked one.", ge=0
    )
    tolerance: float = config_field(
        "reasoning", 1.0, "Factor on the scales: less demands more precision.", ge=0.01, le=100.0
    )
    preset: Preset = setting("hierarchical", "Weights and scales of the reward; docs/tasks/geospot.md has the tables.")
    stage: int = setting(5, "Stage of the preset's curriculum; 5 is the whole task.", ge=1, le=5)
    weights: tuple[float, float, float, float] | None = setting(
        None, "Weights of country, region, city and coordinates instead of the preset's."
    )
    scales: tuple[float, float, float, float] | None = setting(
        None, "Their scales in km instead of the preset's; 0: a match or nothing."
    )

    levels: ClassVar[Mapping[Dial, Levels]] = with_task_perception(
        reasoning={
            1: {"cities": 100, "names": 6, "tolerance": 4.0},
            2: {"cities": 500, "names": 4, "tolerance": 2.0},
            3: {},
            4: {"cities": 8000, "names": 0, "tolerance": 0.5},
            5: {"cities": 34_000, "names": 0, "tolerance": 0.25},
        },
        perception={
            1: {"span": 20, "mark": 2.6},
            2: {"span": 36, "mark": 2.3},
            3: {},
            4: {"span": 90, "lights": 3000, "mark": 1.8},
            5: {"span": 140, "lights": 2000, "degrees": False, "mark": 1.6},
        },
    )

    @field_validator("weights", "scales", mode="before")
    @classmethod
    def _as_tuple(cls, value: Any) -> Any:
        """A list, as JSON has it, as a tuple."""
        return tuple(value) if isinstance(value, list) else value

    def model_post_init(self, context: object) -> None:
        """Refuse weights and scales that make no reward."""
        for name, values in (("weights", self.weights), ("scales", self.scales)):
            if values is not None and not all(0 <= value <= 1e5 for value in values):
                raise ValueError(f"{name} are four numbers from 0 to 100000, not {list(values)}")
        if self.weights is not None and not any(self.weights):
            raise ValueError("one of the weights is more than 0")

    @property
    def scoring(self) -> tuple[Fields, Fields]:
        """Weights, and scales in km."""
        stage = CURRICULA[self.preset][self.stage - 1]
        weights = stage.weights if self.weights is None else Fields(*self.weights)
        scales = stage.scales if self.scales is None else Fields(*self.scales)
        return weights, Fields(*(scale * self.tolerance for scale in scales))


@dataclass(frozen=True, kw_only=True)
class GeospotState(TaskState):
    """Where the image was taken.

    Attributes:
        city: Name, empty if the data have none.
        region: Likewise.
        country: Likewise; a name or an ISO code.
        latitude: Degrees.
        longitude: Degrees.
        middle: Latitude and longitude of the middle of the map; None for a row of data.
    """

    city: str
    region: str
    country: str
    latitude: float
    longitude: float
    middle: tuple[float, float] | None = None


def state_of(city: City, middle: tuple[float, float]) -> GeospotState:
    """A city as the place of an image whose middle is at `middle`, latitude and longitude in degrees."""
    place = place_of(city)
    return GeospotState(
        city=city.name,
        region=place.region or "",
        country=place.country or "",
        latitude=city.latitude,
        longitude=city.longitude,
        middle=middle,
    )


class Geospot(Task[GeospotState, str]):
    """Where an image was taken: city, region, country, latitude and longitude.

    Action space: `PlaceSpace`, texts of five lines such as `city: Paris`, in any order, or of one line,
    `Paris, Ile-de-France, France, 48.86, 2.35`. Any value may be `unknown`. Illegal are a latitude beyond 90 and a
    longitude beyond 180 degrees.
    Observation: a photograph of the user's data; without data a map on which the lights of cities draw the world and a
    mark shows one of them.
    Reward: 0 to 1, a weighed mean of exp(-distance / scale) or of matches, for country, region, city and coordinates;
    `preset`, `stage`, `weights`, `scales` and `tolerance` say which. Names are looked up in a gazetteer without a
    network; one that it does not know earns nothing, and the info says so. 0 for an illegal or unparsable answer.
    Data: `image`, `latitude` and `longitude` are needed; `country`, `region` and `city` count where a row has them.
    Metrics: distance in km, GeoScore, and shares of matches and of answers within 25, 200 and 750 km.

    Version history: v0, first.
    """

    name = "geospot"
    version = 0
    Config = GeospotConfig
    State = GeospotState
    longest_answer = 500
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "image": ("image", "picture", "photo", "file_name", "path", "url"),
        "latitude": ("latitude", "lat"),
        "longitude": ("longitude", "lon", "lng"),
        "country": ("country", "country_code"),
        "region": ("region", "state", "province", "admin1"),
        "city": ("city", "town"),
    }
    optional_fields: ClassVar[frozenset[str]] = frozenset({"country", "region", "city"})
    image_fields: ClassVar[tuple[str, ...]] = ("image",)

    @cached_property
    def action_space(self) -> PlaceSpace:
        """Texts that name a place."""
        return PlaceSpace()

    @cached_property
    def _scoring(self) -> tuple[Fields, Fields]:
        weights, scales = self.config.scoring
        return weights, scales

    @cached_property
    def _style(self) -> MapStyle:
        c = self.config
        return MapStyle(c.size, c.lights, c.names, True, c.degrees, c.mark, c.crop)

    # Questions ------------------------------------------------------------------------------------------------------

    def generate(self, rng: np.random.Generator) -> GeospotState:
        """A city, each of the `cities` most populous as likely as any other, and a map around it."""
        city = gazetteer().city_at(int(rng.integers(min(self.config.cities, len(gazetteer())))))
        crop = self.config.crop
        off = min(OFF_THE_MIDDLE, (1 - crop) / 2 - self._style.mark_reach)
        right, up = (int(value) / 1000 * off for value in rng.integers(-1000, 1001, 2))
        window = window_around(city.latitude, city.longitude, self.config.span, right, up, crop)
        return state_of(city, (window.latitude, window.longitude))

    def from_row(self, fields: Row) -> GeospotState:
        """The place of a row.

        Raises:
            BadRow: A coordinate is missing or out of range, the gazetteer does not know the country, or nothing that
                the reward weighs is there.
        """
        latitude = number_of(fields, "latitude", -90, 90)
        longitude = number_of(fields, "longitude", -180, 180)
        city, region, country = ("" if is_empty(fields[name]) else text_of(fields, name) for name in NAMES)
        if country and gazetteer().country(country) is None:
            raise BadRow(f"country is {shown(country)}, which is neither a country's name nor an ISO code")
        weighed = {name for name, weight in self._scoring[0]._asdict().items() if weight}
        there = {name for name, value in zip(NAMES, (city, region, country)) if value} | {"coordinates"}
        if not weighed & there:
            raise BadRow(f"{' and '.join(sorted(weighed))} is all that the reward looks at, and the row has none")
        state = GeospotState(city=city, region=region, country=country, latitude=latitude, longitude=longitude)
        try:
            read_place(self.solution(state))
        except ParseError as error:
            raise BadRow(f"the place cannot be written as an answer: {error}") from None
        return state

    def check_state(self, state: GeospotState) -> None:
        """Refuse a place that is not on earth, and a map for a row of data."""
        super().check_state(state)
        if not (abs(state.latitude) <= 90 and abs(state.longitude) <= 180):
            raise StateError(f"invalid state of geospot: {state.latitude}, {state.longitude} is no place on earth")
        if (state.middle is None) == (state.row is None):
            raise StateError("invalid state of geospot: it has either the middle of a map or a row of data")
        if state.middle is not None and not (abs(state.middle[0]) <= 90 and abs(state.middle[1]) <= 180):
            raise StateError(f"invalid state of geospot: {state.middle} is no middle of a map")

    # Images and words ----------------------------------------------------------------------------------------------

    def paint(self, state: GeospotState) -> Sequence[ImageArray]:
        """The map with its mark."""
        window = _window(state, self.config.span)
        return [paint_map(window, (state.latitude, state.longitude), self._style, gazetteer())]

    def describe(self, state: GeospotState) -> str:
        """Latitude and longitude of the mark, to hundredths of a degree; of a photograph only that it is one."""
        return "a photograph" if state.row else f"latitude {state.latitude:.2f}, longitude {state.longitude:.2f}"

    def perceive(self, state: GeospotState, text: str) -> Perception | None:
        """Distance of two coordinates from the mark; None for a photograph.

        Exact is what is no farther than a hundredth of the map's height; the partial score is exp(-distance / a tenth).
        """
        if state.row is not None:
            return None
        found = _SEEN.fullmatch(text.strip()) if len(text) <= _LONGEST_SEEN else None
        latitude, longitude = map(decimal_of, found.groups()) if found is not None else (None, None)
        if latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
            return Perception(0.0, 0.0)
        distance = distance_km(latitude, longitude, round(state.latitude, 2), round(state.longitude, 2))
        height = self.config.span * KM_PER_DEGREE
        return Perception(math.exp(-10 * distance / height), float(distance <= height / 100))

    def prompt(self, state: GeospotState) -> str:
        """The question and the form of the answer."""
        if state.row is not None:
            image, perception = PHOTOGRAPH, _IN_PHOTOGRAPHS
        else:
            image, perception = MAP_V1.format(degrees=DEGREES if self.config.degrees else ""), _ON_THE_MAP
        form = response_format.INSTRUCTIONS_V1.format(perception=perception, answer=_ANSWER)
        return PROMPT_V1.format(image=image, form=form)

    # Answers --------------------------------------------------------------------------------------------------------

    def parse_answer(self, text: str) -> str:
        """An answer as the five lines in order."""
        return write_place(read_place(text))

    def normalise_answer(self, text: str) -> str:
        """Five plain lines or values, from JSON, Markdown and coordinates with a degree sign."""
        return normalise_place(text)

    def format(self, action: str) -> str:
        """The five lines."""
        return action

    def to_action(self, value: Any) -> str:
        """A text that names a place, as the five lines in order.

        Raises:
            UsageError: The value is no such text.
        """
        try:
            return self.parse_answer(value if isinstance(value, str) else "")
        except ParseError as error:
            raise UsageError(f"an action of geospot is a text of five lines, not {shown(value)}: {error}") from None

    def explain(self, state: GeospotState, action: str) -> str:
        """Which place the answer names."""
        place = read_place(action)
        names = [name for name in (place.city, place.region, place.country) if name is not None]
        return f"I take this place to be {', '.join(names) or 'where the coordinates say'}."

    def solution(self, state: GeospotState) -> str:
        """The place itself."""
        coordinates = (state.latitude, state.longitude)
        return write_place(Place(state.city or None, state.region or None, state.country or None, coordinates))

    def score(self, state: GeospotState, action: str) -> tuple[float, Mapping[str, Any]]:
        """The reward of an answer.

        Info: `km`, the distance of each field from the truth, None if there is none; `score`, its kernel, 0 to 1;
        `not found`, the fields whose name the gazetteer does not know.

        Raises:
            IllegalAction: A coordinate is out of range, or the action is no such text.
        """
        if not isinstance(action, str):
            raise IllegalAction(f"an action of geospot is a text, not {shown(action)}")
        try:
            place = read_place(action)
        except ParseError as error:
            raise IllegalAction(str(error)) from None
        if place.coordinates is not None:
            for axis, value, limit in zip(("latitude", "longitude"), place.coordinates, (90, 180)):
                if abs(value) > limit:
                    raise IllegalAction(f"the {axis} {value:g} is not between -{limit} and {limit} degrees")
        truth = Truth(state.city, state.region, state.country, state.latitude, state.longitude)
        near = nearness(truth, place, gazetteer())
        total, kernels = reward(near.distances, *self._scoring)
        return total, {
            "km": dict(near.distances),
            "score": kernels,
            "not found": list(near.not_found),
        }

    def metrics(self, state: GeospotState, infos: Sequence[Mapping[str, Any]]) -> Mapping[str, float | str]:
        """Distance, GeoScore, matches; an answer that was not played has no distance and matches nothing."""
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
        for limit in NEAR_KM:
            metrics[f"within {limit} km"] = float(distance is not None and distance <= limit)
        return metrics


def _window(state: GeospotState, span: int) -> Window:
    if state.middle is None:
        raise StateError("this position of geospot has no map")
    return Window(*state.middle, span)
