"""All measurements of one subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vlmgym.calibration.estimate import Estimate
from vlmgym.calibration.play import Measures, play
from vlmgym.calibration.sight import Sighting, read_dials
from vlmgym.calibration.subject import Player, Subject
from vlmgym.sandbox.config import LEVELS


@dataclass(frozen=True, slots=True)
class Samples:
    """How much is measured.

    Attributes:
        episodes: Episodes of each player at each level; the oracle plays `Subject.costly` of them.
        pictures: Pictures that a reader learns from, and that it is tested on, at each level.
    """

    episodes: int
    pictures: int

    def episodes_of(self, subject: Subject, player: Player) -> int:
        """How many one player plays at each level."""
        return max(2, round(self.episodes * (subject.costly if player == "oracle" else 1)))


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of a subject.

    Attributes:
        subject: Of what.
        samples: How much of it.
        plays: Measures by level of reasoning and player, at level 3 of perception.
        play_elsewhere: The criterion by level of perception, at level 3 of reasoning.
        sighting: What readers see.
    """

    subject: Subject
    samples: Samples
    plays: Mapping[int, Mapping[Player, Measures]]
    play_elsewhere: Mapping[int, Estimate]
    sighting: Sighting

    @property
    def criterion(self) -> dict[int, Estimate]:
        """The criterion of reasoning by its levels."""
        chosen = self.subject.criterion
        return {level: players[chosen.player][chosen.measure] for level, players in self.plays.items()}

    @property
    def first_reader(self) -> dict[int, Estimate]:
        """What the reader of level 1 reads, by level of perception."""
        return {level: reading.first for level, reading in self.sighting.levels.items()}


def calibrate(subject: Subject, samples: Samples, tell: Callable[[str], None] = lambda _: None) -> Calibration:
    """Measure everything.

    Args:
        subject: What is measured.
        samples: How much.
        tell: Is told what is under way.
    """
    chosen = subject.criterion
    plays: dict[int, dict[Player, Measures]] = {}
    for level in LEVELS:
        tell(f"reasoning {level}")
        game = subject.at(reasoning=level)
        plays[level] = {
            player: play(subject, game, player, samples.episodes_of(subject, player)) for player in subject.turns
        }
    play_elsewhere = {3: plays[3][chosen.player][chosen.measure]}
    for level in LEVELS:
        if level != 3:
            # Other episodes than those of level 3, so that being equal is not the work of equal seeds.
            episodes = samples.episodes_of(subject, chosen.player)
            game = subject.at(perception=level)
            seed = level * samples.episodes
            measured = play(subject, game, chosen.player, episodes, seed)
            play_elsewhere[level] = measured[chosen.measure]
    sighting = read_dials(subject, samples.pictures, tell)
    return Calibration(subject, samples, plays, dict(sorted(play_elsewhere.items())), sighting)
