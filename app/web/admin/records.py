"""Runs of jobs, changes by operators, and the settings in effect."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Response
from sqlmodel import col, select

from app import subscribers
from app.delivery import ledger
from app.storage import audit_log
from app.storage.models import AuditEntry, JobRun
from app.web.admin import setting_descriptions
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.pagination import Position, page_at
from app.web.admin.sign_in import Reader
from app.web.api import runs, settings
from app.web.api.auth import Id

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

ROWS_SHOWN = 50
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
        listed = page_at(session, statement, col(JobRun.id), ROWS_SHOWN, at)
        jobs = session.exec(select(JobRun.job).distinct().order_by(JobRun.job)).all()
    return operator.page("admin/runs.html", listed=listed, job=job, jobs=jobs, failed=failed)


@router.get("/admin/runs/{run_id}")
def show_run(operator: Reader, run_id: Id, reload: str = "") -> Response:
    """Show a run. The page reloads while the run is in progress, but for at most a day."""
    with operator.db.read() as session:
        sending_paused = ledger.is_paused(session)
        holds_first = ledger.is_paused(session, ledger.FIRST_DIGESTS)
    run = runs.get_run(operator, run_id)
    in_progress = run.ended_at is None and operator.now - run.started_at < LONGEST_RUN
    return operator.page(
        "admin/run.html", run=run, sending_paused=sending_paused, holds_first=holds_first,
        reload_after=RELOAD_AFTER if in_progress and not reload else 0,
    )  # fmt: skip


@router.get("/admin/changes")
def list_changes(operator: Reader, at: Position = "", actor: str = "") -> Response:
    statement = select(AuditEntry)
    if actor:
        statement = statement.where(AuditEntry.actor == actor)
    with operator.db.read() as session:
        listed = page_at(session, statement, col(AuditEntry.id), ROWS_SHOWN, at)
        numbers = [int(change.subject) for change in listed.rows if _is_about_subscriber(change)]
        addresses = subscribers.addresses_of(session, numbers)
    return operator.page(
        "admin/changes.html", listed=listed, actor=actor, describe=audit_log.describe,
        describe_details=audit_log.describe_details, all_editions=ledger.ALL_EDITIONS, addresses=addresses,
        is_about_subscriber=_is_about_subscriber,
    )  # fmt: skip


def _is_about_subscriber(change: AuditEntry) -> bool:
    """Return True if the subject of a change is the id of a subscriber."""
    is_about_one = change.action.startswith("subscriber.") or change.action == "digest.test"
    return is_about_one and change.action != "subscriber.import" and change.subject.isdigit()


@router.get("/admin/settings")
def show_settings(operator: Reader) -> Response:
    """Show the settings in effect, without secrets, and explain them."""
    listed = settings.list_settings(operator)
    settings_by_name = {setting.name: setting for setting in listed.items}
    return operator.page(
        "admin/settings.html", settings=settings_by_name, groups=setting_descriptions.group(settings_by_name)
    )
