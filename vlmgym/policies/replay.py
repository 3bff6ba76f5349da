"""The `replay` policy: the responses of a recorded run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply, recorded_reply
from vlmgym.runs.record import GameRecord, changes
from vlmgym.runs.store import open_run
from vlmgym.sandbox.core.game import Game


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(PolicyOptions):
    """Options of the `replay` policy."""

    record: Path | None = None
    """Folder of the run to replay. Responses are matched by game, seed and turn."""

    def to_dict(self) -> dict[str, Any]:
        """Return the folder as given."""
        return {"record": None if self.record is None else str(self.record)}


class ReplayPolicy(ModelPolicy):
    """Returns the recorded responses, with their token counts and latencies. Uses no images.

    A turn that was not recorded ends the episode as an error, without a score.
    """

    name = "replay"
    counts_tokens = True
    Options = ReplayOptions
    options: ReplayOptions
    transform = None

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Index the episodes of the record."""
        super().__init__(options)
        if self.options.record is None:
            raise UsageError("the replay policy needs --record, the folder of a run")
        run = open_run(self.options.record)
        self._games = run.config.games
        self._episodes = {episode.key: episode for episode in run.episodes}
        self._replies: dict[tuple[str, int], list[Reply]] = {}
        """Replies of the running episodes."""

    def check(self, game: Game[Any, Any]) -> None:
        """Check that the record has this game and config."""
        recorded = [record for record in self._games if record.id == game.id]
        if not recorded:
            names = ", ".join(dict.fromkeys(record.id for record in self._games))
            raise UsageError(f"{self.options.record} has episodes of {names}, not of {game.id}")
        config = GameRecord.of(game).config
        differences = [[*map(str, changes(record.config, config))] for record in recorded]
        if all(differences):
            different = "; ".join(differences[0])
            raise UsageError(f"{self.options.record} has episodes of {game.id} with another config: {different}")

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Return the recorded response of the turn."""
        key = prompt.game.id, prompt.seed
        if key not in self._replies:
            episode = self._episodes.get(key)
            self._replies[key] = [] if episode is None else [recorded_reply(turn) for turn in episode.read().turns]
        replies = self._replies[key]
        if prompt.turn >= len(replies) - 1:
            del self._replies[key]
        if prompt.turn >= len(replies):
            raise InfrastructureError(
                f"{self.options.record} has no turn {prompt.turn + 1} of {prompt.game.id} with seed {prompt.seed}"
            )
        return replies[prompt.turn]
