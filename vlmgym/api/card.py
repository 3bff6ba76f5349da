"""Dataset cards for the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vlmgym.api.dataset import Row
from vlmgym.api.episode import Episode
from vlmgym.records.episode import versions

BODY = """\
# {title}

{rows:,} states with seeds {first:,} to {last:,}, made by `vlmgym.make_dataset` of vlmgym {version}. The metadata of \
this card has the settings of the episodes.

| column | |
|---|---|
| `prompt` | chat messages; the images go before the text of the last one |
| `images` | images that the prompt refers to |
| `snapshot` | the episode, which `vlmgym.score`, `vlmgym.reward_fn` and `vlmgym.Episode.restore` take |
| `seed`, `game` | seed of the episode and id of the game |
| `answer` | what the oracle would write inside `<answer>` |

```python
import datasets
import vlmgym

row = datasets.load_dataset(...)["train"][0]
print(vlmgym.score(row["snapshot"], f"<answer>{{row['answer']}}</answer>").total)
```
"""
SOURCES = """
## Sources of images

"""


def dataset_card(rows: Sequence[Row]) -> str:
    """Write the dataset card of rows of `make_dataset`: a README.md with licence, games, episode settings and versions.

    The licence is vlmgym's own, or `other` with a list of sources if images show something that it did not generate.

    Raises:
        StateError: A row has no valid snapshot.
    """
    settings: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for row in rows:
        game, stored = Episode.restore(row["snapshot"]).game, json.loads(row["snapshot"])
        used = {name: stored[name] for name in ("game", "max_turns", "reward", "prompts")}
        settings.setdefault(json.dumps(used), used)
        if game.image_source is not None:
            sources[game.id] = game.image_source
    games = ", ".join(dict.fromkeys(used["game"]["id"] for used in settings.values()))
    seeds = [row["seed"] for row in rows]
    has_images = any(row["images"] for row in rows)
    title, now = f"vlmgym: {games}", versions()
    metadata = {
        "license": "other" if sources else "apache-2.0",
        "pretty_name": title,
        "task_categories": ["image-text-to-text" if has_images else "text-generation"],
        "tags": ["vlmgym", "games", "reinforcement-learning"],
        "vlmgym": {"versions": now, "seeds": [min(seeds), max(seeds)], "settings": [*settings.values()]},
    }
    head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in metadata.items())  # JSON is YAML
    body = BODY.format(title=title, rows=len(rows), first=min(seeds), last=max(seeds), version=now["vlmgym"])
    if sources:
        body += SOURCES + "".join(f"- {game}: {source}\n" for game, source in sources.items())
    return f"---\n{head}---\n\n{body}"
