"""Flow runs that stay "running" on a Prefect server because their process was killed."""

import os
import socket

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterName,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL
from prefect.states import Crashed

from storage.locks import birth_of, has_died


def mark_crashed() -> None:
    """Tag the current flow run with its process, and mark those of its name whose process has died as crashed.

    A temporary server shows its flow runs to nobody: there nothing is done.
    """
    if not PREFECT_API_URL.value():
        return
    running = FlowRunFilter(
        name=FlowRunFilterName(any_=[flow_run.name]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
    )
    flow = FlowFilter(name=FlowFilterName(any_=[flow_run.flow_name]))
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, tags=[*flow_run.tags, process_tag(os.getpid())])
        for other in client.read_flow_runs(flow_filter=flow, flow_run_filter=running):
            if any(_names_dead_process(tag) for tag in other.tags):
                client.set_flow_run_state(other.id, Crashed(message="Its process was killed."), force=True)


def process_tag(pid: int) -> str:
    """What tells a process of this host from all others."""
    return f"process {socket.gethostname()} {pid} {birth_of(pid)}"


def _names_dead_process(tag: str) -> bool:
    """Whether a tag is of a process of this host that has died; of other hosts nothing is known."""
    kind, _, rest = tag.partition(" ")
    host, _, rest = rest.partition(" ")
    pid, _, birth = rest.partition(" ")
    return kind == "process" and host == socket.gethostname() and pid.isdecimal() and has_died(int(pid), birth)
