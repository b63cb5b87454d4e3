"""How every stage of the pipeline is declared to Prefect."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

P = ParamSpec("P")
R = TypeVar("R")


def stage(function: Callable[P, R]) -> Task[P, R]:
    """A Prefect task named by its step; the store, not Prefect, remembers what is done.

    There are no retries: a stage that failed left nothing behind that a second
    try in the same process would not compute again.
    """
    return task(
        name=function.__name__.replace("_", "-"),
        task_run_name=f"{function.__name__} {{step}}",
        cache_policy=NO_CACHE,
        persist_result=False,
    )(function)
