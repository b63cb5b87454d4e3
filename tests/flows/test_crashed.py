"""Flow runs of killed processes do not stay "running" on a server."""

import os
import socket
import subprocess

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.states import Running

from flows.crashed import mark_crashed, process_tag

pytestmark = pytest.mark.usefixtures("prefect_server")


@flow(name="marker", flow_run_name="marker-{run}")
def marker(run: str) -> None:
    mark_crashed()


def test_only_flow_runs_of_the_same_name_whose_process_has_died_are_marked_as_crashed() -> None:
    process = subprocess.Popen(["sleep", "600"])
    dead = process_tag(process.pid)
    process.kill()
    process.wait()
    elsewhere = dead.replace(socket.gethostname(), "elsewhere")
    with get_client(sync_client=True) as client:
        left = {
            what: client.create_flow_run(marker, name=name, tags=tags, state=Running()).id
            for what, name, tags in [
                ("dead", "marker-a", ["mine", dead]),
                ("alive", "marker-a", [process_tag(os.getpid())]),
                ("elsewhere", "marker-a", [elsewhere]),
                ("of nobody", "marker-a", ["process", "process of mine"]),
                ("other name", "marker-b", [dead]),
            ]
        }
        marker("a")
        found = {what: client.read_flow_run(one).state_name for what, one in left.items()}
        runs = client.read_flow_runs()
    assert found == dict.fromkeys(left, "Running") | {"dead": "Crashed"}
    [ours] = [run for run in runs if run.name == "marker-a" and run.id not in left.values()]
    assert ours.state_name == "Completed" and ours.tags == [process_tag(os.getpid())]
