"""Configuration of geospot, and the curricula of its reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from vlmgym.sandbox.core.config import LIST, config_field, setting
from vlmgym.sandbox.core.data_task import DataTaskConfig

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


NonNegative = Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)]
FourNumbers = Annotated[tuple[NonNegative, NonNegative, NonNegative, NonNegative] | None, LIST]


class GeospotConfig(DataTaskConfig):
    """Configuration of geospot.

    `span`, `lights`, `degrees`, `mark`, `cities` and `names` apply to generated maps only.
    """

    span: int = config_field("perception", [20, 36, 60, 90, 140], "Height of the map in degrees.", ge=5, le=160)
    lights: int = config_field(
        "perception",
        [4000, 4000, 4000, 3000, 2000],
        "Maximum number of cities drawn; the largest on the map are chosen.",
        ge=1,
        le=40_000,
    )
    degrees: bool = config_field(
        "perception", [True, True, True, True, False], "Label latitudes and longitudes on the map."
    )
    mark: float = config_field(
        "perception", [2.6, 2.3, 2.0, 1.8, 1.6], "Radius of the mark in percent of the map's side.", ge=0.5, le=10.0
    )
    cities: int = config_field(
        "reasoning", [100, 500, 2000, 8000, 34000], "Number of most populous cities to sample from.", ge=1, le=34_000
    )
    names: int = config_field(
        "reasoning",
        [6, 4, 2, 0, 0],
        "Maximum number of cities labelled on the map, the largest except the marked one.",
        ge=0,
    )
    tolerance: float = config_field(
        "reasoning",
        [4.0, 2.0, 1.0, 0.5, 0.25],
        "Factor that multiplies `scales`; lower values demand more precision.",
        ge=0.01,
        le=100.0,
    )
    preset: Preset = setting("vlm-gym", "Weights and scales of the reward; see docs/tasks/geospot.md.")
    stage: int = setting(5, "Stage of the preset's curriculum; 5 is the full task.", ge=1, le=5)
    weights: FourNumbers = setting(
        None, "Weights of country, region, city and coordinates; null uses those of the preset."
    )
    scales: FourNumbers = setting(
        None,
        "Scales of country, region, city and coordinates: the distance in km at which the score falls to 1/e, or 0 to "
        "score only matches; null uses those of the preset.",
    )

    def model_post_init(self, context: object) -> None:
        if self.weights is not None and not any(self.weights):
            raise ValueError("at least one of the weights must be positive")

    @property
    def scoring(self) -> tuple[Fields, Fields]:
        """Weights, and scales in km; the scales are already multiplied by `tolerance`."""
        stage = CURRICULA[self.preset][self.stage - 1]
        weights = stage.weights if self.weights is None else Fields(*self.weights)
        scales = stage.scales if self.scales is None else Fields(*self.scales)
        return weights, Fields(*(scale * self.tolerance for scale in scales))
