"""Spellings of answers: unambiguous spellings are parsed, and nothing is guessed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, example, given
from hypothesis import strategies as st

from vlmgym import game_ids, make_game
from vlmgym.errors import ParseError
from vlmgym.sandbox.answers.base import unwrap
from vlmgym.sandbox.answers.cells import Cells
from vlmgym.sandbox.answers.choice import DIRECTIONS
from vlmgym.sandbox.core.board_game import BoardConfig
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.games.geospot.place import KEYS, format_place, parse_place

PROTOCOLS = (Path(__file__).resolve().parents[1] / "docs" / "protocols.md").read_text(encoding="utf-8")
NAMES = (
    *(
        "2048",
        "swap",
        "shisensho",
        "scenes-statements",
        "geospot",
        "scenes-questions",
        "caption",
        "tictactoe",
        "fourinarow",
        "minesweeper",
    ),
    *("pairs", "solitaire", "sudoku", "fallingblocks"),
)
GAMES = {name: make_game(name) for name in NAMES}


def action(game: Game[Any, Any], text: str) -> Any:
    """Parse an answer; None if it is rejected."""
    try:
        return game.answer.parse(text)
    except ParseError:
        return None


# The table in the docs ------------------------------------------------------------------------------------------------


def code(cell: str) -> str:
    """Return the content of a Markdown code span; ↵ stands for a line break."""
    fence = re.match("`+", cell)
    assert fence, cell
    inside = cell[len(fence[0]) : -len(fence[0])]
    if inside.startswith(" ") and inside.endswith(" "):
        inside = inside[1:-1]
    return inside.replace(" ↵ ", "\n").replace("\\|", "|")  # unescaped, a bar would end the table cell


def rows() -> list[tuple[str, ...]]:
    table = PROTOCOLS.partition("<!-- answers -->\n")[2].partition("<!-- /answers -->")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    return [(code(game), *rest) for games, *rest in cells for game in games.split(", ")]


@pytest.mark.parametrize(("name", "answer", "read"), rows())
def test_documented_spellings_are_read(name: str, answer: str, read: str) -> None:
    game = GAMES[name]
    assert action(game, code(answer)) == (None if read == "rejected" else game.answer.parse(code(read)))


def test_every_game_is_in_the_table() -> None:
    for name in GAMES:
        read = {read == "rejected" for game, _, read in rows() if game == name}
        assert read == ({False} if name == "caption" else {False, True}), name


MOVES = ["1 to 2", "stack 1 to stack 2", "move 1 -> 2", "(1, 2)", "From stack 1 onto stack 2.", "move from 1 to 2"]
PLACINGS = ["B (1, 2)", "piece b at (1,2)", "Place B at 1, 2", "b 1,2", "**B (1, 2)**."]
NUMBERS = ["(1, 3) = 4", "1 3 4", "row 1, column 3: 4", "write 4 in row 1, column 3", "**(1, 3) 4**"]
SPELLINGS: list[tuple[str, dict[str, int], dict[str, Any], list[str]]] = [
    ("parking", {"rows": 4, "columns": 4, "vehicles": 3},
     {"b UP": (1, 0), "A: left": (0, 3), "**move C right**": (2, 1), "move car B down": (1, 2)},
     ["D up", "A", "up", "A up up", "A up, B down", "not A up", "A or B up", "AA up", "1 up", "A r\u0131ght"]),
    ("packing", {"rows": 3, "columns": 3, "pieces": 3}, dict.fromkeys(PLACINGS, (1, 1, 2)),
     ["B", "(1, 2)", "Z (1, 2)", "B 90 (1, 2)", "B (1, 2) (0, 0)", "A B (1, 2)", "B (1)"]),
    ("packing", {"reasoning": 5},
     {"B (1, 2)": (1, 1, 2, 0), **dict.fromkeys(["B 90 (1, 2)", "B turned by 90 degrees at (1, 2)"], (1, 1, 2, 1))},
     ["B 45 (1, 2)"]),
    ("stacks", {"origin": 1}, dict.fromkeys(MOVES, (0, 1)), ["1", "12", "1 2", "1 to 2 to 3", "1 or 2", "-1 to 2"]),
    ("forms", {}, {
        **dict.fromkeys(["`Click(12,340)`", "[12, 340]", "left click at 12, 340."], "click (12, 340)"),
        "type Anna B.": "type Anna B", 'TYPE: "Anna"': "type Anna",
     }, ["click", "click (1, 2) (3, 4)", "type", "click on Send", "press (1, 2)", "click (1.5, 2)"]),
    ("sudoku", {"origin": 1}, dict.fromkeys(NUMBERS, (0, 2, 4)),
     ["(1, 3)", "4", "(1, 3) 4 (1, 4) 5", "not (1, 3) 4", "(1, 3) -4", "1 3 4 5", "(1, 34)", "1 34"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config", "read", "rejected"), SPELLINGS)
def test_other_kinds_of_answers(name: str, config: dict[str, int], read: dict[str, Any], rejected: list[str]) -> None:
    game: Any = make_game(name, **config)
    assert {text: action(game, text) for text in read} == read
    assert {text: action(game, text) for text in rejected} == dict.fromkeys(rejected)


# Markup ---------------------------------------------------------------------------------------------------------------

MARKUP = [
    "{}", " {}\n", "**{}**", "*{}*", "__{}__", "_{}_", "***{}***", "`{}`", "```\n{}\n```", "```text\n{}\n```",
    '"{}"', "'{}'", "\u201c{}\u201d", "\u2018{}\u2019", "\u00ab{}\u00bb", "${}$", "$${}$$", "\\({}\\)", "\\[{}\\]",
    "\\boxed{{{}}}", "\\text{{{}}}", "\\mathrm{{{}}}",
    "<|begin_of_box|>{}<|end_of_box|>", "\u200b{}\ufeff", "\u2060 {} \u00ad",
]  # fmt: skip
PLAIN = [
    *MARKUP, "{}.", "{}!", "Answer: {}", "answer:{}", "**Final answer:** {}", "Action: {}", "move: {}",
    '{{"answer": "{}"}}',
]  # fmt: skip


def nested(frames: list[str]) -> st.SearchStrategy[str]:
    """Draw up to three frames around a NUL. No mark is nested in itself, because that would be ambiguous."""
    chosen = st.lists(st.sampled_from(frames), max_size=3, unique=True)
    marks = ("*", "_", "`", "$", "'", '"', "{{{", ":")
    ends = (".", "!")
    apart = chosen.filter(lambda found: all(sum(mark in frame for frame in found) <= 1 for mark in marks))
    return apart.filter(lambda found: sum(frame.endswith(ends) for frame in found) <= 1).map(_put_together)


def _put_together(frames: list[str]) -> str:
    text = "\x00"
    for frame in frames:
        text = frame.format(text)
    return text


@given(nested(PLAIN), st.sampled_from(range(4)), st.booleans())
def test_directions_are_read_in_any_markup(frame: str, number: int, by_name: bool) -> None:
    assume(not ("!" in frame and not by_name))  # a number with ! would be a factorial
    word = DIRECTIONS[number] if by_name else str(number)
    assert action(GAMES["2048"], frame.replace("\x00", word)) == number


@given(nested(MARKUP), st.sampled_from(["3.5", "a cat.", "not a cat", "x!", "Answer: 3", "-1"]))
def test_free_text_loses_only_enclosing_markup(frame: str, words: str) -> None:
    assert unwrap(frame.replace("\x00", words)) == words


DOUBTS = [
    "not {}", "!{}", "\u00ac{}", "no {}", "{}?", "~~{}~~", "{} or {}", "{} {}", "{}, {}", "maybe {}", "{}...",
    "{} . .", "-{}", "{}x",
]  # fmt: skip


@given(st.sampled_from(DOUBTS), nested(PLAIN), st.sampled_from(["left", "up", "0", "3"]))
def test_doubtful_answers_are_unparsable(doubt: str, frame: str, word: str) -> None:
    assert action(GAMES["2048"], frame.replace("\x00", doubt.format(word, word))) is None


@pytest.mark.parametrize("game_id", game_ids())
def test_letters_that_only_look_alike_are_not_corrected(game_id: str) -> None:
    game, rng = make_game(game_id), np.random.default_rng(0)
    for _ in range(50):
        answer = game.answer.format(game.answer.sample(rng))
        for letter, other in (("i", "\u0131"), ("I", "\u0130"), ("s", "\u017f"), ("k", "\u212a")):
            if letter in answer and action(game, answer.replace(letter, other)) is not None:
                assert isinstance(game.answer.space, spaces.Text) or game.name == "geospot"  # any word is an answer


alphabet = st.sampled_from(
    [*DIRECTIONS, *"0123", "move ", "go", " ", "or", "(", ")", "[", "]", *"*`\"'$_.!:?-", "\\text{", "}"]
)


@given(st.lists(alphabet, max_size=8).map("".join))
@example("go 'left'")
def test_a_direction_is_read_only_from_a_bare_action(text: str) -> None:
    read = action(GAMES["2048"], text)
    if read is not None and read < 4:
        words = set(re.findall("up|right|down|left", text))
        numbers = {int(digits) for digits in re.findall("[0-9]+", text)}
        assert words <= {DIRECTIONS[read]}
        assert numbers <= {read}
        assert words or numbers
        assert not re.search("[-?]", text)


# Cells ----------------------------------------------------------------------------------------------------------------

CELLS = [
    "({}, {}) ({}, {})", "({},{}),({},{})", "[{}, {}] [{}, {}]", "[[{},{}],[{},{}]]", "[({},{}),({},{})]",
    "({},{}), and ({},{})", "{},{},{},{}", "({},{},{},{})", "[{}, {}, {}, {}]", "{},{} {},{}", "{},{}; {},{}",
    "{}, {} and {}, {}", "({},{})->({},{})", "({},{}) \u2192 ({},{})", "({},{}) to ({},{})", "({},{})-({},{})",
    "\uff08{}\uff0c{}\uff09\uff08{}\uff0c{}\uff09",
    "**({},{})** **({},{})**", "`({},{})` and `({},{})`", "(row {}, column {}) (row {}, col {})",
    "row {}, column {}; row {}, column {}",
    "(row={}, col={}) (row={}, col={})", "swap ({},{}) and ({},{})", "Swap {},{} with {},{}", "({},\n{})\n({},\n{})",
]  # fmt: skip
fours = st.tuples(*[st.integers(0, 99)] * 4)


@given(st.sampled_from(CELLS), fours, nested(["{}", "**{}**", "\\boxed{{{}}}", "{}.", "Answer: {}", "```\n{}\n```"]))
def test_every_spelling_of_cells_gives_the_same_action(form: str, cells: tuple[int, ...], frame: str) -> None:
    assume(not any(mark in form and mark in frame for mark in "*`"))  # a mark nested in itself is ambiguous
    text = frame.replace("\x00", form.format(*cells))
    assert GAMES["swap"].answer.parse(text) == cells


soup = st.sampled_from(
    ["(", ")", "[", "]", ",", ";", " ", "and", "->", "-", "row ", "column ", "*", ".", "\uff0c", *"0123"]
)


@given(st.lists(soup, max_size=14).map("".join), st.integers(1, 3))
@example("1,23,4", 2)
@example("(1,2)-(3,4)", 2)
def test_cells_are_all_numbers_of_the_text_in_order(text: str, count: int) -> None:
    try:
        cells = Cells(count).of(BoardConfig(rows=9, columns=9)).parse(text)
    except ParseError:
        return
    assert [abs(cell) for cell in cells] == list(map(int, re.findall("[0-9]+", text)))
    assert not re.search(r"[0-9]\.[0-9]|[0-9]\s+[0-9]+\s*\)", text)
    if "-" not in text:
        assert min(cells) >= 0


def test_cells_are_counted_from_the_origin() -> None:
    cells = Cells(2).of(BoardConfig(origin=1))
    with pytest.raises(ParseError, match=r"two coordinates like \(1, 1\) \(1, 2\)"):
        cells.parse("?")
    assert cells.parse("(0, 1) (1, 1)") == (-1, 0, 0, 0)


NO_CELLS = [
    "-{}, {}, {}, {}", "({}.5, {}) ({}, {})", "({}, {}) ({}, {}) (1, 1)", "not ({}, {}) ({}, {})",
    "({}, {}) or ({}, {})", "{} {} {} {}", "({}, {}), {}, {}", "({} {}) ({} {})",
]  # fmt: skip


@given(fours, st.sampled_from(NO_CELLS))
def test_other_than_two_cells_is_unparsable(cells: tuple[int, ...], form: str) -> None:
    assert action(GAMES["swap"], form.format(*cells)) is None


# Places ---------------------------------------------------------------------------------------------------------------

names = st.sampled_from(["Paris", "\u00cele-de-France", "Washington D.C.", "\u6771\u4eac", "O'Higgins", "unknown"])
degrees = st.integers(-90_000, 90_000).map(lambda thousandths: thousandths / 1000)
LINES = [
    "{}: {}", "**{}:** {}", "**{}**: {}", "- {}: {}", "* **{}:** **{}**", "1. {}: {}", '"{}": "{}",', "{} : `{}`",
    "{}\uff1a{}",
]  # fmt: skip


def hemisphere(number: float, positive: str, negative: str) -> str:
    return f"{abs(number)}\u00b0 {negative if number < 0 else positive}"


@given(
    st.tuples(names, names, names), degrees, degrees, st.sampled_from(LINES), st.booleans(), st.permutations(range(5))
)
def test_every_spelling_of_a_place_gives_the_same_action(
    said: tuple[str, str, str], latitude: float, longitude: float, line: str, sided: bool, order: list[int]
) -> None:
    meant = format_place(parse_place(", ".join([*said, str(latitude), str(longitude)])))
    coordinates = (
        (hemisphere(latitude, "N", "S"), hemisphere(longitude, "E", "W"))
        if sided
        else (f"{latitude}\u00b0", f"{longitude}\u00ba")
    )
    values = [*said, *coordinates]
    lines = [line.format(KEYS[index].title(), values[index]) for index in order]
    assert action(GAMES["geospot"], "\n".join(lines)) == meant
    fields = {("lat", "lon")[index - 3] if index > 2 else KEYS[index]: values[index] for index in order}
    for text in (json.dumps(fields), f"```json\n{json.dumps(fields, indent=1, ensure_ascii=False)}\n```"):
        assert action(GAMES["geospot"], text) == meant
    assert action(GAMES["geospot"], ", ".join(values)) == meant
    assert format_place(parse_place(meant)) == meant


no_value = st.sampled_from([True, False, float("nan"), [], ["1"], {}, {"a": "1"}])


@given(no_value, st.sampled_from(KEYS))
def test_nested_json_is_not_a_place(value: object, key: str) -> None:
    fields = {"city": "Paris", "region": "x", "country": "y", "latitude": "1", "longitude": 2}
    assert action(GAMES["geospot"], json.dumps(fields)) is not None
    assert action(GAMES["geospot"], json.dumps({**fields, key: value})) is None
