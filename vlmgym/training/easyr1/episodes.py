"""Episodes of a run: the stream of prompts, and rollout workers that play on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vlmgym.curriculum import Curriculum, Pick, Progress
from vlmgym.errors import EpisodeError, UsageError, VlmgymError, WorkerError, first_line
from vlmgym.policies.base import Reply, identity
from vlmgym.rollout.settings import EpisodeSettings
from vlmgym.rollout.states import FIRST_VALIDATION_SEED
from vlmgym.rollout.turn import GameSetup, Observation
from vlmgym.runs.record import EpisodeRecord, PolicyRecord, TurnRecord
from vlmgym.training.easyr1.settings import Section
from vlmgym.training.states import START_ERRORS, EpisodeRollout, start_rollouts


class PromptStream:
    """Yields ranges of prompt ids and tracks the progress of the curriculum.

    The initial state of a prompt is a pure function of seed, prompt_id and curriculum progress. A checkpoint therefore
    only stores the seed, the next prompt_id and the progress, and a resumed run gets the same states as an
    uninterrupted one.
    """

    def __init__(self, curriculum: Curriculum, seed: int, batch_size: int) -> None:
        """Start at prompt 0, with `batch_size` prompts per step."""
        self.curriculum, self.seed, self.batch_size = curriculum, seed, batch_size
        self.next_prompt_id = 0
        self.progress: Progress = curriculum.begin()

    def __len__(self) -> int:
        """Return a dummy: EasyR1 uses the length only without trainer.max_steps, which the preflight checks require."""
        return 1

    def __iter__(self) -> Iterator[range]:
        """Yield the prompt ids of each step, endlessly."""
        while True:
            prompt_ids = range(self.next_prompt_id, self.next_prompt_id + self.batch_size)
            self.next_prompt_id = prompt_ids.stop
            yield prompt_ids

    def picks(self, prompt_ids: range) -> dict[int, Pick]:
        """Pick the game of each prompt of a step; return picks keyed by prompt_id."""
        return self.curriculum.picks(self.progress, self.seed, prompt_ids)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "seed": self.seed,
            "next_prompt_id": self.next_prompt_id,
            "progress": self.progress.model_dump_json(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint; raise `UsageError` if its seed or curriculum differs."""
        if state["seed"] != self.seed:
            raise UsageError(f"the checkpoint has data.seed={state['seed']}, but this run has data.seed={self.seed}")
        progress = Progress.model_validate_json(state["progress"])
        self.curriculum.check(progress)
        self.next_prompt_id, self.progress = state["next_prompt_id"], progress


EpisodeId = tuple[int, int]
"""Index of the initial state (prompt_id), and index of the episode within its group (sample_idx)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt that needs a response, encoded by `PromptEncoder`. If `sample_idx` is None, a whole group shares it."""

    prompt_id: int
    sample_idx: int | None
    features: dict[str, Any]

    @property
    def key(self) -> str:
        """The prompt as a string, different for each prompt of a turn."""
        return f"{self.prompt_id}" if self.sample_idx is None else f"{self.prompt_id} {self.sample_idx}"

    def episodes(self, group_size: int) -> list[EpisodeId]:
        """List the episodes that wait for a response to the prompt."""
        indices = range(group_size) if self.sample_idx is None else (self.sample_idx,)
        return [(self.prompt_id, sample_idx) for sample_idx in indices]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one turn, and the next request, which is None if the episode is over.

    `turn` is None if the episode ended with an error, which leaves nothing to learn from.
    """

    prompt_id: int
    sample_idx: int
    turn: TurnRecord | None
    next: Request | None


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """A finished episode, with its pick and its success as measured by the curriculum."""

    prompt_id: int
    sample_idx: int
    pick: Pick
    success: float
    record: EpisodeRecord

    @property
    def failed(self) -> bool:
        """True if the episode ended with an error, without a score."""
        return self.record.status == "error"


Sampled = tuple[list[int], list[float]]
"""A response: its tokens, and their log-probabilities."""
ENGINE_STEPS = 32
"""Steps that vLLM takes, one token of each response, before it returns the responses that are complete."""


class EnginePool:
    """vLLM's engines, which generate the responses of many episodes that do not wait for each other.

    All engines take a few steps; the episodes whose responses are then complete go on. A long response therefore delays
    no other episode.
    """

    def __init__(self, group: Any, tensor_parallel_size: int) -> None:
        """`group` is EasyR1's group of workers, of which `tensor_parallel_size` successive ones share an engine."""
        self._group, self._parallel = group, tensor_parallel_size
        self._waiting: list[dict[str, Request]] = [{} for _ in range(group.world_size // tensor_parallel_size)]

    def __bool__(self) -> bool:
        """True while responses are incomplete."""
        return any(self._waiting)

    def generate(
        self, requests: Sequence[Request], group_size: int, sampling: Mapping[str, Any]
    ) -> list[tuple[Request, list[Sampled]]]:
        """Add requests, take `ENGINE_STEPS`, and return the requests whose responses are complete, with these.

        Requests without `sample_idx` get `group_size` responses. `sampling` overrides sampling parameters.
        """
        shares: list[list[Any]] = [[] for _ in self._waiting]
        for request in requests:
            engine = min(range(len(shares)), key=lambda engine: len(self._waiting[engine]))
            self._waiting[engine][request.key] = request
            shares[engine].append((request.key, request.features, len(request.episodes(group_size))))
        calls = [(share, ENGINE_STEPS, sampling) for share in shares for _ in range(self._parallel)]
        outputs = self._group.generate(calls)[:: self._parallel]  # all workers of an engine return the same
        return [
            (waiting.pop(key), responses)
            for waiting, output in zip(self._waiting, outputs, strict=True)
            for key, responses in output
        ]


class RolloutWorker:
    """Plays a share of the episodes."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Create the games; `model` is the name of the model in records."""
        self.section, self.encoder, self.seed = section, encoder, seed
        self.curriculum = section.make_curriculum()
        self.policy = PolicyRecord(name="easyr1", options={"model": model})
        self.episodes: dict[EpisodeId, EpisodeRollout] = {}

    def start(self, picks: Sequence[tuple[int, Pick]], group_size: int) -> list[Request]:
        """Start a group of episodes for each prompt, given as (prompt_id, pick); return one request per group."""
        options, errors = (self.section.play, self.section.states, self.section.reward), list[str]()
        requests = self._start(start_rollouts(dict(picks), self.seed, group_size, *options, errors=errors))
        for error in dict.fromkeys(errors):
            print(f"left out a prompt that cannot start: {error}")
        return requests

    def start_validation(self, prompt_ids: Sequence[int]) -> list[Request]:
        """Start validation episodes and return their requests. Ids count from 0, through one game after another."""
        section, episodes = self.section, []
        for prompt_id in prompt_ids:
            entry, number = divmod(prompt_id, section.validation.episodes)
            stage = self.curriculum.entries[entry].stages[-1]
            settings = EpisodeSettings.from_parts(section.play, section.validation.max_turns, section.reward)
            pick, seed = Pick(entry, stage.game, stage.name), FIRST_VALIDATION_SEED + number
            try:
                episodes.append(EpisodeRollout(pick, prompt_id, 0, GameSetup(stage.game, settings, identity), seed))
            except START_ERRORS as error:
                print(f"left out a validation episode that cannot start: {error}")
        return self._start(episodes)

    def play(self, replies: Sequence[tuple[EpisodeId, Reply]]) -> list[StepResult]:
        """Play a reply in each episode."""
        return [self._play(episode_id, reply) for episode_id, reply in replies]

    def bootstrap_requests(self) -> list[tuple[EpisodeId, Request]]:
        """Return the requests that truncated episodes would have made next."""
        requests = []
        for episode_id, episode in self.episodes.items():
            if episode.truncated:
                try:
                    request = self._request(episode, episode.sample_idx, episode.observation_after_limit())
                    requests.append((episode_id, request))
                except EpisodeError as error:
                    episode.fail(error)
        return requests

    def finish(self, group_size: int | None) -> list[EpisodeResult]:
        """Finish all episodes and return their results.

        In validation, where `group_size` is None, records have the seeds of the episodes.
        """
        finished = []
        for episode_id, episode in self.episodes.items():
            seed = episode.episode.seed if group_size is None else None
            success = 0.0 if episode.failed else self.curriculum.success(episode.pick, episode.turns)
            record = episode.record(self.policy, group_size or 1, seed=seed)
            finished.append(EpisodeResult(*episode_id, episode.pick, success, record))
        self.episodes = {}
        return finished

    def _start(self, episodes: Iterable[EpisodeRollout]) -> list[Request]:
        requests: dict[int, Request] = {}
        for episode in episodes:
            self.episodes[episode.prompt_id, episode.sample_idx] = episode
            if episode.prompt_id not in requests:
                try:
                    requests[episode.prompt_id] = self._request(episode, None, episode.observation)
                except EpisodeError as error:
                    episode.fail(error)
        return list(requests.values())

    def _request(self, episode: EpisodeRollout, sample_idx: int | None, observation: Observation) -> Request:
        return Request(episode.prompt_id, sample_idx, self.encoder.encode(observation.messages, observation.images))

    def _play(self, episode_id: EpisodeId, reply: Reply) -> StepResult:
        episode = self.episodes[episode_id]
        try:
            turn = episode.respond(reply)
            request = None if episode.done else self._request(episode, episode.sample_idx, episode.observation)
        except EpisodeError as error:
            episode.fail(error)
            return StepResult(*episode_id, None, None)
        return StepResult(*episode_id, turn, request)


class RolloutWorkerPool:
    """One rollout worker in this process, or several Ray actors that share the episodes."""

    def __init__(self, section: Section, encoder: Any, seed: int, model: str) -> None:
        """Start the workers; see `RolloutWorker` for the arguments."""
        args = section, encoder, seed, model
        self._remote = section.rollout_workers > 0
        self._workers = [_start_actor(*args) for _ in range(section.rollout_workers)] or [RolloutWorker(*args)]

    def start(self, picks: Mapping[int, Pick], group_size: int) -> list[Request]:
        """Start a group of episodes for each prompt_id; return their requests, ordered by prompt_id."""
        return _by_prompt(self._distribute("start", list(picks.items()), lambda item: item[0], group_size))

    def start_validation(self, prompt_ids: Sequence[int]) -> list[Request]:
        """Start validation episodes; see `RolloutWorker.start_validation`."""
        return _by_prompt(self._distribute("start_validation", prompt_ids, int))

    def play(self, replies: Sequence[tuple[EpisodeId, Reply]]) -> list[StepResult]:
        """Play a reply in each episode; return results in the order of `replies`."""
        results = self._distribute("play", replies, lambda reply: reply[0][0])
        by_episode = {(result.prompt_id, result.sample_idx): result for result in results}
        return [by_episode[episode_id] for episode_id, _ in replies]

    def bootstrap_requests(self) -> list[tuple[EpisodeId, Request]]:
        """Return requests of truncated episodes; see `RolloutWorker.bootstrap_requests`."""
        return self._call_all("bootstrap_requests")

    def finish(self, group_size: int | None) -> list[EpisodeResult]:
        """Finish all episodes, ordered by prompt_id and sample_idx; see `RolloutWorker.finish`."""
        return sorted(self._call_all("finish", group_size), key=lambda result: (result.prompt_id, result.sample_idx))

    def close(self) -> None:
        """Stop the workers, even if they are busy."""
        import ray

        if self._remote and ray.is_initialized():  # else the program is exiting, and the actors with it
            for actor in self._workers:
                ray.kill(actor)

    def _call_all(self, method: str, *args: Any) -> list[Any]:
        """Call a method of all workers and concatenate the results."""
        return self._call(method, [args] * len(self._workers))

    def _distribute(self, method: str, items: Sequence[Any], prompt_id: Callable[[Any], int], *args: Any) -> list[Any]:
        """Call a method of each worker with its share of `items`; all items of a prompt go to the same worker."""
        count = len(self._workers)
        shares = [[item for item in items if prompt_id(item) % count == index] for index in range(count)]
        return self._call(method, [(share, *args) if share else None for share in shares])

    def _call(self, method: str, calls: Sequence[tuple[Any, ...] | None]) -> list[Any]:
        """Call a method of each worker with its arguments, unless these are None, and concatenate the results."""
        bound = [(getattr(worker, method), args) for worker, args in zip(self._workers, calls) if args is not None]
        if not self._remote:
            return [result for call, args in bound for result in call(*args)]
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            results = ray.get([call.remote(*args) for call, args in bound])
        except RayTaskError as error:
            if isinstance(error.cause, VlmgymError):
                raise error.cause from error
            raise
        except RayError as error:
            raise WorkerError(f"a Ray worker died: {first_line(error)}") from error
        return [result for share in results for result in share]


def _start_actor(*args: Any) -> Any:
    """Start a rollout worker in a Ray actor.

    It reserves no CPU, so that more workers than CPUs fit, for instance after the loss of a machine, but one byte of
    memory, because Ray ignores the scheduling strategy of actors that reserve nothing.
    """
    import ray

    options = {"num_cpus": 0, "memory": 1, "scheduling_strategy": "SPREAD"}
    return ray.remote(RolloutWorker).options(**options).remote(*args)


def _by_prompt(requests: list[Request]) -> list[Request]:
    return sorted(requests, key=lambda request: request.prompt_id)
