"""The space of answers that name a place."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from vlmgym.errors import ParseError
from vlmgym.sandbox.games.geospot.gazetteer import City, gazetteer
from vlmgym.sandbox.games.geospot.place import Place, read_place, write_place


class PlaceSpace(spaces.Space[str]):
    """Texts that `read_place` reads."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """No: the elements are texts."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A city of the gazetteer, each as likely as any other, as `write_place` writes it."""
        cities = gazetteer()
        return write_place(place_of(cities.city_at(int(self.np_random.integers(len(cities))))))

    def contains(self, x: Any) -> bool:
        """Whether something is a text that `read_place` reads."""
        try:
            return isinstance(x, str) and read_place(x) is not None
        except ParseError:
            return False

    def __eq__(self, other: object) -> bool:
        """All are equal."""
        return isinstance(other, PlaceSpace)

    def __repr__(self) -> str:
        return "PlaceSpace()"


def place_of(city: City) -> Place:
    """A city of the gazetteer as an answer names it."""
    cities = gazetteer()
    region = cities.region_of(city)
    return Place(
        city.name,
        None if region is None else region.name,
        cities.country_of(city).name,
        (city.latitude, city.longitude),
    )
