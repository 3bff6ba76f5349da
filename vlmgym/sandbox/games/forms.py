"""Forms: fill in a form on a screen by clicking and typing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from vlmgym.sandbox.answers.base import plain, unreadable
from vlmgym.sandbox.answers.cells import SCALE, format_cells
from vlmgym.sandbox.answers.line import Line, LineSpace
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import Game, ImageArray, Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.canvas import BLACK, LOOKS, WHITE, Canvas, Colour, LookName, Point, blend
from vlmgym.sandbox.drawing.degrade import degrade

Kind = Literal["text", "check", "radio", "list"]
FIELDS: Mapping[str, tuple[Kind, tuple[str, ...]]] = {
    "Name": ("text", ("Anna", "Ben", "Clara", "David", "Emma")),
    "City": ("text", ("Lima", "Oslo", "Paris", "Rome", "Tokyo")),
    "Code": ("text", ("A17", "B42", "C08", "D55", "E93")),
    "Newsletter": ("check", ("off", "on")),
    "Gift wrap": ("check", ("off", "on")),
    "Insurance": ("check", ("off", "on")),
    "Size": ("radio", ("small", "medium", "large")),
    "Seat": ("radio", ("aisle", "middle", "window")),
    "Payment": ("radio", ("card", "cash", "invoice")),
    "Country": ("list", ("France", "Japan", "Kenya", "Peru", "Spain")),
    "Month": ("list", ("March", "April", "June", "July", "October")),
    "Colour": ("list", ("black", "blue", "green", "red", "white")),
}
"""Kind of each field, and its values."""
EMPTY = "-"
"""Value of an empty field."""


@dataclass(frozen=True, slots=True)
class FormsState:
    """A form while it is filled in.

    `values`, `before` and `wanted` have a value for each of `labels`. `focus` is the field with an open list or a text
    cursor, if any. `status` is `dialog` while the dialog is open, and `sent` or `cancelled` at the end.
    """

    labels: tuple[str, ...]
    values: tuple[str, ...]
    before: tuple[str, ...]
    wanted: tuple[str, ...]
    look: LookName
    accent: int
    swapped: bool
    focus: int | None = None
    status: Literal["form", "dialog", "sent", "cancelled"] = "form"
    variation_seed: int = 0


WORDS: Mapping[Kind, str] = {
    "text": "enter {value} as {label}",
    "check": "switch {label} {value}",
    "radio": "choose {value} as {label}",
    "list": "select {value} as {label}",
}
LOOK_NAMES: tuple[LookName, ...] = ("plain", "slate", "paper")

PROMPT_V1 = """\
The image shows a form on a screen. {task}. Then send the form{confirm}. Leave all other fields as they are. Each \
turn, click once, or type into the text field that was clicked last, which replaces its text. A click outside an open \
list closes it.
Actions: {actions}.
{form}"""


class FormsConfig(TextConfig):
    """Configuration of forms."""

    fields: int = config_field("reasoning", [3, 4, 5, 6, 7], "Number of fields.", ge=1, le=7)
    tasks: int = config_field("reasoning", [1, 2, 3, 4, 6], "Number of fields to change.", ge=1, le=7)
    confirm: bool = config_field(
        "reasoning", [False, False, True, True, True], "Sending must be confirmed in a dialog."
    )

    def model_post_init(self, context: object) -> None:
        if self.tasks > self.fields:
            raise ValueError(f"tasks must be at most fields={self.fields}, got {self.tasks}")


class ActionSpace(LineSpace):
    """Lines that are a click or typed text."""

    def fault(self, x: Any) -> str | None:
        fault = super().fault(x)
        return fault or (None if _ACTION.fullmatch(x) else "is neither click (x, y) nor type TEXT")


class ClickOrType(Line):
    """`click (x, y)`, or `type` with a text. Coordinates are from 0 to `SCALE`."""

    names_points = True

    @cached_property
    def space(self) -> ActionSpace:
        """Space of clicks and typed texts; samples are from `guesses`."""
        return ActionSpace(self.longest, *self.guesses(self.config))

    @property
    def sentence(self) -> str:
        """Both kinds of action."""
        return (
            f"click (x, y), with x from 0 at the left edge of the image to {SCALE} at the right and y from 0 at the "
            f"top to {SCALE} at the bottom; or type and the text, for example type Anna"
        )

    def parse(self, text: str) -> str:
        answer = plain(text)
        if (point := _CLICK.fullmatch(answer)) is not None:
            return f"click {format_cells((int(point[1]), int(point[2])))}"
        if (typed := _TYPE.fullmatch(answer)) is not None:
            return super().parse(f"type {plain(typed[1])}")
        raise unreadable(text, "click (x, y) or type TEXT")

    def pointed(self, x: float, y: float) -> str:
        return f"click {format_cells((round(x * SCALE), round(y * SCALE)))}"


_CLICK = re.compile(
    r"(?:(?:left )?click(?: on| at)?)?\s*[(\[]?\s*(\d{1,4})\s*,\s*(\d{1,4})\s*[)\]]?", re.IGNORECASE | re.ASCII
)
_TYPE = re.compile(r"type:?\s+(\S.*)", re.IGNORECASE | re.ASCII)
_ACTION = re.compile(r"click \((\d{1,4}), (\d{1,4})\)|type (.+)")


def _guesses(config: FormsConfig) -> tuple[tuple[str, ...], int]:
    """Clicks on a grid of points, and typed values."""
    points = range(25, SCALE, 50)
    clicks = [f"click ({x}, {y})" for x in points for y in points]
    return (*clicks, *(f"type {value}" for kind, values in FIELDS.values() if kind == "text" for value in values)), 1


class Forms(Game[FormsState, str]):
    """Fill in a form on a screen by clicking and typing.

    Description:
        A form has text fields, check boxes, groups of radio buttons and drop-down lists, and buttons that send and
        cancel it, in any order. The prompt says which fields to change. Clicks that hit nothing, and typing without a
        text field, have no effect.

    Observation:
        An RGB image of the screen.

    Action:
        One line of text: `click (x, y)`, in thousandths of the image's side, or `type TEXT`.

    Reward:
        When the form is sent: (fields changed as asked - other fields changed) / `tasks`, at least 0. All other answers
        have a reward of 0.

    Episode end:
        The form has been sent or cancelled. Metrics: solved, sent, fields changed as asked.
    """

    name = "forms"
    skills = ("perception", "planning")
    optimal_oracle = True
    Config = FormsConfig
    State = FormsState
    prompt_template = PROMPT_V1
    perception_form = (
        "the fields from top to bottom, one line each: the label and the value, comma-separated, - for no value, on or "
        "off for a check box; or, while a list or a dialog is open, only its entries in one line"
    )
    answer = ClickOrType("click (x, y) or type TEXT", _guesses, longest=100, noun="action")

    def start(self, rng: np.random.Generator) -> FormsState:
        c, known = self.config, [*FIELDS]
        labels = [known[index] for index in rng.permutation(len(known))[: c.fields].tolist()]
        values = []
        for label in labels:
            kind, options = FIELDS[label]
            values.append(pick(rng, options) if kind == "check" or rng.random() < 0.5 else EMPTY)
        wanted = [*values]
        for index in rng.permutation(c.fields)[: c.tasks].tolist():
            wanted[index] = pick(rng, [value for value in FIELDS[labels[index]][1] if value != values[index]])
        return FormsState(
            labels=tuple(labels),
            values=tuple(values),
            before=tuple(values),
            wanted=tuple(wanted),
            look=pick(rng, LOOK_NAMES),
            accent=int(rng.integers(7)),
            swapped=bool(rng.integers(2)),
            variation_seed=int(rng.integers(2**32)),
        )

    def legal_actions(self, state: FormsState) -> tuple[str, ...] | None:
        return () if self.ended(state) else None

    def step(self, state: FormsState, action: str, rng: np.random.Generator) -> Step[FormsState]:
        self.answer.check(action)
        *point, text = _ACTION.fullmatch(action).groups()  # type: ignore[union-attr]
        if text is not None:
            field = state.focus
            if field is None or FIELDS[state.labels[field]][0] != "text":
                return Step(state, 0.0)
            return Step(with_value(state, field, text), 0.0)
        x, y = self._on_screen(*map(int, point))
        hit = next((e for e in reversed(elements(state)) if e.left <= x < e.right and e.top <= y < e.bottom), None)
        after = clicked(state, hit)
        if after.status == "dialog" and not self.config.confirm:
            after = replace(after, status="sent")
        return Step(after, self._share(after) if after.status == "sent" else 0.0)

    def _on_screen(self, x: float, y: float) -> Point:
        """Convert a point of the image to one of the screen before it was cropped and scaled."""
        zoom = self.config.scale / (1 - self.config.crop)
        return SCALE / 2 + (x - SCALE / 2) / zoom, SCALE / 2 + (y - SCALE / 2) / zoom

    def _share(self, state: FormsState) -> float:
        changes = [*zip(state.values, state.before, state.wanted)]
        right = sum(value == wanted != before for value, before, wanted in changes)
        other = sum(value != before == wanted for value, before, wanted in changes)
        tasks: int = self.config.tasks
        return max(0.0, (right - other) / tasks)

    def ended(self, state: FormsState) -> str | None:
        return f"the form has been {state.status}" if state.status in ("sent", "cancelled") else None

    def best_action(self, state: FormsState) -> str | None:
        if self.ended(state):
            return None
        wrong = [index for index, value in enumerate(state.values) if value != state.wanted[index]]
        target = Element("yes") if state.status == "dialog" and not wrong else Element("no")
        if state.status != "dialog":
            target = self._next(state, wrong)
        if target.what == "type":
            return f"type {state.wanted[target.field]}"
        element = next(e for e in elements(state) if e[:3] == target[:3])
        zoom = self.config.scale / (1 - self.config.crop)
        x, y = (element.left + element.right) / 2, (element.top + element.bottom) / 2
        return self.answer.pointed(*(0.5 + (at / SCALE - 0.5) * zoom for at in (x, y)))

    def _next(self, state: FormsState, wrong: Sequence[int]) -> Element:
        """Return what to click on next, as an element without its box; `type` means to type."""
        if (opened := opened_list(state)) is not None:
            option = state.wanted[opened] if opened in wrong else ""
            return Element("option", opened, option) if option else Element("field", opened)
        if not wrong:
            return Element("send")
        field = wrong[0]
        kind = FIELDS[state.labels[field]][0]
        if kind == "radio":
            return Element("option", field, state.wanted[field])
        return Element("type" if kind == "text" and state.focus == field else "field", field)

    def metrics(self, state: FormsState, infos: Infos) -> Metrics:
        changed = sum(value == wanted != old for value, old, wanted in zip(state.values, state.before, state.wanted))
        sent = state.status == "sent"
        return {
            "solved": float(sent and state.values == state.wanted),
            "sent": float(sent),
            "fields changed as asked": float(changed),
        }

    # Text -----------------------------------------------------------------------------------------------------------

    def prompt(self, state: FormsState) -> str:
        tasks = [
            WORDS[FIELDS[label][0]].format(label=label, value=wanted)
            for label, old, wanted in zip(state.labels, state.before, state.wanted)
            if wanted != old
        ]
        task = "; ".join(tasks)
        confirm = " and confirm it" if self.config.confirm else ""
        return self.fill_prompt(task=task[0].upper() + task[1:], confirm=confirm)

    def describe(self, state: FormsState) -> str:
        if state.status == "dialog":
            return ", ".join(e.what for e in elements(state) if e.what in ("yes", "no"))
        if (opened := opened_list(state)) is not None:
            return ", ".join(FIELDS[state.labels[opened]][1])
        return "\n".join(f"{label}, {value}" for label, value in zip(state.labels, state.values))

    def explain(self, state: FormsState, action: str) -> str:
        wrong = [label for label, value, end in zip(state.labels, state.values, state.wanted) if value != end]
        if not wrong:
            return f"All fields have the values asked for. I {action}."
        label = wrong[0]
        return f"{label} is {state.values[state.labels.index(label)]}, which must change. I {action}."

    # Image ---------------------------------------------------------------------------------------------------------

    def draw(self, state: FormsState) -> ImageArray:
        image = paint(state, self.config.size, self.config.text)
        return degrade(image, self.config, state.variation_seed)


# Screen ---------------------------------------------------------------------------------------------------------------
#
# The screen of a form: its elements, what clicks do to it, and its image.
#
# Lengths are in thousandths of the image's side.

LABEL, LEFT, RIGHT = 56, 340, 945
TEXT = 24
"""Cap height."""
HALF = 33
"""Half the height of a field."""
OPTION = 62
"""Height of an entry of a list."""


Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


class Element(NamedTuple):
    """Something to click on: what it is, its field and option, if any, and its box."""

    what: str
    field: int = -1
    option: str = ""
    left: float = 0
    top: float = 0
    right: float = 0
    bottom: float = 0


def row_at(index: int) -> float:
    """Return the middle of a field's row."""
    return 146 + 104 * index


def opened_list(state: FormsState) -> int | None:
    """Return the field whose list is open."""
    focus = state.focus
    return focus if focus is not None and FIELDS[state.labels[focus]][0] == "list" else None


def elements(state: FormsState) -> list[Element]:
    """Return all that can be clicked on; later elements cover earlier ones."""
    if state.status == "dialog":
        first, second = ("no", "yes") if state.swapped else ("yes", "no")
        return [Element(first, -1, "", 250, 540, 480, 610), Element(second, -1, "", 520, 540, 750, 610)]
    shown = []
    for index, label in enumerate(state.labels):
        (kind, options), y = FIELDS[label], row_at(index)
        if kind == "radio":
            width = (RIGHT - LEFT) / len(options)
            shown += [
                Element("option", index, option, LEFT + at * width, y - HALF, LEFT + (at + 1) * width, y + HALF)
                for at, option in enumerate(options)
            ]
        else:
            right = LEFT + 2 * HALF if kind == "check" else RIGHT
            shown.append(Element("field", index, "", LEFT, y - HALF, right, y + HALF))
    first, second = ("cancel", "send") if state.swapped else ("send", "cancel")
    shown += [Element(first, -1, "", 340, 882, 620, 950), Element(second, -1, "", 665, 882, 945, 950)]
    if (opened := opened_list(state)) is not None:
        options, y = FIELDS[state.labels[opened]][1], row_at(opened)
        top = y + HALF if y + HALF + OPTION * len(options) < 960 else y - HALF - OPTION * len(options)
        for at, option in enumerate(options):
            shown.append(Element("option", opened, option, LEFT, top + at * OPTION, RIGHT, top + (at + 1) * OPTION))
    return shown


def with_value(state: FormsState, field: int, value: str) -> FormsState:
    """Return the state with another value of a field."""
    return replace(state, values=(*state.values[:field], value, *state.values[field + 1 :]))


def clicked(state: FormsState, hit: Element | None) -> FormsState:
    """Return the state after a click on an element, or on nothing."""
    if state.status == "dialog":
        return state if hit is None else replace(state, status="sent" if hit.what == "yes" else "form")
    opened = opened_list(state)
    if hit is None or (opened is not None and (hit.what, hit.field) != ("option", opened)):
        return replace(state, focus=None)  # closes an open list
    if hit.what == "option":
        return replace(with_value(state, hit.field, hit.option), focus=None)
    if hit.what == "field":
        if FIELDS[state.labels[hit.field]][0] == "check":
            changed = "off" if state.values[hit.field] == "on" else "on"
            return replace(with_value(state, hit.field, changed), focus=None)
        return replace(state, focus=hit.field)
    return replace(state, focus=None, status="cancelled" if hit.what == "cancel" else "dialog")


class Screen(NamedTuple):
    """A canvas in thousandths of the image's side, the colours of the form, and the relative size of its text."""

    canvas: Canvas
    ink: Colour
    panel: Colour
    accent: Colour
    scale: float

    def text(
        self, text: str, x: float, y: float, height: float, colour: Colour | None = None, align: str = "left"
    ) -> None:
        self.canvas.text(text, x, y, height * self.scale, colour or self.ink, align=align)

    def box(
        self, left: float, top: float, right: float, bottom: float, inside: Colour, edge: Colour, width: float = 3
    ) -> None:
        for inset, colour in ((0.0, edge), (width, inside)):
            size = right - left - 2 * inset, bottom - top - 2 * inset
            self.canvas.rectangle(left + inset, top + inset, *size, colour, 9)

    def field(self, label: str, value: str, y: float, focus: bool) -> None:
        """Draw a field without its label."""
        kind, options = FIELDS[label]
        edge = self.accent if focus else blend(self.ink, self.panel, 0.45)
        if kind == "check":
            self.box(LEFT, y - HALF, LEFT + 2 * HALF, y + HALF, self.accent if value == "on" else self.panel, edge)
            if value == "on":
                for start, end in pairwise([(LEFT + 14, y), (LEFT + 28, y + 15), (LEFT + 53, y - 17)]):
                    self.canvas.line(start, end, 9, self.panel)
        elif kind == "radio":
            width = (RIGHT - LEFT) / len(options)
            for at, option in enumerate(options):
                x, dot = LEFT + at * width + 22, self.accent if option == value else self.panel
                for radius, colour in ((22, edge), (19, self.panel), (12, dot)):
                    self.canvas.circle(x, y, radius, colour)
                self.text(option, x + 32, y, 20)
        else:
            self.box(LEFT, y - HALF, RIGHT, y + HALF, self.panel, edge, 6 if focus else 3)
            self.text("" if value == EMPTY else value, LEFT + 22, y, TEXT)
            if kind == "list":
                self.canvas.polygon([(RIGHT - 52, y - 9), (RIGHT - 20, y - 9), (RIGHT - 36, y + 12)], self.ink)

    def button(self, element: Element) -> None:
        """Draw a button."""
        what, _, _, left, top, right, bottom = element
        strong = what in ("send", "yes")
        colour = self.accent if strong else blend(self.panel, self.ink, 0.15)
        self.box(left, top, right, bottom, colour, blend(colour, self.ink, 0.3))
        ink = _readable(colour) if strong else self.ink
        self.text(what.capitalize(), (left + right) / 2, (top + bottom) / 2, 25, ink, "centre")

    def entry(self, element: Element, chosen: bool) -> None:
        """Draw an entry of an open list."""
        _, _, option, left, top, right, bottom = element
        self.box(left, top, right, bottom, blend(self.panel, self.accent, 0.35 if chosen else 0.08), self.ink, 2)
        self.text(option, left + 22, (top + bottom) / 2, TEXT)


def _readable(colour: Colour) -> Colour:
    return WHITE if sum(colour) < 480 else BLACK


def paint(state: FormsState, size: int, text: float) -> ImageArray:
    """Draw a form, uint8 (size, size, 3); `text` is the relative size of its text.

    The image consists of cached strips, because few of them change per turn.
    """
    image: ImageArray = _page(state.look, size).copy()
    shown, opened = elements(replace(state, status="form")), opened_list(state)
    contents: list[tuple[Any, Box]] = [("Order form", (0, 0, 1000, 84))]
    for index, (label, value) in enumerate(zip(state.labels, state.values)):
        y = row_at(index)
        contents.append(((label, value, state.focus == index), (0, y - 52, 1000, y + 52)))
    contents.append((tuple(element for element in shown if element.what in ("send", "cancel")), (0, 870, 1000, 960)))
    if opened is not None:
        entries = tuple(element for element in shown if (element.what, element.field) == ("option", opened))
        contents.append(((state.values[opened], entries), (LEFT, entries[0].top, RIGHT, entries[-1].bottom)))
    if state.status == "dialog":
        contents.append((tuple(elements(state)), (180, 360, 820, 650)))
    for content, box in contents:
        top, left, pixels = _strip(state.look, state.accent, size, text, content, box)
        image[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return image


@lru_cache(maxsize=8)
def _page(name: LookName, size: int) -> ImageArray:
    """Return an empty page."""
    page: ImageArray = np.full((size, size, 3), LOOKS[name].page, np.uint8)
    return page


@lru_cache(maxsize=256)
def _strip(name: LookName, accent: int, size: int, text: float, content: Any, box: Box) -> tuple[int, int, ImageArray]:
    """Draw part of the image, and return its upper edge, its left edge and its pixels.

    `content` is the title, a field (label, value, focus), buttons, or the value and the entries of an open list.
    """
    look, unit = LOOKS[name], size / 1000
    left, top, right, bottom = (round(edge * unit) for edge in box)
    canvas = Canvas(right - left, bottom - top, look.page, left=left, top=top, unit=unit)
    screen = Screen(canvas, look.ink, look.panel, look.accents[accent], text)
    middle = (box[1] + box[3]) / 2
    if isinstance(content, str):
        canvas.rectangle(0, 0, 1000, 100, screen.accent)
        screen.text(content, 50, middle, 30, _readable(screen.accent))
    elif isinstance(content[0], Element):
        if content[0].what in ("yes", "no"):
            screen.box(*box, screen.panel, screen.ink, 5)
            screen.text("Send this form?", 500, 450, 30, align="centre")
        for element in content:
            screen.button(element)
    elif isinstance(content[1], tuple):
        for element in content[1]:
            screen.entry(element, content[0] == element.option)
    else:
        label, value, focus = content
        screen.text(label, LABEL, middle, TEXT)
        screen.field(label, value, middle, focus)
    return top, left, canvas.pixels()
