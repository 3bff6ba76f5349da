"""Dataset cards for the Hugging Face Hub."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, get_args

from vlmgym.api.dataset import Row, Split, States, start, state_config
from vlmgym.api.episode import Episode
from vlmgym.errors import UsageError
from vlmgym.rollout.states import StateConfig
from vlmgym.runs.record import versions

BODY = """\
# {title}

States of games ({rows}), made by `vlmgym.make_dataset` of vlmgym {version}, with the arguments in the metadata of \
this card.

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


def dataset_card(rows: Mapping[str, Sequence[Row]], seed: int = 0, states: States = None) -> str:
    """Return the text of a dataset card (README.md): licence, games, versions, and the arguments of `make_dataset`.

    The licence is vlmgym's, or `other`, with a list of image sources, if vlmgym did not generate all images.

    Args:
        rows: Rows of each split, in the order of `make_dataset`.
        seed: Argument of `make_dataset`, the same for all splits.
        states: Argument of `make_dataset`, the same for all splits.

    Raises:
        UsageError: `rows` is not a mapping from splits to rows, or a split is empty or starts with a row made with
            other arguments.
    """
    if not isinstance(rows, Mapping) or not rows or not {*rows} <= {*get_args(Split)}:
        raise UsageError("rows must be a mapping from train, validation or both to rows of make_dataset")
    distribution = state_config(states)
    settings: dict[str, dict[str, Any]] = {}
    sources: dict[str, str] = {}
    for split, own in rows.items():
        _check(split, own, seed, distribution)
        for row in own:
            game, stored = Episode.restore(row["snapshot"]).game, json.loads(row["snapshot"])
            used = {name: stored[name] for name in ("game", "max_turns", "reward", "prompts")}
            settings.setdefault(json.dumps(used), used)
            if game.image_source is not None:
                sources[game.id] = game.image_source
    games = ", ".join(dict.fromkeys(used["game"]["id"] for used in settings.values()))
    has_images = any(row["images"] for own in rows.values() for row in own)
    title, now = f"vlmgym: {games}", versions()
    counts = {split: len(own) for split, own in rows.items()}
    made = {
        "seed": seed,
        "splits": counts,
        "states": distribution and asdict(distribution),
        "settings": [*settings.values()],
    }
    metadata = {
        "license": "other" if sources else "apache-2.0",
        "pretty_name": title,
        "task_categories": ["image-text-to-text" if has_images else "text-generation"],
        "tags": ["vlmgym", "games", "reinforcement-learning"],
        "vlmgym": {"versions": now, **made},
    }
    head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in metadata.items())  # JSON is YAML
    listed = ", ".join(f"{split}: {count:,}" for split, count in counts.items())
    body = BODY.format(title=title, rows=listed, version=now["vlmgym"])
    if sources:
        body += SOURCES + "".join(f"- {game}: {source}\n" for game, source in sources.items())
    return f"---\n{head}---\n\n{body}"


def _check(split: Any, rows: Sequence[Row], seed: int, states: StateConfig | None) -> None:
    """Check that `make_dataset` returns the same first row for these arguments."""
    if not rows:
        raise UsageError(f"split {split} has no rows")
    first = rows[0]["snapshot"]
    live = start(Episode.restore(first)._live.config, seed, 0, split, states)
    if Episode.of(live).snapshot() != first:
        raise UsageError(
            f"the first row of split {split} does not match make_dataset with seed={seed} and states={states}: "
            "pass the seed and states that made the rows, and all rows in order"
        )
