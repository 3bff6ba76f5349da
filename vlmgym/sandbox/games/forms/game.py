"""Forms: fill in a form on a screen by clicking and typing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from vlmgym.sandbox.answers.base import plain, unreadable
from vlmgym.sandbox.answers.cells import SCALE, format_cells
from vlmgym.sandbox.answers.line import Line, LineSpace
from vlmgym.sandbox.core.config import TextConfig, config_field
from vlmgym.sandbox.core.game import Game, ImageArray, Infos, Metrics, Step, pick
from vlmgym.sandbox.drawing.canvas import LookName, Point
from vlmgym.sandbox.drawing.degrade import degrade
from vlmgym.sandbox.games.forms.screen import (
    EMPTY,
    FIELDS,
    Element,
    FormsState,
    Kind,
    clicked,
    elements,
    opened_list,
    paint,
    with_value,
)

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
        opened = state.focus
        if opened is not None and FIELDS[state.labels[opened]][0] == "list":
            option = state.wanted[opened] if opened in wrong else ""
            return Element("option", opened, option) if option else Element("field", opened)
        if not wrong:
            return Element("send")
        field = wrong[0]
        kind = FIELDS[state.labels[field]][0]
        if kind == "radio":
            return Element("option", field, state.wanted[field])
        return Element("type" if kind == "text" and opened == field else "field", field)

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
