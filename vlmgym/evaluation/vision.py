"""Do the images reach the model? Questions about digits that only the right images of the right turn answer.

Probes ask these questions in the game canary. If images are lost or mixed up on their way, other digits are seen, which
are known for each fault, so that wrong answers name the fault.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from vlmgym.errors import InfrastructureError, UsageError
from vlmgym.policies.base import ModelPolicy
from vlmgym.policies.openai.policy import OpenAIPolicy
from vlmgym.rollout.runner import run_all, run_async
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.turn import GameSetup, LiveEpisode
from vlmgym.sandbox.core.episode import Episode
from vlmgym.sandbox.registry import make_game

READ = 0.75
"""Share of answers that the true digits, or those of a fault, must explain. Guesses reach it with a probability of
0.004 in four questions, and of 0.00002 in eight."""
SIZE, LARGE = 256, 1024
"""Sides of images in pixels; small digits are in large images."""
CERTAIN = -1e-5
"""Log-probability, in nats, above which a response is so certain that images may change it by less than rounding."""
SMALL_DIGITS = (96, 48, 24, 12)
"""Heights of small digits in pixels."""
CHAT: Mapping[str, Any] = {"chat": True, "history_images": 3}
"""Settings of all episodes: conversations with all their images."""
FORMS = ("Reply with <answer>digit</answer> and nothing else.", "The reply must be <answer>digit</answer>.")
"""Ends of prompts. The second half of single images has another text, so that a cache repeats another response."""


@dataclass(frozen=True)
class Question:
    """What a question was about.

    Attributes:
        turns: Digits in the images of each turn of the conversation so far; the last is the current turn.
        asked: Digits asked for by all requests of the probe so far; the last is the true answer.
        first: Digit asked for by the first request with the same text.
    """

    turns: Sequence[Sequence[int]]
    asked: Sequence[int]
    first: int


@dataclass(frozen=True)
class Fault:
    """A way in which images get lost or mixed up.

    Attributes:
        meaning: What happens to the images.
        digit: The digit that the asked image seems to have, for faults that show another one.
    """

    meaning: str
    digit: Callable[[Question], int | None] = lambda question: None


FAULTS = {
    "dropped": Fault("images do not reach the model"),
    "cached": Fault("a cache repeats responses to the same text, whatever the image", lambda question: question.first),
    "late": Fault(
        "requests get the image of the request before",
        lambda question: question.asked[-2] if question.asked[1:] else None,
    ),
    "mixed": Fault("parallel requests get each other's images"),
    "first only": Fault("only the first of several images arrives", lambda question: question.turns[-1][0]),
    "last only": Fault("only the last of several images arrives", lambda question: question.turns[-1][-1]),
    "reversed": Fault("the images of a prompt arrive in reverse order"),
    "first kept": Fault("all turns of a conversation show its first image", lambda question: question.turns[0][0]),
    "turn late": Fault(
        "turns of a conversation show the image of the turn before", lambda question: question.turns[-2][0]
    ),
    "past lost": Fault(
        "images of earlier turns are missing from conversations", lambda question: question.turns[-1][0]
    ),
    "downsized": Fault("large images lose detail before they reach the model"),
    "rejected": Fault("the server rejects some of the prompts"),
    "leak": Fault("answers are right without any image: something else gives them away"),
}
"""Faults by name."""


@dataclass(frozen=True)
class Probe:
    """A few questions of the same kind.

    Attributes:
        name: What is tried.
        config: Config fields of canary.
        settings: Settings of the episodes.
        episodes: Number of episodes.
        concurrency: Number of concurrent requests.
        faults: Faults that would show other digits.
        skipped: Number of first turns of each episode that no fault affects, and that do not count.
        forms: Ends of the prompts, each of the same number of episodes in a row.
        repeats: Number of episodes with each seed.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    episodes: int = 4
    concurrency: int = 4
    faults: Sequence[str] = ()
    skipped: int = 0
    forms: Sequence[str] = FORMS[:1]
    repeats: int = 1


SINGLE = Probe("one image at a time", episodes=8, concurrency=1, faults=("cached", "late"), forms=FORMS)
WORDS = Probe("the digit in words instead of an image", settings={"observation": "text"})
PARALLEL = Probe("parallel requests: four images, each twice", episodes=8, concurrency=8, repeats=2)
PAIR = (
    Probe("two images, asked for the first", {"frames": 2}, episodes=6, faults=("last only",)),
    Probe("two images, asked for the second", {"frames": 2, "asked": 2}, episodes=6, faults=("first only",)),
)
CONVERSATION = Probe(
    "conversation, asked for the current image",
    {"turns": 3},
    faults=("first kept", "turn late"),
    skipped=1,
)
PAST = Probe(
    "conversation, asked for the image before",
    {"turns": 2, "back": 1},
    faults=("past lost",),
    skipped=1,
)
GREY = Probe("grey images, which nobody can read", settings={"images": "blank"}, episodes=8)


def small_digits(height: int, side: int | None = None) -> Probe:
    """Probe digits of a height in images of a side, both in pixels; None for small images, in which they are large."""
    side = side or max(64, 4 * height)
    return Probe(f"digits of {height} pixels in images of {side}", {"size": side, "height": height / side})


def canary_config(changes: Mapping[str, Any], form: str) -> dict[str, Any]:
    """Return config fields of canary: a question about an image, with `changes`, and a prompt that ends in `form`."""
    config = {"size": SIZE, "frames": 1, "asked": 1, "back": 0, "turns": 1, **changes}
    canary: Any = make_game("canary", 1, 1, **config)
    return config | {"prompt": f"{canary.question} {form}"}


Verdict = Literal["right", "wrong", "unclear"]


@dataclass(frozen=True)
class Answer:
    """A response to a question; `digit` is None if it has no answer, and `prompt_tokens` if tokens are not counted."""

    question: Question
    digit: int | None
    text: str
    prompt_tokens: int | None

    @property
    def right(self) -> bool:
        """True if the answer is the digit in the image that was asked for."""
        return self.digit == self.question.asked[-1]


@dataclass(frozen=True)
class Finding:
    """Result of a probe.

    Attributes:
        probe: What was tried.
        right: Number of right answers.
        questions: Number of questions.
        verdict: `right` if the images arrived, `wrong` if there is a fault, `unclear` if it may be the model.
        fault: Name in `FAULTS` of the fault, or of one that would explain the answers if it is unclear; may be empty.
        evidence: What else shows it; empty if the answers do.
    """

    probe: str
    right: int
    questions: int
    verdict: Verdict
    fault: str = ""
    evidence: str = ""

    @property
    def passed(self) -> bool:
        """True if the answers show that the images arrived."""
        return self.verdict == "right" and self.right >= READ * self.questions

    def wrong(self, fault: str, evidence: str = "") -> Finding:
        """Return a copy that found a fault."""
        return replace(self, verdict="wrong", fault=fault, evidence=evidence)

    def unclear(self, evidence: str, fault: str = "") -> Finding:
        """Return a copy that does not tell a fault from a weak model."""
        return replace(self, verdict="unclear", fault=fault, evidence=evidence)


def judge(probe: Probe, answers: Sequence[Answer]) -> Finding:
    """Explain answers by the true digits, or else by the fault that explains most of them."""
    right = sum(answer.right for answer in answers)
    finding = Finding(probe.name, right, len(answers), "right" if right >= READ * len(answers) else "unclear")
    shares = {}
    for fault in probe.faults if finding.verdict == "unclear" else ():
        digits = [(answer, FAULTS[fault].digit(answer.question)) for answer in answers]
        telling = [answer.digit == digit for answer, digit in digits if digit not in (None, answer.question.asked[-1])]
        shares[fault] = sum(telling) / max(1, len(telling))
    best = max(shares, key=lambda fault: shares[fault], default="")
    return finding.wrong(best) if shares.get(best, 0.0) >= READ else finding


def compare_tokens(counts: Sequence[int | None]) -> tuple[bool | None, str]:
    """Return whether images of `LARGE` pixels seem to be reduced, which is None if unknown, and the evidence.

    Args:
        counts: Numbers of tokens of prompts without an image, and with one of `SIZE`, twice `SIZE` and `LARGE` pixels.
    """
    without, small, middle, large = counts
    if not without or not small or not middle or not large:  # some servers report 0
        return None, ""
    if small <= without:
        return None, "only the tokens of texts are counted"
    evidence = f"prompts with images of {SIZE}, {2 * SIZE} and {LARGE} pixels have {small}, {middle} and {large} tokens"
    # With the area, the number of an image's tokens grows to 4 and 16 times; tiles and limits make the steps unequal.
    return large - small <= 3 * (middle - small), evidence


def check_vision(
    policy: ModelPolicy, seed: int = 0, on_finding: Callable[[Finding], None] = lambda finding: None
) -> list[Finding]:
    """Ask the questions of all probes, or only of the first if single images are not read.

    Args:
        policy: The policy; its responses should be deterministic.
        seed: Seed of the digits.
        on_finding: Called with each finding as soon as it is known.

    Raises:
        PolicyError: The server cannot be reached, or rejects the key or the model.
        UsageError: The policy does not support conversations.
    """
    if not policy.supports_prompts(EpisodeSettings(**CHAT).of(0)):
        raise UsageError(f"the {policy.name} policy does not support conversations: choose another")
    return run_async(_VisionCheck(policy, seed, on_finding).run())


class _VisionCheck:
    def __init__(self, policy: ModelPolicy, seed: int, on_finding: Callable[[Finding], None]) -> None:
        self.policy, self.seed, self.on_finding = policy, seed, on_finding
        self.concurrency: int | None = None
        self.is_reversed = False

    async def run(self) -> list[Finding]:
        findings = list[Finding]()
        await self.policy.begin_run()
        try:
            for step in (
                self._single,
                self._parallel,
                partial(self._several, PAIR),
                partial(self._several, (CONVERSATION, PAST)),
                self._size,
                self._grey,
            ):
                results = await step()
                findings += results
                for finding in results:
                    self.on_finding(finding)
                if findings[0].verdict != "right":
                    break  # without single images, the other probes show nothing
        finally:
            await self.policy.end_run()
        return findings

    async def _single(self) -> list[Finding]:
        finding, answers = await self._probe(SINGLE)
        if finding.verdict != "unclear":
            return [finding]
        in_words, words = await self._probe(WORDS)
        tokens, without = answers[0].prompt_tokens, words[0].prompt_tokens if words else None
        depends = await self._depends_on_images(SINGLE)
        if depends is False:
            return [finding.wrong("dropped", "log-probabilities are the same for different images")]
        if in_words.verdict == "unclear":
            return [finding.unclear("the model fails even if the prompt has the digit in words")]
        if depends or len({answer.text for answer in answers[: len(answers) // len(FORMS)]}) > 1:
            shown = "log-probabilities" if depends else "responses"
            return [finding.unclear(f"{shown} depend on the images, but the model does not read them")]
        if tokens and without and tokens < without:
            counts = f"{tokens} in a prompt, {without} without an image"
            return [finding.unclear(f"images have no tokens, or they are not counted: {counts}", "dropped")]
        return [finding.unclear("the response is always the same", "dropped")]

    async def _depends_on_images(self, probe: Probe) -> bool | None:
        """Return whether log-probabilities vary more with the asked image than among repetitions; None if unknown.

        All other images of the prompt are the same.
        """
        if not isinstance(self.policy, OpenAIPolicy):
            return None
        setup = self._setup(probe, FORMS[0])
        canary: Any = setup.game
        alike: dict[Any, dict[int, LiveEpisode]] = {}
        for seed in itertools.count(self.seed):
            live = LiveEpisode(setup, seed)
            digits = [[*live.episode.state.digits[-1]]]
            for _ in range(probe.skipped):
                live.step("<answer>0</answer>")
                digits.append([*live.episode.state.digits[-1]])
            asked = digits[-1 - canary.config.back].pop(canary.config.asked - 1)
            episodes = alike.setdefault(str(digits), {})
            episodes.setdefault(asked, live)
            if len(episodes) == 3:
                break
        values, first = list[float](), next(iter(episodes.values()))
        for live in (first, first, *episodes.values()):  # the first request fills caches, which may round differently
            value = await self.policy.log_probability(live.observation.images, live.state().prompt(canary))
            if value is None:
                return None
            values.append(value)
        if min(values) > CERTAIN:
            return None
        noise = abs(values[2] - values[1])
        change = max(abs(value - values[1]) for value in values[3:])
        if change > 10 * noise + 1e-6:
            return True
        return None if noise > 1e-6 else False

    async def _parallel(self) -> list[Finding]:
        finding, answers = await self._probe(PARALLEL)
        digits = {answer.question.asked[-1] for answer in answers}
        mistakes = [answer.digit in digits for answer in answers if not answer.right]
        if 2 * len(mistakes) >= len(answers) > 0 and sum(mistakes) >= READ * len(mistakes):
            self.concurrency = 1  # for the other probes
            return [finding.wrong("mixed")]
        return [finding]

    async def _several(self, probes: Sequence[Probe]) -> list[Finding]:
        """Ask about one of several images."""
        findings = [(await self._probe(probe))[0] for probe in probes]
        self.is_reversed |= [finding.fault for finding in findings] == ["last only", "first only"]
        return [await self._confirmed(probe, finding) for probe, finding in zip(probes, findings)]

    async def _confirmed(self, probe: Probe, finding: Finding) -> Finding:
        """Tell a fault that hides the asked image from a model that looks at another, by log-probabilities."""
        if finding.verdict == "right" or finding.fault == "rejected":
            return finding
        if self.is_reversed:
            return finding.wrong("reversed", "unless the model counts images from the end")
        depends = await self._depends_on_images(probe)
        if depends:
            return finding.unclear("log-probabilities depend on the image, but the answers are wrong")
        if depends is False:
            fault = finding.fault or ("past lost" if probe is PAST else "dropped")
            return finding.wrong(fault, "log-probabilities do not depend on the image that is asked for")
        return finding.unclear("", finding.fault)

    async def _size(self) -> list[Finding]:
        """Ask for smaller and smaller digits in large images; if they are not read, find out why."""
        readable: list[Finding] = []
        for height in SMALL_DIGITS:
            finding, answers = await self._probe(small_digits(height, LARGE))
            if finding.verdict != "right":
                if finding.fault:
                    return [finding]
                probes = (WORDS, Probe("", {"size": SIZE}), Probe("", {"size": 2 * SIZE}))
                counts = [await self._tokens(probe) for probe in probes]
                is_reduced, evidence = compare_tokens([*counts, answers[0].prompt_tokens])
                if is_reduced:
                    return [finding.wrong("downsized", evidence)]
                cropped, _ = await self._probe(small_digits(height))
                if cropped.fault:
                    return [cropped]
                if cropped.verdict != "right":
                    evidence = "smaller ones are not read in small images either"
                    return [replace(*readable[-1:] or [finding], evidence=evidence)]
                if is_reduced is None:
                    evidence = evidence or "tokens are not counted"
                    return [finding.unclear(f"they are read in small images, and {evidence}", "downsized")]
                return [replace(finding, verdict="right", evidence=f"not read although they arrive: {evidence}")]
            readable.append(finding)
        return readable[-1:]

    async def _tokens(self, probe: Probe) -> int | None:
        """Return the number of tokens of a prompt; None if they are not counted, or the prompt is rejected."""
        _, answers = await self._probe(replace(probe, episodes=1))
        return answers[0].prompt_tokens if answers else None

    async def _grey(self) -> list[Finding]:
        finding, _ = await self._probe(GREY)
        if finding.fault:
            return [finding]
        return [finding.wrong("leak") if finding.verdict == "right" else replace(finding, verdict="right")]

    async def _probe(self, probe: Probe) -> tuple[Finding, list[Answer]]:
        try:
            answers = await self._ask(probe)
        except InfrastructureError as error:
            return Finding(probe.name, 0, 0, "wrong", "rejected", str(error)), []
        return judge(probe, answers), answers

    def _setup(self, probe: Probe, form: str) -> GameSetup:
        game = make_game("canary", 1, 1, **canary_config(probe.config, form))
        return GameSetup(game, EpisodeSettings(**CHAT, **probe.settings), self.policy.transform)

    def _seeds(self, game: Any, count: int) -> list[int]:
        """Return seeds of episodes that start with different digits."""
        seeds: dict[int, int] = {}
        seed = self.seed
        while len(seeds) < count:
            seeds.setdefault(Episode(game, seed).state.digits[-1][game.config.asked - 1], seed)
            seed += 1
        return [*seeds.values()]

    async def _ask(self, probe: Probe) -> list[Answer]:
        """Play the episodes of a probe; return the answers to questions that faults affect."""
        setups = [self._setup(probe, form) for form in probe.forms]
        slots, asked = asyncio.Semaphore(self.concurrency or probe.concurrency), list[int]()
        firsts: dict[GameSetup, int] = {}

        async def play(number: int, seed: int) -> list[Answer]:
            setup = setups[number * len(setups) // probe.episodes]
            live, turns, answers = LiveEpisode(setup, seed), list[Sequence[int]](), list[Answer]()
            canary: Any = setup.game
            while not live.done:
                state = live.episode.state
                turns.append(state.digits[-1])
                digit = canary.asked_digit(state)
                async with slots:
                    reply = await self.policy.reply(live.observation.images, live.state().prompt(canary))
                turn = live.respond(reply)
                if digit is not None and len(turns) > probe.skipped:
                    asked.append(digit)
                    question = Question([*turns], [*asked], firsts.setdefault(setup, digit))
                    action = turn.action if isinstance(turn.action, int) else None
                    answers.append(Answer(question, action, reply.text, reply.prompt_tokens))
            return answers

        seeds = self._seeds(setups[0].game, probe.episodes // probe.repeats) * probe.repeats
        return [answer for answers in await run_all(map(play, range(probe.episodes), seeds)) for answer in answers]
