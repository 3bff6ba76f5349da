"""EasyR1's trainer with live games: single answers to positions, or whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from verl.protocol import DataProto, pad_dataproto_to_divisor, unpad_dataproto
from verl.trainer.ray_trainer import RayPPOTrainer

from training.core.rollouts import begin_rollout_records, write_rollout_records
from training.easyr1.batch import fill, judged_rows, places_of, prompts_of, replies_of, rows_multiple, turn_rows
from training.easyr1.players import Players
from training.easyr1.rows import RowStream
from training.easyr1.section import Section
from training.easyr1.table import Asked, Finished, Place, Played
from vlmgym.curriculum import Curriculum
from vlmgym.records.episode import PolicyRecord
from vlmgym.sandbox.core.reward import Outcome


class VlmgymTrainer(RayPPOTrainer):
    """`RayPPOTrainer.fit` with batches and validation of vlmgym.

    A batch has its rewards already (`token_level_scores`), so that EasyR1's reward function is not called.
    """

    train_dataloader: RowStream

    def __init__(self, *, section: Section, curriculum: Curriculum, players: Players, **arguments: Any) -> None:
        """Make the trainer.

        Args:
            section: What is played.
            curriculum: Its games.
            players: Who play them.
            arguments: Of `RayPPOTrainer`.
        """
        validates = section.validation.episodes > 0
        super().__init__(**arguments, reward_fn=None, val_reward_fn=players if validates else None)
        self.section, self.curriculum, self.players = section, curriculum, players
        self.rollouts = Path(self.config.trainer.save_checkpoint_path) / "rollouts"
        self.beyond: list[tuple[Place, Asked]] = []
        self.end: list[int] = end_tokens(self.config.worker.actor.model.model_path, self.tokenizer)

    def fit(self) -> None:
        """Train; see `RayPPOTrainer.fit`."""
        self._describe_rollouts()
        super().fit()

    def _make_batch_data(self, metrics: dict[str, Any]) -> DataProto:
        """Play the episodes of a step."""
        stream, copies = self.train_dataloader, self.config.worker.rollout.n
        rows: range = next(self.data_iterator)
        turns: list[DataProto] = []
        played: list[Played] = []
        for asked, generated, answers in self._play(self.players.sit(rows, copies, stream.progress), copies, {}):
            turns.append(turn_rows(asked, copies, generated, answers))
            played += answers
        # a single response is no episode that is cut off: it is all that is asked
        self.beyond = self.players.beyond() if self.use_critic and self.section.play.max_turns > 1 else []
        finished = self.players.leave(copies)
        self._go_on_with_the_curriculum(finished)
        self._write(f"step_{self.global_step:06d}", finished)
        batch = DataProto.concat(turns)
        metrics.update(response_metrics("reward", played))
        metrics.update(episode_metrics("episode", finished))
        metrics["episode/rows"] = len(batch)
        for entry in stream.progress.entries:
            metrics[f"curriculum/{entry.game}"] = entry.stage + 1
        gpus = self.actor_rollout_ref_wg.world_size
        batch = fill(batch, rows_multiple(self.config.worker, gpus, self.use_critic), rows.start)
        batch.meta_info = self._image_limits()
        return batch

    def expected_beyond(self) -> dict[Place, float]:
        """What the critic expects of the positions at which the episodes of this step were cut off.

        Asked when advantages are computed, while vLLM sleeps and leaves the GPUs to the critic.
        """
        if not self.beyond:
            return {}
        rows = judged_rows([asked for _, asked in self.beyond], self._image_limits())
        passed = self.config.worker.critic.micro_batch_size_per_device_for_experience * self.critic_wg.world_size
        padded, added = pad_dataproto_to_divisor(rows, passed)
        values = unpad_dataproto(self.critic_wg.compute_values(padded), added).batch["values"]
        return {place: value for (place, _), value in zip(self.beyond, values[:, 0].tolist())}

    def _validate(self) -> dict[str, Any]:
        """Play whole episodes on held-out seeds."""
        wanted = self.section.validation
        rows = range(wanted.episodes * len(self.curriculum.entries))
        sampling = {"temperature": wanted.temperature}
        self.actor_rollout_ref_wg.prepare_rollout_engine()
        played: list[Played] = []
        for _, _, answers in self._play(self.players.sit_held_out(rows), 1, sampling):
            played += answers
        self.actor_rollout_ref_wg.release_rollout_engine()
        finished = self.players.leave(None)
        self._write(f"validation_{self.global_step:06d}", finished)
        self.val_reward_score = float(np.mean([episode.score for episode in finished]))
        return {**response_metrics("val", played), **episode_metrics("val", finished)}

    def _play(
        self, waiting: list[Asked], copies: int, sampling: dict[str, Any]
    ) -> Iterator[tuple[list[Asked], DataProto, list[Played]]]:
        """Play episodes to their end, a turn of all of them at a time.

        Args:
            waiting: First prompts.
            copies: How often a prompt that the episodes of a row share is answered.
            sampling: Sampling parameters that are other than in training.

        Yields:
            Prompts, responses, and what became of them.
        """
        while waiting:
            times = copies if waiting[0].copy is None else 1
            generated = self._generate(waiting, times, sampling)
            replies = replies_of(generated, self.tokenizer, self.end)
            answers = self.players.play(list(zip(places_of(waiting, copies), replies)))
            yield waiting, generated, answers
            waiting = [answer.next for answer in answers if answer.next is not None]

    def _generate(self, asked: Sequence[Asked], times: int, sampling: dict[str, Any]) -> DataProto:
        prompts = prompts_of(asked, {**self._image_limits(), "n": times, **sampling})
        padded, added = pad_dataproto_to_divisor(prompts, self.actor_rollout_ref_wg.world_size)
        return unpad_dataproto(self.actor_rollout_ref_wg.generate_sequences(padded), added * times)

    def _image_limits(self) -> dict[str, Any]:
        data = self.config.data
        return {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels, "video_fps": data.video_fps}

    def _go_on_with_the_curriculum(self, finished: Sequence[Finished]) -> None:
        """Count each row as one episode, whose success is the mean of its copies."""
        stream = self.train_dataloader
        rows: dict[int, list[Finished]] = {}
        for episode in finished:
            rows.setdefault(episode.row, []).append(episode)
        for episodes in rows.values():
            pick = self.curriculum.at(episodes[0].entry, episodes[0].stage)
            success = float(np.mean([episode.success for episode in episodes]))
            stream.progress = self.curriculum.after(stream.progress, pick, success)

    def _write(self, name: str, finished: Sequence[Finished]) -> None:
        write_rollout_records(self.rollouts, name, (episode.record for episode in finished))

    def _describe_rollouts(self) -> None:
        """Say what the rollouts are of, so that `vlmgym report` can show them."""
        section, copies = self.section, self.config.worker.rollout.n
        policy = PolicyRecord(name="easyr1", options={"model": self.config.worker.actor.model.model_path})
        episodes = self.training_steps * self.train_dataloader.batch * copies
        begin_rollout_records(self.rollouts, self.curriculum, policy, section.play, section.reward, episodes)


def response_metrics(prefix: str, played: Sequence[Played]) -> dict[str, float]:
    """Means over responses: every part of the reward, and the share of each outcome."""
    rewards = [one.turn.reward for one in played]
    found: dict[str, Callable[[Any], float | None]] = {
        "total": lambda reward: reward.total,
        "game": lambda reward: reward.game,
        "format": lambda reward: reward.format,
        "perception": lambda reward: reward.perception,
        "perception_exact": lambda reward: reward.perception_exact,
    }
    metrics = {}
    for name, part in found.items():
        values = [value for reward in rewards if (value := part(reward)) is not None]
        if values:
            metrics[f"{prefix}/{name}"] = float(np.mean(values))
    for outcome in Outcome:
        metrics[f"{prefix}/{outcome.value}"] = float(np.mean([one.turn.outcome == outcome for one in played]))
    return metrics


def episode_metrics(prefix: str, finished: Sequence[Finished]) -> dict[str, float]:
    """Means over episodes, of all games and of each: score, turns, and the share that the game itself ended."""
    games = sorted({episode.game for episode in finished})
    metrics = {}
    for name in ["", *games] if len(games) > 1 else [""]:
        of_game = [episode for episode in finished if name in ("", episode.game)]
        start = f"{prefix}/{name}/" if name else f"{prefix}/"
        metrics[f"{start}score"] = float(np.mean([episode.score for episode in of_game]))
        metrics[f"{start}turns"] = float(np.mean([episode.turns for episode in of_game]))
        metrics[f"{start}ended"] = float(np.mean([episode.ended for episode in of_game]))
    return metrics


def end_tokens(model: str, tokenizer: Any) -> list[int]:
    """Tokens that end a response, as EasyR1's worker takes them."""
    from transformers import GenerationConfig

    try:
        end = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        end = None
    end = tokenizer.eos_token_id if end is None else end
    return list(end) if isinstance(end, (list, tuple)) else [end]
