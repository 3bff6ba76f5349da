"""Places, answers and states for tests of geospot."""

from vlmgym.sandbox.games.geospot.game import GeospotState
from vlmgym.sandbox.games.geospot.place import Place

LATITUDE, LONGITUDE = 48.8534, 2.3488
PARIS = Place("Paris", "Île-de-France", "France", (LATITUDE, LONGITUDE))


def answer(city="unknown", region="unknown", country="unknown", latitude="unknown", longitude="unknown"):
    return f"city: {city}\nregion: {region}\ncountry: {country}\nlatitude: {latitude}\nlongitude: {longitude}"


def state_at(place):
    latitude, longitude = place.coordinates
    return GeospotState(
        city=place.city,
        region=place.region,
        country=place.country,
        latitude=latitude,
        longitude=longitude,
        middle=place.coordinates,
    )
