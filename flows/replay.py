"""The replay flow: walk past histories, publish the best forecaster, show the leaderboard."""

from prefect import flow
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from flows.replay_config import ReplayConfig
from storage.files import write_over
from tasks.leaderboard import leaderboard_rows, report_markdown
from tasks.publish import publish_best
from tasks.replay import replay_history


@flow(name="replay", flow_run_name="replay-{config.runs}", persist_result=False)
def replay(config: ReplayConfig) -> None:
    """Compare forecasters on the history, and publish the best where a name is given.

    Raises:
        StoreError, ModelError: the history cannot be replayed.
    """
    plan = config.plan()
    report = replay_history(plan)
    create_table_artifact(leaderboard_rows(report), key="replay-leaderboard", description=f"Runs {config.runs}")
    create_markdown_artifact(report_markdown(report), key="replay-report", description=f"Runs {config.runs}")
