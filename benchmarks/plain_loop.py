"""Evaluate a model on 2048 with a hand-written loop over `vlmgym.Episode`, for `evaluation_peers.py`.

python -m benchmarks.plain_loop http://localhost:8000/v1 16 50 256 records.jsonl
"""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

import vlmgym


async def play(session: aiohttp.ClientSession, url: str, seed: int, max_turns: int, size: int) -> str:
    """Play an episode; return its record as a line of JSON."""
    episode, turns = vlmgym.Episode("2048", seed, max_turns=max_turns, size=size), []
    while not episode.done:
        body = {"model": "none", "messages": episode.messages()}
        async with session.post(f"{url}/chat/completions", json=body) as response:
            text = (await response.json())["choices"][0]["message"]["content"]
        turns.append({"prompt": episode.prompt, "response": text, "reward": episode.respond(text).total})
    return json.dumps({"seed": seed, "score": episode.score, "turns": turns}) + "\n"


async def main(url: str, episodes: int, max_turns: int, size: int, path: Path) -> None:
    """Play all episodes concurrently, and write their records."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        lines = await asyncio.gather(*(play(session, url, seed, max_turns, size) for seed in range(episodes)))
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    _, url, episodes, max_turns, size, path = sys.argv
    asyncio.run(main(url, int(episodes), int(max_turns), int(size), Path(path)))
