"""The form of a response: `<perception>...</perception><think>...</think><answer>...</answer>`.

A response is never corrected or guessed at. All functions take time linear in the length of the response.
"""

from __future__ import annotations

from vlmgym.errors import ParseError

SECTIONS = ("perception", "think", "answer")

INSTRUCTIONS_V1 = """\
Respond in exactly this form:
<perception>{perception}</perception>
<think>your reasoning</think>
<answer>{answer}</answer>
Give exactly one <answer>."""
"""Version 1 of the paragraph that tells a model the form; filled with what the two sections hold in a game."""


def compose(perception: str, think: str, answer: str) -> str:
    """A response in the documented form."""
    return f"<perception>{perception}</perception>\n<think>{think}</think>\n<answer>{answer}</answer>"


def answer_only(answer: str) -> str:
    """A response with nothing but an answer: it can be played, but earns nothing for form and perception."""
    return f"<answer>{answer}</answer>"


def section(response: str, name: str) -> str:
    """What stands between the only opening and the only closing tag of a section.

    Raises:
        ParseError: The section is missing, repeated, or not closed.
    """
    opening, closing = f"<{name}>", f"</{name}>"
    opened, closed = response.count(opening), response.count(closing)
    if opened == 0:
        raise ParseError(f"the response has no {opening}")
    if opened > 1 or closed > 1:
        raise ParseError(f"the response has {max(opened, closed)} <{name}> sections; exactly one is allowed")
    start = response.index(opening) + len(opening)
    end = response.find(closing, start)
    if end < 0:
        raise ParseError(f"{opening} is not closed by {closing}")
    return response[start:end].strip()


def answer(response: str, longest: int) -> str:
    """The text of the only `<answer>`.

    Args:
        response: A whole response.
        longest: Characters an answer may have.

    Raises:
        ParseError: There is no answer or more than one, it is empty, or it is too long.
    """
    text = section(response, "answer")
    if not text:
        raise ParseError("the answer is empty")
    if len(text) > longest:
        raise ParseError(f"the answer has {len(text)} characters; at most {longest} are allowed")
    return text


def format_reward(response: str) -> float:
    """1.0 if the response is the three sections, once each, in order, with nothing but blanks around them, else 0.0."""
    position = 0
    for name in SECTIONS:
        opening, closing = f"<{name}>", f"</{name}>"
        if response.count(opening) != 1 or response.count(closing) != 1:
            return 0.0
        start, end = response.index(opening), response.index(closing)
        if start < position or end < start or response[position:start].strip():
            return 0.0
        position = end + len(closing)
    return float(not response[position:].strip())
