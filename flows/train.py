"""The training flow: six tasks a step, then the commit."""

from prefect import flow
from prefect.artifacts import create_markdown_artifact

from flows.config import TrainConfig
from flows.crashed import mark_crashed
from flows.progress import show_progress
from flows.stopping import StopRequest, listen_for_stop
from models.settings import EvaluationSettings
from tasks.acquire import acquire_batch
from tasks.commit import commit_step, read_commit, save_due_checkpoint
from tasks.evaluate import evaluate_policy
from tasks.generate import generate_rollouts
from tasks.opening import open_workbench, stop_if_hopeless
from tasks.predict import predict_difficulty
from tasks.report import build_report, report_markdown
from tasks.score import score_rewards
from tasks.update import update_policy, update_predictor


@flow(name="train", flow_run_name="train-{config.run}", persist_result=False)
def train(config: TrainConfig) -> None:
    """Create, continue or finish a run.

    Raises:
        StoreError, ModelError: the run cannot be opened.
        RunStopped: too many updates in a row were not finite.
        RunInterrupted: SIGTERM or Ctrl-C; the run is checkpointed and can go on.
    """
    mark_crashed()
    with listen_for_stop() as stop, open_workbench(config.plan()) as (bench, target):
        committed = bench.history.last_committed()
        for step in range(bench.step + 1, committed + 1):
            stop.check()
            replay_step(bench.run, step)
            save_due_checkpoint(bench)
        bench.seconds.clear()
        with show_progress(bench.run, max(committed, 0), target) as progress:
            for step in range(committed + 1, target + 1):
                stop.check()
                stop_if_hopeless(bench)
                run_step(bench.run, step, evaluate=_is_evaluated(step, target, config.evaluation), stop=stop)
                progress.advance(step, read_commit(bench, step))
                save_due_checkpoint(bench)
        stop_if_hopeless(bench)
    report = build_report(bench.layout, bench.run)
    create_markdown_artifact(report_markdown(report), key="training-summary", description=f"Run {bench.run}")


def replay_step(run: str, step: int) -> None:
    """Learn once more from a committed step that came after the last checkpoint."""
    update_policy(run, step)
    update_predictor(run, step)


def run_step(run: str, step: int, *, evaluate: bool, stop: StopRequest) -> None:
    """One step of the pipeline; step 0 is the evaluation before anything is learned."""
    if step > 0:
        predict_difficulty(run, step)
        round_ = 0
        while _run_round(run, step, round_, stop):
            round_ += 1
        update_policy(run, step)
        update_predictor(run, step)
    if evaluate:
        evaluate_policy(run, step)
    commit_step(run, step)


def _run_round(run: str, step: int, round_: int, stop: StopRequest) -> bool:
    stop.check()
    acquire_batch(run, step, round_)
    generate_rollouts(run, step, round_)
    stop.check()
    return score_rewards(run, step, round_)


def _is_evaluated(step: int, target: int, evaluation: EvaluationSettings) -> bool:
    return evaluation.every > 0 and (step % evaluation.every == 0 or step == target)
