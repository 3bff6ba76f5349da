"""Captions: matching of keywords, rewards, photographs, and data."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.chance import best_constant_caption
from tests.colours import write_rows
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.reward import score_response
from vlmgym.sandbox.games.caption.game import PHOTOGRAPHS, Caption, CaptionConfig, CaptionState, load_photograph
from vlmgym.sandbox.games.caption.keywords import keywords_from_captions, named_keywords, tokenise


def at(reasoning: int = 3, **overrides: Any) -> Caption:
    config = CaptionConfig.at(reasoning=reasoning, **overrides)
    assert isinstance(config, CaptionConfig)
    return Caption(config)


def states(game: Caption) -> list[CaptionState]:
    return [game.start_at(seed, np.random.default_rng(seed)) for seed in range(len(PHOTOGRAPHS))]


# Words ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("cat", "cats"), ("box", "boxes"), ("horse", "horses"), ("lady", "ladies"), ("cookie", "cookies"),
        ("pie", "pies"), ("shoe", "shoes"), ("potato", "potatoes"), ("glass", "glasses"), ("bus", "buses"),
        ("lens", "lenses"), ("dish", "dishes"), ("leaf", "leaves"), ("man", "men"), ("child", "children"),
        ("iris", "irises"), ("cactus", "cactuses"), ("axe", "axes"), ("galaxy", "galaxies"), ("toe", "toes"),
    ],
)  # fmt: skip
def test_plurals_are_ignored(one: str, several: str) -> None:
    assert tokenise(one) == tokenise(several)


def test_case_accents_hyphens_and_possessives_are_ignored() -> None:
    assert tokenise("The CAFÉ\N{RIGHT SINGLE QUOTATION MARK}s red-brown cat's_box, don't!") == [
        "the", "cafe", "red", "brown", "cat", "box", "dont",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Two kittens sleep.", (True, False)),
        ("a caterpillar, concatenated", (False, False)),
        ("a traffic light and a cat", (True, True)),
        ("traffic, light", (False, True)),  # punctuation is ignored
        ("light traffic", (False, False)),
        ("catcat", (False, False)),
        ("stop\N{EM DASH}lights", (False, True)),
        ("", (False, False)),
    ],
)
def test_whole_words_and_phrases_are_found(caption: str, expected: tuple[bool, bool]) -> None:
    assert named_keywords(caption, (("cat", "kitten"), ("traffic light", "stop lights")), 10) == expected


# Keywords of reference captions ---------------------------------------------------------------------------------------


def test_words_in_half_of_the_captions_are_keywords() -> None:
    captions = [
        "A man rides brown horses on a beach.",
        "The man and a horse, at the beach",
        "Man on horse by the sea",
        "A rider",
    ]
    assert keywords_from_captions(captions) == (("man",), ("horses",), ("beach",))


# Rewards --------------------------------------------------------------------------------------------------------------


KEYWORDS = (("cat", "kitten"), ("table",), ("cup", "mug"), ("window",), ("sofa",))


@pytest.mark.parametrize(
    ("caption", "reward", "coverage", "precision"),
    [
        ("A kitten and its mugs.", 0.5, 0.5, 1.0),
        ("A kitten on a table with a mug, by the window, on a sofa", 1.0, 1.0, 1.0),
        ("the cat, a kitten, kittens", 0.25, 0.25, 1.0),  # one keyword and no other word
        ("the cat on the sofa", 0.25, 0.25, 1.0),  # names a keyword that is not required
        ("a cat, a cup and a dog", 0.5 * (2 / 3) / 0.75, 0.5, 2 / 3),
        ("a cat, a cup, a dog, dogs and a DOG", 0.5 * (2 / 3) / 0.75, 0.5, 2 / 3),  # other words count once each
        ("cat cup sofa, dog", 0.5, 0.5, 0.75),
        ("a dog", 0.0, 0.0, 0.0),
        ("here and there", 0.0, 0.0, 0.0),
    ],
)
def test_reward_of_a_caption(caption: str, reward: float, coverage: float, precision: float) -> None:
    state = CaptionState(keywords=KEYWORDS, photograph="coffee")
    earned, info = at().score(state, caption)
    assert (earned, info["coverage"], info["precision"]) == pytest.approx((reward, coverage, precision))
    assert at(precision=0).score(state, caption)[0] == coverage
    perceived = at().perceive(state, caption)
    assert (perceived.partial, perceived.exact) == pytest.approx((reward, float(reward == 1)))


@pytest.mark.parametrize("level", [1, 2, 3, 4, 5])
def test_the_oracle_names_everything(level: int) -> None:
    game = at(level)
    for state in states(game):
        scored = score_response(game, state, game.respond(state, game.solution(state)), np.random.default_rng(0))
        assert (scored.game, scored.perception, scored.info["missed"]) == (1.0, (1.0, 1.0), [])
        assert len(scored.info["named"]) == game.config.keywords
        assert game.from_json(game.to_json(state)) == state


def test_a_constant_list_of_words_earns_little() -> None:
    assert 0.1 < best_constant_caption(at(), starts=1)[0] < 0.2
    assert best_constant_caption(at(precision=0), starts=1)[0] > 0.35  # the word limit alone is not enough


# Photographs ----------------------------------------------------------------------------------------------------------


def test_consecutive_seeds_show_every_photograph_once() -> None:
    assert sorted(str(state.photograph) for state in states(at())) == sorted(PHOTOGRAPHS)
    with pytest.raises(UsageError, match="order requires data="):
        at(order="rows")


def test_photographs_match_scikit_image() -> None:
    import skimage

    for name, found in PHOTOGRAPHS.items():
        content = (Path(skimage.__file__).parent / "data" / found.file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == found.sha256
        assert load_photograph(name, 96).shape == (96, 96, 3)
        assert len(found.keywords) >= 6
        forms = [tuple(tokenise(word)) for keyword in found.keywords[:6] for word in keyword]
        assert len(set(forms)) == len(forms), f"{name}: {Counter(forms).most_common(1)}"


# Data -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"keywords": ["cat", "a table|desk"]}, (("cat",), ("a table", "desk"))),
        ({"keywords": [["cat", "kitten"], ["table"]]}, (("cat", "kitten"), ("table",))),
        ({"keywords": "cat|kitten, table; cup"}, (("cat", "kitten"), ("table",), ("cup",))),
        ({"tags": "cat"}, (("cat",),)),
        ({"captions": ["a cat on a table", "The cats at the table"]}, (("cat",), ("table",))),
        ({"captions": [{"raw": "a cat"}, {"raw": "two cats"}]}, (("cat",),)),
        ({"caption": "a black cat"}, (("black",), ("cat",))),
        ({"keywords": "dog", "captions": ["a cat"]}, (("dog",),)),
        ({"keywords": ["cat", None, "", [], ["dog", None]]}, (("cat",), ("dog",))),
        ({"keywords": ["1", "2", "3", "4", "5"]}, (("1",), ("2",), ("3",), ("4",), ("5",))),  # four are required
    ],
)
def test_keywords_of_a_row(tmp_path: Path, row: dict[str, Any], expected: tuple[tuple[str, ...], ...]) -> None:
    game = at(data=write_rows(tmp_path, row), bad_rows="fail")
    state = game.start_at(0, np.random.default_rng(0))
    assert state.keywords == expected
    assert game.score(state, game.solution(state))[0] == 1.0
    assert game.from_json(game.to_json(state)) == state


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"keywords": []}, "neither keywords nor captions"),
        ({"keywords": "x" * 1200}, "no response can be correct: the answer has 1200 characters"),
        ({"keywords": ["cat", "!?"]}, r"keyword without letters and digits: \('!\?',\)"),
        ({"keywords": ["a b c d e f g h i j k", "l m n o p q r s t u v"]}, "have 22 words, more than words=20"),
        ({"captions": ["a cat", "the dog"]}, "no words in common"),
    ],
)
def test_bad_rows_say_why(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    data = write_rows(tmp_path, row, {"keywords": "dog", "captions": ["dog"]})
    with pytest.raises(UsageError, match=rf"row 0 of .* is bad: .*{reason}"):
        at(data=data, order="rows", bad_rows="fail").start_at(0, np.random.default_rng(0))
    state = at(data=data, order="rows").start_at(0, np.random.default_rng(0))
    assert state.keywords == (("dog",),)
    assert [skipped.index for skipped in state.skipped] == [0]
