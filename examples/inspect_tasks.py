"""Inspect tasks with your own settings: `inspect eval examples/inspect_tasks.py --model openai/gpt-5-mini`."""

from inspect_ai import Task, task

from vlmgym.integrations.inspect import make_task


@task
def small_2048(episodes: int = 20) -> Task:
    return make_task("2048", episodes, rows=3, columns=3, max_turns=30, size=320)


@task
def small_shisensho(episodes: int = 20) -> Task:
    return make_task("shisensho", episodes, reasoning=1, perception=1, max_turns=20, size=320)
