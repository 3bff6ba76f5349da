"""Measure what prompts with the images of all past turns cost: CPU time per turn, with and without them.

    .venv/bin/python -m benchmarks.history

The policy moves at random and takes the images as an API client does, as data URLs. CPU time is that of all processes.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np

import vlmgym
from benchmarks.markdown import table
from vlmgym.evaluation import evaluate
from vlmgym.policies.base import ModelPolicy, PolicyOptions, Prompt, Reply
from vlmgym.policies.openai.policy import image_url

SIZE, EPISODES, TURNS = 640, 8, 60
GAMES = ("2048", "pairs")
HISTORIES: dict[str, dict[str, Any]] = {
    "without past images": {"history": 0, "history_images": 0},
    "with all past images": {"chat": True, "history_images": TURNS},
}


class RandomMoves(ModelPolicy):
    """Plays legal moves at random."""

    name = "random moves"
    transform = staticmethod(image_url)

    async def respond(self, images: list[Any], prompt: Prompt) -> Reply:
        """Respond to a turn."""
        assert prompt.snapshot is not None
        game, state = prompt.game, prompt.game.from_json(prompt.snapshot.state)
        actions = game.legal_actions(state) or ()
        action = actions[int(np.random.default_rng([prompt.seed, prompt.turn]).integers(len(actions)))]
        return Reply(f"<answer>{game.answer.format(action)}</answer>")


def cpu_per_turn(name: str, workers: int, settings: dict[str, Any]) -> float:
    """Return the CPU time per turn in seconds, of this process and its workers."""

    def play(max_turns: int) -> tuple[float, int]:
        start = cpu_seconds()
        records = evaluate(game, policy, EPISODES, max_turns=max_turns, workers=workers, **settings)
        return cpu_seconds() - start, sum(len(record.turns) for record in records)

    game, policy = vlmgym.make_game(name, size=SIZE), RandomMoves(PolicyOptions())
    play(1)  # to warm up
    (short_time, short_turns), (long_time, long_turns) = play(1), play(TURNS)
    return (long_time - short_time) / (long_turns - short_turns)


def cpu_seconds() -> float:
    """Return the CPU time of this process and its finished workers in seconds."""
    usages = (resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Print CPU time per turn and ratios."""
    rows = []
    for game in GAMES:
        for workers in (0, 1):
            plain, history = (min(cpu_per_turn(game, workers, HISTORIES[name]) for _ in range(5)) for name in HISTORIES)
            times = (f"{plain * 1e3:.1f} ms", f"{history * 1e3:.1f} ms", f"{history / plain:.2f}")
            rows.append([game, str(workers), *times])
    print(table(["game", "workers", *HISTORIES, "ratio"], rows))


if __name__ == "__main__":
    main()
