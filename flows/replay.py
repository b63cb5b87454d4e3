"""The replay flow: walk past histories, publish the best forecaster, show the leaderboard."""

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.crashed import mark_crashed
from flows.replay_config import ReplayConfig
from tasks.dense import dense_json, dense_replay
from tasks.leaderboard_text import leaderboard_rows, report_markdown
from tasks.replay import replay_history
from tasks.replay_files import write_files

walk_history = task(name="replay-history", cache_policy=NO_CACHE, persist_result=False)(replay_history)
walk_dense = task(name="dense-replay", cache_policy=NO_CACHE, persist_result=False)(dense_replay)
write_report = task(name="write-report", cache_policy=NO_CACHE, persist_result=False)(write_files)


@flow(name="replay", flow_run_name="replay-{config.runs}", persist_result=False)
def replay(config: ReplayConfig) -> State[None]:
    """Compare forecasters on the history, and publish the best where a name is given.

    A history that was published already leaves everything as it is, and the flow run says so.

    Raises:
        StoreError, ModelError: the history cannot be replayed.
    """
    mark_crashed()
    if config.dense:
        lines, faults = walk_dense(config.plan(), config.acquisitions())
        create_table_artifact(dense_json(lines), key="dense-replay", description="\n".join(faults) or None)
        return Completed(message=f"{len(lines)} selectors")
    report = walk_history(config.plan())
    if not report.lines:
        return Completed(message=report.published)
    write_report(report, markdown=config.markdown, plots=config.plots)
    create_table_artifact(leaderboard_rows(report), key="replay-leaderboard", description=report.published or None)
    create_markdown_artifact(report_markdown(report), key="replay-report", description=f"Runs {config.runs}")
    return Completed(message=report.published or None)
