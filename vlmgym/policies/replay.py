"""The responses of a record, given again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply, recorded_reply
from vlmgym.records.episode import GameRecord
from vlmgym.records.run_folder import changes
from vlmgym.records.store import open_run
from vlmgym.sandbox.core.game import Game


@dataclass(frozen=True, kw_only=True)
class ReplayOptions(PolicyOptions):
    """Options of the policy replay."""

    record: Path | None = None
    """Folder of the run whose responses are given again, by game, seed and turn."""

    def to_dict(self) -> dict[str, Any]:
        """The folder as it was named."""
        return {"record": None if self.record is None else str(self.record)}


class ReplayPolicy(ModelPolicy):
    """Answers each turn as a recorded run did, with the tokens and the latency it had; it does not look.

    A turn that the record does not have ends the episode as an error, which is no score.
    """

    name = "replay"
    counts_tokens = True
    Options = ReplayOptions
    options: ReplayOptions
    look = None

    def __init__(self, options: PolicyOptions | None = None) -> None:
        """Find the episodes of the record.

        Raises:
            UsageError: No record is named, or it cannot be read.
        """
        super().__init__(options)
        if self.options.record is None:
            raise UsageError("replay needs a run to give again: --record FOLDER")
        run = open_run(self.options.record)
        self._games = run.asked.games
        self._episodes = {(episode.game, episode.seed): episode for episode in run.episodes}
        self._replies: dict[tuple[str, int], list[Reply]] = {}  # of episodes that are played, asked last at the end
        self._running = 1

    def check(self, game: Game[Any, Any]) -> None:
        """Refuse a game that the record is not of."""
        recorded = [known for known in self._games if known.id == game.id]
        if not recorded:
            names = ", ".join(dict.fromkeys(known.id for known in self._games))
            raise UsageError(f"{self.options.record} is a record of {names}, not of {game.id}")
        asked = GameRecord.of(game)
        found = [[*map(str, changes(known.config, asked.config))] for known in recorded]
        if all(found):
            different = "; ".join(found[0])
            raise UsageError(f"{self.options.record} is a record of another configuration of {game.id}: {different}")

    def set_running_episodes(self, episodes: int) -> None:
        """Keep the responses of as many episodes as are played at once, and as many again."""
        self._running = max(self._running, episodes)

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """The recorded response of the turn."""
        key = prompt.game.id, prompt.seed
        replies = self._replies.pop(key, None)
        if replies is None:
            stored = self._episodes.get(key)
            replies = [] if stored is None else [recorded_reply(turn) for turn in stored.read().turns]
        self._replies[key] = replies
        if len(self._replies) > 2 * self._running:
            del self._replies[next(iter(self._replies))]  # most likely over: the others were asked since
        if prompt.turn >= len(replies):
            raise InfrastructureError(
                f"{self.options.record} has no turn {prompt.turn + 1} of {prompt.game.id} with seed {prompt.seed}"
            )
        return replies[prompt.turn]
