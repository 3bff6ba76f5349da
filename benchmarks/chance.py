"""Measure the rewards of answers that ignore the image: random answers, and the best constant answer.

python -m benchmarks.chance
python -m benchmarks.chance --questions 500

Rewards are measured at every reasoning level, on generated questions about scenes, and on all photographs for
caption. To find the best constant answer, all possible answers about scenes are tried. For caption, hill climbing
adds, removes and replaces keywords and synonyms, so the result is only a local optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from vlmgym.checks import check_int
from vlmgym.sandbox.answers.base import ActionT
from vlmgym.sandbox.core.task import Task, TaskStateT
from vlmgym.sandbox.games.caption.game import PHOTOGRAPHS, Caption, CaptionConfig, CaptionState
from vlmgym.sandbox.games.caption.keywords import FUNCTION_WORDS, named_keywords, tokenise
from vlmgym.sandbox.games.scenes.questions import SceneQuestions, SceneQuestionsConfig
from vlmgym.sandbox.games.scenes.statements import SceneStatements, SceneStatementsConfig
from vlmgym.terminal import parse_options, reporting_errors

LEVELS = range(1, 6)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure rewards without looking at images, and print a table."""

    questions: int = 1000
    """Number of questions per level, of the tasks about scenes."""

    def __post_init__(self) -> None:
        check_int("questions", self.questions, 1)


def main() -> None:
    options = parse_options(Options, None, "python -m benchmarks.chance")
    table = Table(
        "task", "level", "random", "best constant", "answer", title="mean reward without looking at the image"
    )
    for level in LEVELS:
        asking = SceneQuestions(SceneQuestionsConfig.at(reasoning=level))
        answers = asking.answer.space.words
        table.add_row(asking.name, str(level), *_format(*fixed_answers(asking, answers, options.questions)))
    for level in LEVELS:
        stating = SceneStatements(SceneStatementsConfig.at(reasoning=level))
        table.add_row(stating.name, str(level), *_format(*fixed_answers(stating, (0, 1), options.questions)))
    for level in LEVELS:
        caption = Caption(CaptionConfig.at(reasoning=level))
        table.add_row("caption", str(level), *_format(random_captions(caption), *best_constant_caption(caption)))
    Console().print(table)


def _format(chance: float, best: float, answer: object) -> tuple[str, str, str]:
    return f"{chance:.3f}", f"{best:.3f}", str(answer)


def fixed_answers(game: Task[TaskStateT, ActionT], answers: Sequence[ActionT], count: int) -> tuple[float, float, str]:
    """Return the mean reward of random answers, the mean reward of the best constant answer, and that answer."""
    states = [game.start_at(seed, np.random.default_rng(seed)) for seed in range(count)]
    means = [float(np.mean([game.score(state, answer)[0] for state in states])) for answer in answers]
    best = int(np.argmax(means))
    return float(np.mean(means)), means[best], game.answer.format(answers[best])


def random_captions(game: Caption) -> float:
    """Return the mean reward of the policy `random` over 50 captions per photograph."""
    rng = np.random.default_rng(0)
    rewards = [game.score(state, game.answer.sample(rng))[0] for state in _photographs(game) for _ in range(50)]
    return float(np.mean(rewards))


def best_constant_caption(game: Caption, starts: int = 3) -> tuple[float, str]:
    """Return the mean reward of the best constant caption found, and the caption.

    Args:
        game: Task that scores the captions.
        starts: Number of searches. The first starts with no words, the others with five random ones.
    """
    search = _Search(game)
    rng = np.random.default_rng(0)
    optima = [search.climb([])]
    for _ in range(starts - 1):
        optima.append(search.climb(rng.choice(len(search.words), 5, replace=False).tolist()))
    caption = ", ".join(search.words[word] for word in max(optima, key=lambda words: search.rewards(words)[-1]))
    return float(np.mean([game.score(state, caption)[0] for state in _photographs(game)])), caption


def _photographs(game: Caption) -> list[CaptionState]:
    return [game.start_at(seed, np.random.default_rng(seed)) for seed in range(len(PHOTOGRAPHS))]


class _Search:
    """Hill climbing for a list of words with a high mean reward."""

    def __init__(self, game: Caption) -> None:
        """Precompute, for each word and photograph, what `rewards` needs.

        `named` is True for the keywords that the word names; `rest` is its number of content words if it names none.
        """
        self.words = game.answer.space.words
        self.limit, self.requested, self.precision = (
            game.config.words,
            game.config.keywords,
            max(game.config.precision, 1e-9),
        )
        keywords = [state.keywords for state in _photographs(game)]
        max_keywords = max(map(len, keywords))
        self.named = np.zeros((len(self.words), len(keywords), max_keywords), bool)
        self.rest = np.zeros((len(self.words), len(keywords)))
        self.lengths = np.array([len(tokenise(word)) for word in self.words])
        for i, word in enumerate(self.words):
            content = len(set(tokenise(word)) - FUNCTION_WORDS)
            for j, keywords_of_state in enumerate(keywords):
                named = named_keywords(word, keywords_of_state, self.limit)
                self.named[i, j, : len(keywords_of_state)] = named
                self.rest[i, j] = 0 if any(named) else content

    def rewards(self, words: list[int]) -> NDArray[np.float64]:
        """Approximate the mean reward of the chosen words after adding each possible word; the last entry adds none."""
        named = np.any(self.named[words], axis=0, keepdims=True)
        rest = np.sum(self.rest[words], axis=0, keepdims=True)
        length = self.lengths[words].sum()
        named = np.concatenate([self.named | named, named])
        rest = np.concatenate([self.rest + rest, rest])
        true = named.sum(2)
        precision = true / np.maximum(true + rest, 1)
        reward = (named[:, :, : self.requested].mean(2) * np.minimum(1, precision / self.precision)).mean(1)
        return np.where(np.append(self.lengths, 0) + length <= self.limit, reward, 0.0)

    def climb(self, words: list[int]) -> list[int]:
        """Add, remove or replace one word at a time, while that improves the reward."""
        best = self.rewards(words)[-1]
        while True:
            starts = [words, *([kept_word for kept_word in words if kept_word != word] for word in words)]
            steps = np.array([self.rewards(words_left) for words_left in starts])
            base, added = np.unravel_index(int(steps.argmax()), steps.shape)
            if steps[base, added] <= best + 1e-9:
                return words
            best = steps[base, added]
            words = starts[base] + ([int(added)] if added < len(self.words) else [])


if __name__ == "__main__":
    with reporting_errors():
        main()
