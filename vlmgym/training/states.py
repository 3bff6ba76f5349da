"""Training episodes: their length, groups that share an initial state, and the responses of experts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from vlmgym.checks import check_int
from vlmgym.curriculum import Curriculum, Pick, Progress
from vlmgym.errors import EpisodeError, GenerationError, UsageError
from vlmgym.policies.base import identity
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.states import StateConfig, action_rewards, all_actions, sample_state, split_questions
from vlmgym.rollout.turn import TURN_LIMIT, GameSetup, LiveEpisode, Observation, Transform, episode_record
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, now
from vlmgym.sandbox.core.episode import Snapshot
from vlmgym.sandbox.core.game import Game
from vlmgym.sandbox.core.prompt import ImageControl, Message, ObservationType, PromptConfig, turn_messages
from vlmgym.sandbox.core.reward import RewardConfig

START_ERRORS = (EpisodeError, GenerationError, UsageError)
"""Errors of a state that cannot be started or demonstrated: of its game, its generator, or a row of the user's data."""
SFT_STREAM, GATE_STREAM = 2**32, 0x6C6F6F6B
"""Added to a run's seed, so that supervised fine-tuning, and the gate that decides whether it has succeeded, draw
different states from reinforcement learning."""


@dataclass(frozen=True, kw_only=True)
class MultiTurnConfig(PromptConfig):
    """Length of training episodes, and contents of their prompts."""

    max_turns: int = 1
    """Maximum number of turns.
    1 trains on single responses to sampled states; a higher number trains on episodes that start at such states.
    If an episode is cut off by this limit, PPO bootstraps from the value of its final state; GRPO does not."""
    images: Annotated[ImageControl, tyro.conf.Suppress] = "true"
    """Images of a control experiment; the local trainer has `--control blank`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("max_turns", self.max_turns, 1)

    def past_turns(self, needed: int) -> int:
        """Return the maximum number of past turns in a prompt, for a game whose `Game.history` is `needed`."""
        history, longest = self.of(needed).history, self.max_turns - 1
        return longest if history is None else min(history, longest)


def check_validation_size(games: Iterable[Game[Any, Any]], validation_fraction: float, count: int, option: str) -> None:
    """Raise `UsageError` if a game has fewer than `count` validation questions; `option` names the option to lower."""
    for game in games:
        split = split_questions(game, validation_fraction)
        if split is not None and len(split.validation) < count:
            kept = len(split.validation)
            total = kept + len(split.training)
            raise UsageError(
                f"{game.name} keeps {kept:,} of {total:,} questions for validation, but {option} needs "
                f"{count:,}: lower it, or raise validation_fraction of the states above {validation_fraction:g}"
            )


Expert = Literal["oracle", "greedy", "rule"]


class EpisodeRollout(LiveEpisode):
    """An episode of a training run.

    Attributes:
        pick: Entry and stage of the episode in the curriculum.
        prompt_id: Index of the initial state in the training run; all samples of a group share it.
        sample_idx: Index of this sample within its group.
    """

    def __init__(
        self,
        pick: Pick,
        prompt_id: int,
        sample_idx: int,
        setup: GameSetup,
        start: int | Snapshot,
        observation: Observation | None = None,
    ) -> None:
        super().__init__(setup, start, observation=observation)
        self.pick, self.prompt_id, self.sample_idx = pick, prompt_id, sample_idx
        self._started = now()

    @property
    def failed(self) -> bool:
        """True if an error has ended the episode, which then has no score."""
        return self.observation.status == "error"

    def fail(self, error: EpisodeError) -> None:
        """End the episode with an error."""
        self.observation = Observation([], end=str(error), status="error")

    def messages(self, observation: ObservationType) -> tuple[Message, ...]:
        """Return the messages of the turn, with the state shown as an image, as text or as both."""
        prompts, episode = replace(self.setup.prompts, observation=observation), self.episode
        with episode.game_errors():
            return turn_messages(self.setup.game, episode.state, episode.turn + 1, episode.feedback, self.past, prompts)

    def demonstrate(self, expert: Expert, rng: np.random.Generator) -> str | None:
        """Write an expert's response in the turn; None, after the first turn, if it has none, which ends the episode.

        Raises `EpisodeError` if the game fails, or the expert has no response in the first turn.
        """
        reward = self.setup.settings.reward
        try:
            with self.episode.game_errors(*([UsageError] if self.turns else [])):
                return expert_response(self.setup.game, self.episode.state, expert, 1.0, reward, rng)
        except UsageError as error:
            self.observation = Observation([], end=str(error), status=TURN_LIMIT)
            return None

    def record(self, policy: PolicyRecord, group_size: int = 1, *, seed: int | None = None) -> EpisodeRecord:
        """Return the record of the episode in the evaluator's format; `seed` is its index by default."""
        index = self.prompt_id * group_size + self.sample_idx
        return episode_record(
            self.setup,
            self.state(),
            self.turns,
            policy=policy,
            seed=index if seed is None else seed,
            index=index,
            started=self._started,
            stage=self.pick.stage,
        )


def start_rollouts(
    picks: Mapping[int, Pick],
    seed: int,
    group_size: int,
    play: MultiTurnConfig,
    states: StateConfig,
    reward: RewardConfig,
    *,
    validation: bool = False,
    transform: Transform = identity,
    errors: list[str] | None = None,
) -> Iterator[EpisodeRollout]:
    """Start `group_size` episodes for each prompt and yield them group by group.

    The episodes of a group start from the same state with identical random generators.

    Args:
        picks: Game of each prompt, keyed by prompt_id, as returned by `Curriculum.picks`.
        seed: Seed of the initial states.
        group_size: Episodes per prompt.
        play: Length of episodes and contents of prompts.
        states: Distribution of initial states.
        reward: Reward weights and shaping.
        validation: Draw states, or questions of a finite dataset, that are held out for validation.
        transform: Function applied to each image before the model sees it.
        errors: Collects the errors of prompts that cannot start, such as a bad row of the user's data; these prompts
            have no episodes. If None, the first error is raised.
    """
    for prompt_id, pick in picks.items():
        setup = GameSetup(pick.game, EpisodeSettings.from_parts(play, play.max_turns, reward), transform)
        try:
            snapshot = sample_state(pick.game, seed, prompt_id, states, reward, validation=validation)
            first = EpisodeRollout(pick, prompt_id, 0, setup, snapshot)
        except START_ERRORS as error:
            if errors is None:
                raise
            errors += [str(error)] * group_size
            continue
        yield first
        for sample_idx in range(1, group_size):
            yield EpisodeRollout(pick, prompt_id, sample_idx, setup, snapshot, first.observation)


def advance(curriculum: Curriculum, progress: Progress, results: Iterable[tuple[int, Pick, float]]) -> Progress:
    """Return the progress of a curriculum after a step; each group counts as one episode with its mean success.

    `results` has the prompt_id, the pick and the success of each episode.
    """
    groups: dict[int, tuple[Pick, list[float]]] = {}
    for prompt_id, pick, success in results:
        groups.setdefault(prompt_id, (pick, []))[1].append(success)
    for pick, successes in groups.values():
        progress = curriculum.after(progress, pick, float(np.mean(successes)))
    return curriculum.at_step(progress, progress.steps + 1)


def expert_response(
    game: Game[Any, Any],
    state: Any,
    expert: Expert,
    accuracy: float,
    reward: RewardConfig,
    rng: np.random.Generator,
    rejected: Any = None,
) -> str:
    """Write a response whose answer is the expert's with probability `accuracy`, else a random action.

    Random answers leave it to reinforcement learning to find the right ones. The answer is never `rejected`, the action
    that the prompt reports as illegal, so that the model learns to heed feedback. Raises `UsageError` if the game has
    no such expert.
    """
    right = rng.random() < accuracy
    action = expert_action(game, state, expert, reward, rng) if right else game.answer.sample(rng)
    while action == rejected:
        action = game.answer.sample(rng)
    later = game.follow_up(state, action) if right and expert == "oracle" else ()
    return game.respond(state, action, *later)


def expert_action(
    game: Game[Any, Any], state: Any, expert: Expert, reward: RewardConfig, rng: np.random.Generator
) -> Any:
    """Return the action of the game's oracle or simple rule, or a legal one with the highest reward (`greedy`).

    Raises:
        UsageError: The game has no such expert.
    """
    if expert == "greedy":
        actions, rewards = all_actions(game), list(action_rewards(game, state, reward))
        highest = max(rewards)
        best = [action for action, value in zip(actions, rewards) if value == highest]
        legal = {*(game.legal_actions(state) or ())}
        best = [action for action in best if action in legal] or best  # illegal ones may have the same reward
        return best[int(rng.integers(len(best)))]
    action = game.rule_action(state) if expert == "rule" else game.best_action(state)
    if action is None:
        raise UsageError(f"the {expert} of {game.name} has no answer to learn from in this state")
    return action
