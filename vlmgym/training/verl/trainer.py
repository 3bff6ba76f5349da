"""verl's trainer, which also checks that the model sees its images."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import transfer_queue as tq
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.utils import tensordict_utils as tu
from verl.workers.utils.padding import response_from_nested

from vlmgym.training.algorithm import TrainingError
from vlmgym.training.signal import MAX_RESPONSES, SIGHT_INTERVAL, sight_metrics

FIELDS = ("input_ids", "position_ids", "loss_mask", "response_mask", "multi_modal_inputs")


class SightCheck:
    """A mixin for verl's trainers: in the first step and every twentieth, checks that the actor sees its images.

    Some responses go through the actor twice more: with their images, and with inverted ones. The metric
    `sight/logprob_gap` is the mean change of a response's log-probability in nats.
    """

    def step(self: Any, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """Train one step, and check; raise `TrainingError` if the model does not see its images."""
        batch = super().step(metrics, timing_raw)  # type: ignore[misc]
        if (self.global_steps - 1) % SIGHT_INTERVAL == 0:
            metrics.update(self.check_sight(batch))
        return batch

    def check_sight(self: Any, batch: Any) -> dict[str, float]:
        """Return the metric of a check on a batch of this step; none if its prompts have no images.

        Raises:
            TrainingError: The actor gets no images, or no log-probability depends on them.
        """
        keys = [key for key, tag in zip(batch.keys, batch.tags) if not tag.get("is_padding")]
        ranks = max(self.actor_rollout_wg._dispatch_info["actor"]) + 1  # as verl counts them
        keys = [*islice(cycle(keys), -(-MAX_RESPONSES // ranks) * ranks)]
        true = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(FIELDS))
        images = tu.get(true, "multi_modal_inputs")
        token = getattr(self.processor, "image_token_id", -1)
        shown = [bool((tokens == token).any()) for tokens in true["input_ids"].unbind()]
        if any(expected and "pixel_values" not in inputs for expected, inputs in zip(shown, images)):
            raise TrainingError("the model does not see its images: verl passes no pixel_values to it")
        if not any(shown):
            return {}
        inverted, mask = true.copy(), true["response_mask"]
        negatives = [
            {name: -value if name == "pixel_values" else value for name, value in inputs.items()} for inputs in images
        ]
        tu.assign_non_tensor_stack(inverted, "multi_modal_inputs", negatives)
        changes = (self._logprobs(true) - self._logprobs(inverted)).abs() * mask.values()
        return sight_metrics([float(change.sum()) for change in changes.split(mask.offsets().diff().tolist())])

    def _logprobs(self: Any, rows: Any) -> Any:
        """Return the log-probabilities of the tokens of all responses, one after another."""
        tu.assign_non_tensor(
            rows,
            calculate_entropy=False,
            compute_loss=False,
            temperature=self.config.actor_rollout_ref.rollout.temperature,
            use_dynamic_bsz=False,  # the same micro-batches for both images
            micro_batch_size_per_gpu=1,
        )
        logprobs = self.actor_rollout_wg.compute_log_prob(rows)["log_probs"]
        return response_from_nested(logprobs, rows["response_mask"]).values()


class TaskRunner(TaskRunnerV1.__ray_actor_class__):
    """The process in which verl's trainer runs."""

    def run(self, config: Any) -> None:
        """Train with verl's trainer of the configured mode."""
        for mode, trainer in TRAINER_REGISTRY.items():
            TRAINER_REGISTRY[mode] = type(trainer.__name__, (SightCheck, trainer), {})
        super().run(config)
