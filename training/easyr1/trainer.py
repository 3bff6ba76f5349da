"""The EasyR1 trainer with live games: single responses or whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from verl.protocol import DataProto, pad_dataproto_to_divisor, unpad_dataproto
from verl.trainer.ray_trainer import RayPPOTrainer

from training.core.records import begin_rollout_records, write_rollout_records
from training.easyr1.batch import fill, judged_rows, places_of, prompts_of, replies_of, rows_multiple, turn_rows
from training.easyr1.prompt_stream import PromptStream
from training.easyr1.rollout_worker import EpisodeResult, Place, Request, StepResult
from training.easyr1.section import Section
from training.easyr1.worker_pool import WorkerPool
from vlmgym.curriculum import Curriculum
from vlmgym.records.episode import PolicyRecord
from vlmgym.sandbox.core.reward import Outcome


class VlmgymTrainer(RayPPOTrainer):
    """`RayPPOTrainer` with rollouts and validation on live games.

    Batches already contain rewards (`token_level_scores`), so the reward function of EasyR1 is not called.
    """

    train_dataloader: PromptStream

    def __init__(self, *, section: Section, curriculum: Curriculum, players: WorkerPool, **arguments: Any) -> None:
        """Create the trainer.

        Args:
            section: Section `vlmgym` of the configuration.
            curriculum: Curriculum of the section.
            players: Rollout workers.
            arguments: Arguments of `RayPPOTrainer`.
        """
        validates = section.validation.episodes > 0
        super().__init__(**arguments, reward_fn=None, val_reward_fn=players if validates else None)
        self.section, self.curriculum, self.players = section, curriculum, players
        self.rollouts = Path(self.config.trainer.save_checkpoint_path) / "rollouts"
        self.beyond: list[tuple[Place, Request]] = []
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
        played: list[StepResult] = []
        for asked, generated, answers in self._play(self.players.start(rows, copies, stream.progress), copies, {}):
            turns.append(turn_rows(asked, copies, generated, answers))
            played += answers
        # single responses are not truncated episodes
        self.beyond = self.players.bootstrap_requests() if self.use_critic and self.section.play.max_turns > 1 else []
        finished = self.players.finish(copies)
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

    def bootstrap_values(self) -> dict[Place, float]:
        """Estimate bootstrap values of the truncated episodes of this step.

        Called while advantages are computed, when vLLM sleeps and the GPUs are free for the critic.
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
        played: list[StepResult] = []
        for _, _, answers in self._play(self.players.start_validation(rows), 1, sampling):
            played += answers
        self.actor_rollout_ref_wg.release_rollout_engine()
        finished = self.players.finish(None)
        self._write(f"validation_{self.global_step:06d}", finished)
        self.val_reward_score = float(np.mean([episode.score for episode in finished]))
        return {**response_metrics("val", played), **episode_metrics("val", finished)}

    def _play(
        self, waiting: list[Request], copies: int, sampling: dict[str, Any]
    ) -> Iterator[tuple[list[Request], DataProto, list[StepResult]]]:
        """Play all episodes to the end, one turn at a time.

        Args:
            waiting: First requests.
            copies: Number of responses to prompts shared by a group.
            sampling: Sampling parameters that differ from training.

        Yields:
            Requests, responses and results of each turn.
        """
        while waiting:
            times = copies if waiting[0].copy is None else 1
            generated = self._generate(waiting, times, sampling)
            replies = replies_of(generated, self.tokenizer, self.end)
            answers = self.players.play(list(zip(places_of(waiting, copies), replies)))
            yield waiting, generated, answers
            waiting = [answer.next for answer in answers if answer.next is not None]

    def _generate(self, asked: Sequence[Request], times: int, sampling: dict[str, Any]) -> DataProto:
        prompts = prompts_of(asked, {**self._image_limits(), "n": times, **sampling})
        padded, added = pad_dataproto_to_divisor(prompts, self.actor_rollout_ref_wg.world_size)
        return unpad_dataproto(self.actor_rollout_ref_wg.generate_sequences(padded), added * times)

    def _image_limits(self) -> dict[str, Any]:
        data = self.config.data
        return {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels, "video_fps": data.video_fps}

    def _go_on_with_the_curriculum(self, finished: Sequence[EpisodeResult]) -> None:
        """Advance the curriculum, counting each row as one episode with mean success."""
        stream = self.train_dataloader
        rows: dict[int, list[EpisodeResult]] = {}
        for episode in finished:
            rows.setdefault(episode.row, []).append(episode)
        for episodes in rows.values():
            pick = self.curriculum.at(episodes[0].entry, episodes[0].stage)
            success = float(np.mean([episode.success for episode in episodes]))
            stream.progress = self.curriculum.after(stream.progress, pick, success)

    def _write(self, name: str, finished: Sequence[EpisodeResult]) -> None:
        write_rollout_records(self.rollouts, name, (episode.record for episode in finished))

    def _describe_rollouts(self) -> None:
        """Write the metadata that `vlmgym report` needs."""
        section, copies = self.section, self.config.worker.rollout.n
        policy = PolicyRecord(name="easyr1", options={"model": self.config.worker.actor.model.model_path})
        episodes = self.training_steps * self.train_dataloader.batch * copies
        begin_rollout_records(self.rollouts, self.curriculum, policy, section.play, section.reward, episodes)


def response_metrics(prefix: str, played: Sequence[StepResult]) -> dict[str, float]:
    """Compute means over responses: reward parts and the fraction of each outcome."""
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


def episode_metrics(prefix: str, finished: Sequence[EpisodeResult]) -> dict[str, float]:
    """Compute means over episodes, overall and per game: score, turns and the fraction of ended games."""
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
    """Return the end-of-response tokens for the workers."""
    from transformers import GenerationConfig

    try:
        end = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        end = None
    end = tokenizer.eos_token_id if end is None else end
    return list(end) if isinstance(end, (list, tuple)) else [end]
