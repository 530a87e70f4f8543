"""Runs of jobs: the newest ones, and one with its errors and rejected rows."""

from datetime import timedelta

from fastapi import APIRouter, Response
from sqlmodel import col, select

from app.delivery import ledger
from app.storage.models import JobRun
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.pagination import Position, page_at
from app.web.admin.sign_in import Reader
from app.web.api import runs as api
from app.web.api.auth import Id

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

RUNS_SHOWN = 50
RELOAD_AFTER = 3  # seconds
LONGEST_RUN = timedelta(days=1)


@router.get("/admin/runs")
def list_runs(operator: Reader, at: Position = "", job: str = "", failed: str = "") -> Response:
    statement = select(JobRun)
    if job:
        statement = statement.where(JobRun.job == job)
    if failed:
        statement = statement.where(JobRun.error != "")
    with operator.db.read() as session:
        listed = page_at(session, statement, col(JobRun.id), RUNS_SHOWN, at)
        jobs = session.exec(select(JobRun.job).distinct().order_by(JobRun.job)).all()
    return operator.page("admin/runs.html", listed=listed, job=job, jobs=jobs, failed=failed)


@router.get("/admin/runs/{run_id}")
def show_run(operator: Reader, run_id: Id, reload: str = "") -> Response:
    """Show a run. The page reloads while the run is in progress, but for at most a day."""
    with operator.db.read() as session:
        sending_paused = ledger.is_paused(session)
        holds_first = ledger.is_paused(session, ledger.FIRST_DIGESTS)
    run = api.get_run(operator, run_id)
    in_progress = run.ended_at is None and operator.now - run.started_at < LONGEST_RUN
    return operator.page(
        "admin/run.html", run=run, sending_paused=sending_paused, holds_first=holds_first,
        reload_after=RELOAD_AFTER if in_progress and not reload else 0,
    )  # fmt: skip
