"""Distances on the globe."""

from __future__ import annotations

import math

EARTH_RADIUS_KM = 6371.0088
"""Mean radius of the ellipsoid of WGS 84 (Moritz, Geodetic Reference System 1980)."""


def distance_km(latitude: float, longitude: float, other_latitude: float, other_longitude: float) -> float:
    """Length of the shortest way between two places given in degrees, by the haversine formula on a sphere.

    It differs from the geodesic of the WGS 84 ellipsoid by at most 0.6 %.
    """
    phi, other_phi = math.radians(latitude), math.radians(other_latitude)
    across = math.sin(math.radians(other_longitude - longitude) / 2)
    along = math.sin((other_phi - phi) / 2)
    chord = along * along + math.cos(phi) * math.cos(other_phi) * across * across
    return 2 * EARTH_RADIUS_KM * math.asin(math.sqrt(min(1.0, chord)))
