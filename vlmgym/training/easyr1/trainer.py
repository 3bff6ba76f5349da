"""EasyR1's trainer on live games, for single responses or whole episodes, with its patches, log and Ray cluster."""

from __future__ import annotations

import json
import os
import shutil
import time
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray
import verl.single_controller.ray.base as ray_base
import verl.trainer.ray_trainer as ray_trainer
from huggingface_hub import snapshot_download
from transformers import GenerationConfig
from verl.protocol import DataProto, pad_dataproto_to_divisor, unpad_dataproto
from verl.single_controller.ray import RayWorkerGroup
from verl.trainer.metrics import compute_data_metrics
from verl.trainer.ray_trainer import RayPPOTrainer, ResourcePoolManager, Role, compute_advantage
from verl.utils.checkpoint import CHECKPOINT_TRACKER
from verl.utils.logger.logger import LOGGERS, Logger

from vlmgym.curriculum import Curriculum
from vlmgym.errors import UsageError
from vlmgym.pages.training import EASYR1_PANELS, read_curve
from vlmgym.policies.checkpoint import error_text
from vlmgym.runs.files import replace_file, write_file, writing
from vlmgym.runs.record import PolicyRecord
from vlmgym.training.algorithm import TrainingError
from vlmgym.training.curves import CurvePlot
from vlmgym.training.easyr1.batch import (
    MISMATCH,
    PromptEncoder,
    compute_advantages,
    critic_batch,
    decode_replies,
    load_processors,
    mismatch_metrics,
    pad_and_shuffle,
    real_rows,
    response_batch,
    response_ids,
    responses_within,
    rows_multiple,
    turn_batch,
    without_failed,
)
from vlmgym.training.easyr1.config import GROUPED, RunConfig, check_cpus, trained_record
from vlmgym.training.easyr1.episodes import (
    EnginePool,
    EpisodeId,
    EpisodeResult,
    PromptStream,
    Request,
    RolloutWorkerPool,
    StepResult,
)
from vlmgym.training.easyr1.settings import Section
from vlmgym.training.records import (
    begin_rollout_records,
    last_rewards,
    set_aside,
    validation_summary,
    write_result,
    write_rollout_records,
)
from vlmgym.training.signal import (
    SIGHT_INTERVAL,
    describe_signal,
    group_metrics,
    image_swaps,
    response_metrics,
    sight_metrics,
)
from vlmgym.training.states import advance


class VlmgymTrainer(RayPPOTrainer):
    """EasyR1's `RayPPOTrainer` with rollouts and validation on live games.

    Batches already contain rewards (`token_level_scores`), so EasyR1 calls no reward function.
    """

    train_dataloader: PromptStream

    def __init__(
        self, *, section: Section, curriculum: Curriculum, workers: RolloutWorkerPool, **arguments: Any
    ) -> None:
        """Create the trainer; see `RayPPOTrainer` for further arguments."""
        validates = section.validation.episodes > 0
        super().__init__(**arguments, reward_fn=None, val_reward_fn=workers if validates else None)
        self.section, self.curriculum, self.workers = section, curriculum, workers
        self.folder = Path(self.config.trainer.save_checkpoint_path)
        self.rollouts = self.folder / "rollouts"
        self.bootstrap_requests: list[tuple[EpisodeId, Request]] = []
        self.sight: dict[str, float] = {}
        """Metrics of `check_sight` in this step."""
        self.mismatch: dict[str, float] = {}
        """Metrics of `check_mismatch` in this step."""
        self.games: dict[int, str] = {}
        """Ids of the games of this step, keyed by prompt_id."""
        self.end_tokens = read_end_tokens(self.config.worker.actor.model.model_path, self.tokenizer)

    def fit(self) -> None:
        """Train and write `result.json`; see `RayPPOTrainer.fit`."""
        start = time.perf_counter()
        if self.config.trainer.load_checkpoint_path is not None:
            self._rewind(Path(self.config.trainer.load_checkpoint_path))
        self._begin_records()
        try:
            super().fit()
        finally:
            del self.logger  # finishes the logs now, because at the end of the process, curves cannot be drawn
        if not self.config.trainer.val_only:
            self._write_result(time.perf_counter() - start)

    def _rewind(self, checkpoint: Path) -> None:
        """If resuming from an earlier checkpoint of this run, set aside everything written after it."""
        if checkpoint.absolute().parent != self.folder.absolute():
            return
        step = int(checkpoint.name.removeprefix("global_step_"))
        if (aside := set_aside(self.folder, step)) is None:
            return
        print(f"resuming after step {step}; later steps were moved to {aside}")
        tracker = self.folder / CHECKPOINT_TRACKER
        if tracker.exists():
            shutil.copy2(tracker, aside / tracker.name)
        last = {"last_global_step": step, "last_actor_path": str(checkpoint.absolute() / "actor")}
        last |= {"best_global_step": step, "best_val_reward_score": -1.0}  # -1 is EasyR1's initial value
        replace_file(tracker, json.dumps(last, indent=2).encode())
        if "tensorboard" in self.config.trainer.logger:
            from torch.utils.tensorboard import SummaryWriter

            SummaryWriter(os.environ["TENSORBOARD_DIR"], purge_step=step + 1).close()

    def _write_result(self, seconds: float) -> None:
        step = self.global_step
        write_result(
            self.folder,
            rewards=last_rewards(self.rollouts, step),
            steps=step,
            episodes=self.train_dataloader.next_prompt_id * self.config.worker.rollout.n,
            validation={
                "before": validation_summary(self.rollouts, 0),
                "after": validation_summary(self.rollouts, step),
            },
            seconds=seconds,
            paths={
                "checkpoint": self.folder / f"global_step_{step}",
                "metrics": self.folder / "curve.jsonl",
                "rollouts": self.rollouts,
            },
        )

    def _make_batch_data(self, metrics: dict[str, Any]) -> DataProto:
        """Play the episodes of a step and return their turns as a batch; add to `metrics`."""
        stream, group_size = self.train_dataloader, self.config.worker.rollout.n
        smallest_group = 2 if self.config.algorithm.adv_estimator in GROUPED else 1  # groups are compared
        prompt_ids: range = next(self.data_iterator)
        turns: list[DataProto] = []
        picks = stream.picks(prompt_ids)
        self.games = {prompt_id: pick.game.id for prompt_id, pick in picks.items()}
        requests = self.workers.start(picks, group_size)
        for prompts, generated, played in self._play(requests, group_size, {}):
            if any(result.turn is not None for result in played):
                turns.append(turn_batch(prompts, group_size, generated, played))
        if self.use_critic and self.section.play.max_turns > 1:  # single responses are not truncated episodes
            self.bootstrap_requests = self.workers.bootstrap_requests()
        episodes = self.workers.finish(group_size)
        failed = {(episode.prompt_id, episode.sample_idx) for episode in episodes if episode.failed}
        self._write(f"step_{self.global_step:06d}", episodes)
        metrics["episode/errors"] = len(prompt_ids) * group_size - len(episodes) + len(failed)
        batch = without_failed(DataProto.concat(turns), failed, smallest_group) if turns else []
        if not len(batch):
            raise TrainingError(f"all episodes of step {self.global_step} ended as errors; see {self.rollouts}")
        episodes = [episode for episode in episodes if not episode.failed]
        success = ((episode.prompt_id, episode.pick, episode.success) for episode in episodes)
        stream.progress = advance(self.curriculum, stream.progress, success)
        records = [episode.record.turns for episode in episodes]
        metrics.update(prefixed("reward/", response_metrics([*chain.from_iterable(records)])))
        metrics.update(episode_metrics("episode", episodes))
        metrics.update(prefixed(SIGNAL, group_metrics([episode.prompt_id for episode in episodes], records)))
        metrics["episode/rows"] = len(batch)
        for entry in stream.progress.entries:
            metrics[f"curriculum/{entry.game}"] = entry.stage + 1
        gpus = self.actor_rollout_ref_wg.world_size
        batch = pad_and_shuffle(batch, rows_multiple(self.config.worker, gpus, self.use_critic), prompt_ids.start)
        batch.meta_info = self._image_limits()
        return batch

    def bootstrap_values(self) -> dict[EpisodeId, float]:
        """Estimate the bootstrap values of this step's truncated episodes.

        Called while advantages are computed, when vLLM sleeps and the GPUs are free for the critic.
        """
        if not self.bootstrap_requests:
            return {}
        batch = critic_batch([request for _, request in self.bootstrap_requests], self._image_limits())
        multiple = self.config.worker.critic.micro_batch_size_per_device_for_experience * self.critic_wg.world_size
        padded, added = pad_dataproto_to_divisor(batch, multiple)
        values = unpad_dataproto(self.critic_wg.compute_values(padded), added).batch["values"][:, 0].tolist()
        return {episode_id: value for (episode_id, _), value in zip(self.bootstrap_requests, values)}

    def check_sight(self, batch: DataProto) -> None:
        """Check every few steps that log-probabilities depend on the images; see signal.py.

        Called while advantages are computed, as `bootstrap_values` is, and so after the log-probabilities of the step.
        """
        self.sight = {}
        if (self.global_step - 1) % SIGHT_INTERVAL:
            return
        rows = real_rows(batch)
        data = batch.non_tensor_batch["multi_modal_data"][rows]
        images = [[*map(np.asarray, shown.get("images", ()))] for shown in data]
        shapes = [tuple(image.shape for image in shown) for shown in images]
        swaps = image_swaps(shapes, [tuple(zlib.crc32(image.tobytes()) for image in shown) for shown in images])
        if not swaps:
            return
        original, swapped = batch[rows[[*swaps]]], batch[rows[[*swaps]]]
        swapped.non_tensor_batch["multi_modal_data"] = data[[*swaps.values()]]
        swapped.non_tensor_batch["uid"] = "swapped " + original.non_tensor_batch["uid"]
        both = DataProto.concat([original, swapped])
        both.meta_info = self._image_limits()
        multiple = self.config.worker.actor.micro_batch_size_per_device_for_experience
        padded, added = pad_dataproto_to_divisor(both, multiple * self.actor_rollout_ref_wg.world_size)
        logprobs = unpad_dataproto(self.actor_rollout_ref_wg.compute_log_probs(padded), added).batch["old_log_probs"]
        changes = (logprobs[: len(swaps)] - logprobs[len(swaps) :]).abs() * original.batch["response_mask"]
        self.sight = sight_metrics(changes.sum(-1).tolist())

    def check_mismatch(self, batch: DataProto) -> None:
        """Compare the log-probabilities of vLLM and the trainer, and warn the first time they differ much."""
        last_kl, data = self.mismatch.get(f"{MISMATCH}kl", 0.0), batch[real_rows(batch)]
        self.mismatch = mismatch_metrics(data)
        games = np.array([self.games[prompt_id] for prompt_id in data.non_tensor_batch["prompt_id"]])
        for name in sorted({*games}) if len({*games}) > 1 else ():
            self.mismatch |= mismatch_metrics(data[np.flatnonzero(games == name)], f"{MISMATCH}{name}/")
        if (limit := self.section.response_ratio_limit) is not None:
            self.mismatch[f"{MISMATCH}masked"] = float((~responses_within(data, limit)).float().mean())
        if self.mismatch[f"{MISMATCH}kl"] > MISMATCHED >= last_kl:
            print(f"warning: vLLM samples from another distribution than the one that is trained: {self.mismatch}")

    def _validate(self) -> dict[str, Any]:
        """Play whole episodes on validation seeds and return their metrics."""
        validation = self.section.validation
        requests = self.workers.start_validation(range(validation.episodes * len(self.curriculum.entries)))
        self.actor_rollout_ref_wg.prepare_rollout_engine()
        for _ in self._play(requests, 1, {"temperature": validation.temperature}):
            pass
        self.actor_rollout_ref_wg.release_rollout_engine()
        episodes = self.workers.finish(None)
        self._write(f"validation_{self.global_step:06d}", episodes)
        if not (episodes := [episode for episode in episodes if not episode.failed]):
            raise TrainingError(f"all validation episodes ended as errors; see {self.rollouts}")
        parts = response_metrics([turn for episode in episodes for turn in episode.record.turns])
        metrics = {**prefixed("val/", parts), **episode_metrics("val", episodes)}
        self.val_reward_score = metrics["val/score"]
        return metrics

    def _save_checkpoint(self) -> None:
        """Write the training record, then the checkpoint, so that no complete checkpoint lacks the record."""
        folder = self.folder / f"global_step_{self.global_step}"
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        progress, template = self.train_dataloader.progress, self.tokenizer.chat_template
        trained_record(self.config, self.section, self.curriculum, progress, self.global_step, template).write(folder)
        super()._save_checkpoint()

    def _play(
        self, requests: list[Request], group_size: int, sampling: dict[str, Any]
    ) -> Iterator[tuple[list[Request], DataProto, list[StepResult]]]:
        """Play all episodes to the end; yield requests, responses and results of turns as they are played.

        `sampling` overrides training's sampling parameters.
        """
        rollout = self.config.worker.rollout
        engines = EnginePool(self.actor_rollout_ref_wg, rollout.tensor_parallel_size)
        while requests or engines:
            complete = engines.generate(requests, group_size, sampling)
            requests = []
            if not complete:
                continue
            answered = [request for request, _ in complete]
            length, pad = rollout.response_length, self.tokenizer.pad_token_id
            generated = response_batch(complete, length, pad, self.end_tokens)
            replies = decode_replies(generated, self.tokenizer, self.end_tokens)
            results = self.workers.play(list(zip(response_ids(answered, group_size), replies)))
            yield answered, generated, results
            requests = [result.next for result in results if result.next is not None]

    def _image_limits(self) -> dict[str, Any]:
        data = self.config.data
        return {"min_pixels": data.min_pixels, "max_pixels": data.max_pixels, "video_fps": data.video_fps}

    def _write(self, name: str, episodes: Sequence[EpisodeResult]) -> None:
        write_rollout_records(self.rollouts, name, (episode.record for episode in episodes))

    def _begin_records(self) -> None:
        """Write the metadata that `vlmgym report` needs."""
        section = self.section
        policy = PolicyRecord(name="easyr1", options={"model": self.config.worker.actor.model.model_path})
        episodes = self.training_steps * self.train_dataloader.batch_size * self.config.worker.rollout.n
        begin_rollout_records(self.rollouts, self.curriculum, policy, section.play, section.reward, episodes)


def prefixed(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics with a prefix before each name."""
    return {f"{prefix}{name}": value for name, value in metrics.items()}


def episode_metrics(prefix: str, episodes: Sequence[EpisodeResult]) -> dict[str, float]:
    """Compute mean score, mean number of turns and fraction of terminated episodes, overall and per game."""
    records = [episode.record for episode in episodes]
    games = sorted({record.game.id for record in records})
    metrics = {}
    for name in ["", *games] if len(games) > 1 else [""]:
        chosen = [record for record in records if name in ("", record.game.id)]
        start = f"{prefix}/{name}/" if name else f"{prefix}/"
        metrics[f"{start}score"] = float(np.mean([record.score or 0.0 for record in chosen]))
        metrics[f"{start}turns"] = float(np.mean([len(record.turns) for record in chosen]))
        metrics[f"{start}ended"] = float(np.mean([record.terminated for record in chosen]))
    return metrics


def read_end_tokens(model: str, tokenizer: Any) -> list[int]:
    """Return the end-of-response tokens of a model."""
    try:
        end = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        end = None
    end = tokenizer.eos_token_id if end is None else end
    return list(end) if isinstance(end, (list, tuple)) else [end]


MISMATCHED = 0.1
"""KL divergence of the trainer from vLLM, in nats per token, that rounding does not explain."""
WAIT = 300.0
"""Timeout for the start of the first worker, in seconds."""


def install_patches(trainer: VlmgymTrainer) -> None:
    """Patch EasyR1 in this process for a trainer. Worker patches are in worker.py.

    - trainer/ray_trainer.py: `compute_advantage` does not support episodes or padding rows, and its GAE
      (trainer/core_algos.py) evaluates a tensor as a bool, which fails for more than one row.
    - trainer/metrics.py: `compute_data_metrics` counts padding rows. Here, it also returns the metrics of
      `check_sight` and `check_mismatch`, which run before advantages are computed.
    - single_controller/ray/base.py: the timeout of 120 s is too short for the first worker on slow disks; 5 minutes
      here.
    - utils/logger/logger.py: the `file` logger truncates its file on resume; the `vlmgym` logger does not.
    """
    proxy = weakref.proxy(trainer)  # loggers finish when the trainer is freed (utils/logger/logger.py)

    def advantages(data: DataProto, *args: Any, **options: Any) -> DataProto:
        proxy.check_sight(data)
        proxy.check_mismatch(data)
        names = ("step_weight", "importance_cap", "response_ratio_limit")
        options |= {name: getattr(proxy.section, name) for name in names}
        options |= {"stock": compute_advantage}
        return compute_advantages(data, *args, **options, bootstrap_values=proxy.bootstrap_values)

    def metrics(batch: DataProto, use_critic: bool = False) -> dict[str, float]:
        checked: dict[str, float] = proxy.sight | proxy.mismatch
        return compute_metrics(batch, use_critic) | checked

    ray_trainer.compute_advantage, ray_trainer.compute_data_metrics = advantages, metrics
    ray_base.time = SimpleNamespace(sleep=lambda _: time.sleep(WAIT / 120))
    LOGGERS["vlmgym"] = RunLog


def compute_metrics(batch: DataProto, use_critic: bool = False) -> dict[str, float]:
    """Compute the metrics of EasyR1 without padding rows."""
    metrics: dict[str, float] = compute_data_metrics(batch=batch[real_rows(batch)], use_critic=use_critic)
    return metrics


SIGNAL = "signal/"
"""Prefix of the metrics of `group_metrics`."""


class RunLog(Logger):
    """Writes `curve.jsonl` and `curve.png` next to the checkpoints.

    When a run is resumed, logging a step drops all metrics of later steps.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        folder, self.group_size = Path(config["trainer"]["save_checkpoint_path"]), config["worker"]["rollout"]["n"]
        self.path, self.image = folder / "curve.jsonl", folder / "curve.png"
        self.rows = read_curve(self.path)
        self._plot = CurvePlot(lambda png: replace_file(self.image, png))

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Log metrics of a step; several calls for the same step are merged."""
        same = next((row for row in self.rows if row["step"] == step), {})
        row = {"step": step, **same, **{name: float(value) for name, value in data.items()}}
        self.rows = [*(row for row in self.rows if row["step"] < step), row]
        write_file(self.path, (json.dumps(row).encode() + b"\n" for row in self.rows))
        self._plot.update(self._plotted())

    def finish(self) -> None:
        """Draw the final curves, and print how much signal the last steps had."""
        self._plot.update(self._plotted(), final=True)
        rows = [{name.removeprefix(SIGNAL): value for name, value in row.items()} for row in self.rows]
        for line in describe_signal(rows, self.group_size):
            print(line, flush=True)

    def _plotted(self) -> list[dict[str, float]]:
        return [
            {
                "step": row["step"],
                **{EASYR1_PANELS[name]: value for name, value in row.items() if name in EASYR1_PANELS},
            }
            for row in self.rows
            if any(name in row for name in EASYR1_PANELS)
        ]


POOL = "gpus"
VARIABLES = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
"""Environment variables set by EasyR1's entry point (trainer/main.py)."""


def start_ray(**options: Any) -> None:
    """Connect to the Ray cluster at RAY_ADDRESS, or start a local one.

    Raises:
        UsageError: The cluster at RAY_ADDRESS does not respond.
    """
    runtime = {"env_vars": VARIABLES, **options.pop("runtime_env", {})}
    address = os.environ.get("RAY_ADDRESS")
    try:
        ray.init(runtime_env=runtime, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        if not address:
            raise
        raise UsageError(f"cannot connect to the Ray cluster at RAY_ADDRESS={address}: {error_text(error)}") from None


def fetch_model(name: str) -> None:
    """Download a model before the workers start; raise `UsageError` if the Hub does not provide it.

    Otherwise, one worker would download it while the others wait, and NCCL would abort their wait after ten minutes
    (fsdp_workers.py).
    """
    if Path(name).is_dir():
        return
    try:
        snapshot_download(name)
    except (OSError, ValueError) as error:  # ValueError: not a valid repository name
        raise UsageError(f"cannot download the model {name} from the Hub: {error_text(error)}") from None


def build_trainer(config: RunConfig, worker: type[Any]) -> VlmgymTrainer:
    """Build the trainer for a configuration; raise `UsageError` for an invalid setting or model, or too few CPUs."""
    section = Section.read(config.vlmgym)
    for problem in check_cpus(config.trainer, section, ray.cluster_resources().get("CPU", 0)):
        raise UsageError(problem)
    curriculum = section.make_curriculum()
    model, seed = config.worker.actor.model, config.data.seed
    tokenizer, processor = load_processors(model, config.data)
    for part in config.trained.values():
        fetch_model(part.model.model_path)
    os.environ.setdefault("TENSORBOARD_DIR", str(Path(str(config.trainer.save_checkpoint_path)) / "tensorboard"))
    remote = ray.remote(worker)
    pool = ResourcePoolManager(
        {POOL: [config.trainer.n_gpus_per_node] * config.trainer.nnodes},
        {Role.ActorRolloutRef: POOL, Role.Critic: POOL},
    )
    trainer = VlmgymTrainer(
        section=section,
        curriculum=curriculum,
        workers=RolloutWorkerPool(
            section, PromptEncoder(tokenizer, processor, config.data), seed, str(model.model_path)
        ),
        config=config,
        tokenizer=tokenizer,
        processor=processor,
        train_dataloader=PromptStream(curriculum, seed, config.data.rollout_batch_size // section.play.max_turns),
        val_dataloader=None,
        role_worker_mapping={Role.ActorRolloutRef: remote, Role.Critic: remote},
        resource_pool_manager=pool,
        ray_worker_group_cls=RayWorkerGroup,
    )
    install_patches(trainer)
    return trainer
