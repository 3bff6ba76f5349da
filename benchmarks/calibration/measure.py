"""All measurements of one game."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.image_reader import ReadingResults, read_levels
from benchmarks.calibration.play import Measures, play
from benchmarks.calibration.spec import CalibrationPlayer, Spec
from vlmgym.sandbox.core.config import LEVELS


@dataclass(frozen=True, slots=True)
class Samples:
    """Sample sizes.

    Attributes:
        episodes: Episodes per player and level; the oracle plays only the fraction `Spec.oracle_share`.
        images: Test images per level, and as many training images.
    """

    episodes: int
    images: int

    def episodes_of(self, spec: Spec, player: CalibrationPlayer) -> int:
        """Return the number of episodes of a player per level."""
        return max(2, round(self.episodes * (spec.oracle_share if player == "oracle" else 1)))


@dataclass(frozen=True, slots=True)
class Calibration:
    """All measurements of a game.

    Attributes:
        spec: Measured game.
        samples: Sample sizes.
        plays: Measures by reasoning level and player, at perception level 3.
        play_elsewhere: Estimate of `spec.criterion` by perception level, at reasoning level 3.
        readings: Results of the readers.
    """

    spec: Spec
    samples: Samples
    plays: Mapping[int, Mapping[CalibrationPlayer, Measures]]
    play_elsewhere: Mapping[int, Estimate]
    readings: ReadingResults

    @property
    def criterion(self) -> dict[int, Estimate]:
        """Estimate of `spec.criterion` by reasoning level, at perception level 3."""
        criterion = self.spec.criterion
        return {level: players[criterion.player][criterion.measure] for level, players in self.plays.items()}

    @property
    def first_reader(self) -> dict[int, Estimate]:
        """Accuracy of the level-1 reader by perception level."""
        return {level: reading.first for level, reading in self.readings.levels.items()}


def calibrate(spec: Spec, samples: Samples, progress: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure play and image reading at all levels of a game.

    Args:
        spec: Game to measure.
        samples: Sample sizes.
        progress: Called with the current step.
    """
    chosen = spec.criterion
    plays: dict[int, dict[CalibrationPlayer, Measures]] = {}
    for level in LEVELS:
        progress(f"reasoning {level}")
        game = spec.at(reasoning=level)
        plays[level] = {player: play(spec, game, player, samples.episodes_of(spec, player)) for player in spec.turns}
    play_elsewhere = {3: plays[3][chosen.player][chosen.measure]}
    for level in LEVELS:
        if level != 3:
            # Different seeds from level 3, so that equal results are not due to equal seeds.
            episodes = samples.episodes_of(spec, chosen.player)
            game = spec.at(perception=level)
            seed = level * samples.episodes
            measured = play(spec, game, chosen.player, episodes, seed)
            play_elsewhere[level] = measured[chosen.measure]
    readings = read_levels(spec, samples.images, progress)
    return Calibration(spec, samples, plays, dict(sorted(play_elsewhere.items())), readings)
