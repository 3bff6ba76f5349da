"""What earns without a look at the image: random answers, and the best answer that is always the same.

python benchmarks/chance.py
python benchmarks/chance.py --questions 500

vqa and nlvr2 by generated questions, caption by its photographs, at each level of reasoning. For vqa and nlvr2 every
answer that is possible is tried. For caption a list of words is sought by adding, taking away and exchanging one of all
keywords and synonyms as long as that helps; it may not be the best of all lists, but no better one is a step away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from vlmgym.cli.console import parse_options, reporting_errors
from vlmgym.errors import UsageError
from vlmgym.sandbox.core.game import ActionT
from vlmgym.sandbox.core.task import Task, TaskStateT
from vlmgym.sandbox.games.caption.game import Caption, CaptionConfig, CaptionState
from vlmgym.sandbox.games.caption.keywords import FUNCTION_WORDS, named_keywords, tokenise
from vlmgym.sandbox.games.caption.photographs import PHOTOGRAPHS
from vlmgym.sandbox.games.nlvr2.game import Nlvr2, Nlvr2Config
from vlmgym.sandbox.games.vqa.game import Vqa, VqaConfig

LEVELS = range(1, 6)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure and print a table."""

    questions: int = 1000
    """Questions of vqa and nlvr2 at each level."""

    def __post_init__(self) -> None:
        if self.questions < 1:
            raise UsageError(f"questions is at least 1, not {self.questions}")


def main() -> None:
    options = parse_options(Options, None, "benchmarks/chance.py")
    table = Table("task", "level", "random", "best constant", "which", title="mean reward without a look at the image")
    for level in LEVELS:
        vqa = Vqa(VqaConfig.at(reasoning=level))
        answers = vqa.action_space.words
        table.add_row("vqa", str(level), *_told(*fixed_answers(vqa, answers, options.questions)))
    for level in LEVELS:
        nlvr2 = Nlvr2(Nlvr2Config.at(reasoning=level))
        table.add_row("nlvr2", str(level), *_told(*fixed_answers(nlvr2, (0, 1), options.questions)))
    for level in LEVELS:
        caption = Caption(CaptionConfig.at(reasoning=level))
        table.add_row("caption", str(level), *_told(random_captions(caption), *best_constant_caption(caption)))
    Console().print(table)


def _told(chance: float, best: float, which: object) -> tuple[str, str, str]:
    return f"{chance:.3f}", f"{best:.3f}", str(which)


def fixed_answers(game: Task[TaskStateT, ActionT], answers: Sequence[ActionT], count: int) -> tuple[float, float, str]:
    """Mean reward of an answer by chance, of the best constant answer, and which that is, over `count` questions."""
    states = [game.start_at(seed, np.random.default_rng(seed)) for seed in range(count)]
    means = [float(np.mean([game.score(state, answer)[0] for state in states])) for answer in answers]
    best = int(np.argmax(means))
    return float(np.mean(means)), means[best], game.format(answers[best])


def random_captions(game: Caption, times: int = 50) -> float:
    """Mean reward of the captions that the policy `random` gives, so many for each photograph."""
    rng = np.random.default_rng(0)
    rewards = [game.score(state, game.random_action(rng))[0] for state in _photographs(game) for _ in range(times)]
    return float(np.mean(rewards))


def best_constant_caption(game: Caption, starts: int = 3) -> tuple[float, str]:
    """The mean reward over all photographs of the best list of words found, and the list.

    Args:
        game: The task, which says what earns.
        starts: From how many lists the search begins: the empty one, and others by chance.
    """
    search = _Search(game)
    rng = np.random.default_rng(0)
    found = [search.climb([])]
    for _ in range(starts - 1):
        found.append(search.climb(rng.choice(len(search.words), 5, replace=False).tolist()))
    caption = ", ".join(search.words[word] for word in max(found, key=lambda chosen: search.rewards(chosen)[-1]))
    return float(np.mean([game.score(state, caption)[0] for state in _photographs(game)])), caption


def _photographs(game: Caption) -> list[CaptionState]:
    return [game.start_at(seed, np.random.default_rng(seed)) for seed in range(len(PHOTOGRAPHS))]


class _Search:
    """A list of words that earns much with all photographs alike, one step after another."""

    def __init__(self, game: Caption) -> None:
        """Which keywords each word names (`named`: word, photograph, keyword), and how many words cost (`rest`)."""
        self.words = game.action_space.words
        self.limit, self.asked, self.precision = (
            game.config.words,
            game.config.keywords,
            max(game.config.precision, 1e-9),
        )
        keywords = [state.keywords for state in _photographs(game)]
        most = max(map(len, keywords))
        self.named = np.zeros((len(self.words), len(keywords), most), bool)
        self.rest = np.zeros((len(self.words), len(keywords)))
        self.lengths = np.array([len(tokenise(word)) for word in self.words])
        for i, word in enumerate(self.words):
            content = len(set(tokenise(word)) - FUNCTION_WORDS)
            for j, known in enumerate(keywords):
                found = named_keywords(word, known, self.limit)
                self.named[i, j, : len(known)] = found
                self.rest[i, j] = 0 if any(found) else content

    def rewards(self, chosen: list[int]) -> NDArray[np.float64]:
        """About what the chosen words earn with each of all words added, and, last, without any."""
        found = np.any(self.named[chosen], axis=0, keepdims=True)
        rest = np.sum(self.rest[chosen], axis=0, keepdims=True)
        length = self.lengths[chosen].sum()
        found = np.concatenate([self.named | found, found])
        rest = np.concatenate([self.rest + rest, rest])
        true = found.sum(2)
        precision = true / np.maximum(true + rest, 1)
        reward = (found[:, :, : self.asked].mean(2) * np.minimum(1, precision / self.precision)).mean(1)
        return np.where(np.append(self.lengths, 0) + length <= self.limit, reward, 0.0)

    def climb(self, chosen: list[int]) -> list[int]:
        """The words to which no step leads that earns more."""
        best = self.rewards(chosen)[-1]
        while True:
            fewer = [chosen, *([other for other in chosen if other != word] for word in chosen)]
            steps = np.array([self.rewards(each) for each in fewer])
            base, added = np.unravel_index(int(steps.argmax()), steps.shape)
            if steps[base, added] <= best + 1e-9:
                return chosen
            best = steps[base, added]
            chosen = fewer[base] + ([int(added)] if added < len(self.words) else [])


if __name__ == "__main__":
    with reporting_errors():
        main()
