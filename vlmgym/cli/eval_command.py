"""`vlmgym eval`: its options, and the games or curriculum that the options name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import tyro

from vlmgym.cli.policy_options import option_value, policy_options, with_options
from vlmgym.errors import UsageError
from vlmgym.evaluation.config import EvalConfig
from vlmgym.sandbox.registry import game_ids, load_games

FIXED_BY_SUITE = frozenset(
    f"--{name}"
    for name in ("episodes", "max-turns", "seed", "perception", "reasoning", "config", "size")
    + ("strict", "no-strict", "all-rows", "no-all-rows")
)
"""Options that cannot be combined with `--suite NAME`."""


@dataclass(frozen=True, kw_only=True)
class EvalCommand(EvalConfig):
    """Options of `vlmgym eval`."""

    game: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME ...", help_behavior_hint="")
    ] = ()
    """Game ids or names (2048), or published settings (g1/swap); see vlmgym games."""
    games: Annotated[tuple[tuple[str, ...], ...], tyro.conf.arg(metavar="GAME ..."), tyro.conf.UseAppendAction] = ()
    """Same as the positional games."""
    curriculum: Path | None = None
    """Curriculum to play instead of games: a file or a built-in name (docs/curricula.md); --episodes is the total."""
    suite: str | None = None
    """Suite to play instead of games, with its settings (docs/suites.md), or all: every game, with your settings."""
    as_trained: Path | None = None
    """Checkpoint: evaluate with the settings in its vlmgym.json (games, difficulty, turn limit, ...), on validation
    seeds. Other options override these settings, except the games.
    The vllm and transformers policies load the checkpoint itself, unless --model is given."""
    full_curriculum: bool = False
    """With --as-trained, play the curriculum from its first stage, instead of the stages that training had reached."""


def options_for(args: Sequence[str]) -> tuple[list[str], Any]:
    """Return the arguments, with the options of `--as-trained` inserted, and the type that parses them.

    The type depends on the policy, which adds its own options.
    """
    _reject_settings_of_suite(args)
    words = list(args)
    if checkpoint := option_value("--as-trained", words):
        from vlmgym.cli.as_trained import with_trained_options

        words = with_trained_options(words, Path(checkpoint))
    return words, with_options(EvalCommand, policy_options(words))


def _reject_settings_of_suite(words: Sequence[str]) -> None:
    """Reject options that a suite fixes, even if they are set to the suite's values or the defaults."""
    options = [word.partition("=")[0].replace("_", "-") for word in words]
    given = [option for option in options if option in FIXED_BY_SUITE]
    if given and option_value("--suite", words) not in (None, "all"):
        raise UsageError(f"{given[0]} is fixed by the suite: remove it")


def run_eval(chosen: Any) -> None:
    """Run `vlmgym eval`; `chosen` has the type that `options_for` returns."""
    # Imported here because --help and errors in options need none of this.
    from vlmgym.cli.as_trained import trained_games
    from vlmgym.cli.eval import run_evaluation
    from vlmgym.rollout.trained import TrainedRecord

    config: EvalCommand = chosen.config
    games, played = (*config.game, *chain.from_iterable(config.games)), None
    if config.suite is not None:
        if games or config.curriculum is not None or config.as_trained is not None:
            raise UsageError("--suite names the games: leave out games, --curriculum and --as-trained")
        if config.suite != "all":
            run_evaluation((), config, chosen.options, suite=config.suite)
            return
        games = tuple(game_ids())
    if config.as_trained is not None:
        if games or config.curriculum is not None:
            raise UsageError("--as-trained names the games: leave out games and --curriculum")
        played = trained_games(TrainedRecord.read(config.as_trained), config.full_curriculum, config)
    elif config.full_curriculum:
        raise UsageError("--full-curriculum needs --as-trained")
    elif not games and config.curriculum is None:
        raise UsageError(f"name a game: vlmgym eval {'|'.join(found.name for found in load_games()[0].values())}")
    run_evaluation(games, config, chosen.options, curriculum=config.curriculum, played=played)
