"""All measurements of one game."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.calibration.estimate import Estimate
from benchmarks.calibration.image_reader import Sighting, read_dials
from benchmarks.calibration.play import Measures, play
from benchmarks.calibration.spec import Player, Spec
from vlmgym.sandbox.core.config import LEVELS


@dataclass(frozen=True, slots=True)
class Samples:
    """How much is measured.

    Attributes:
        episodes: Episodes of each player at each level; the oracle plays `Spec.costly` of them.
        images: Images that a reader learns from, and that it is tested on, at each level.
    """

    episodes: int
    images: int

    def episodes_of(self, spec: Spec, player: Player) -> int:
        """How many one player plays at each level."""
        return max(2, round(self.episodes * (spec.costly if player == "oracle" else 1)))


@dataclass(frozen=True, slots=True)
class Calibration:
    """All measurements of a game.

    Attributes:
        spec: Of what.
        samples: How much of it.
        plays: Measures by level of reasoning and player, at level 3 of perception.
        play_elsewhere: The criterion by level of perception, at level 3 of reasoning.
        sighting: What readers see.
    """

    spec: Spec
    samples: Samples
    plays: Mapping[int, Mapping[Player, Measures]]
    play_elsewhere: Mapping[int, Estimate]
    sighting: Sighting

    @property
    def criterion(self) -> dict[int, Estimate]:
        """The criterion of reasoning by its levels."""
        chosen = self.spec.criterion
        return {level: players[chosen.player][chosen.measure] for level, players in self.plays.items()}

    @property
    def first_reader(self) -> dict[int, Estimate]:
        """What the reader of level 1 reads, by level of perception."""
        return {level: reading.first for level, reading in self.sighting.levels.items()}


def calibrate(spec: Spec, samples: Samples, tell: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure everything.

    Args:
        spec: What is measured.
        samples: How much.
        tell: Is told what is under way.
    """
    chosen = spec.criterion
    plays: dict[int, dict[Player, Measures]] = {}
    for level in LEVELS:
        tell(f"reasoning {level}")
        game = spec.at(reasoning=level)
        plays[level] = {player: play(spec, game, player, samples.episodes_of(spec, player)) for player in spec.turns}
    play_elsewhere = {3: plays[3][chosen.player][chosen.measure]}
    for level in LEVELS:
        if level != 3:
            # Other episodes than those of level 3, so that being equal is not the work of equal seeds.
            episodes = samples.episodes_of(spec, chosen.player)
            game = spec.at(perception=level)
            seed = level * samples.episodes
            measured = play(spec, game, chosen.player, episodes, seed)
            play_elsewhere[level] = measured[chosen.measure]
    sighting = read_dials(spec, samples.images, tell)
    return Calibration(spec, samples, plays, dict(sorted(play_elsewhere.items())), sighting)
