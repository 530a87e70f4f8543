"""Runs of jobs, changes by operators, and the settings in effect."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request, Response

from app import clock
from app.application import Application
from app.delivery import ledger
from app.storage.audit_log import describe as describe_action
from app.web.admin.sign_in import Reader, page
from app.web.api import audit_log, runs, settings
from app.web.api.auth import Id
from app.web.api.pagination import window_of
from app.web.request_bodies import FormRoute

router = APIRouter(include_in_schema=False, route_class=FormRoute)

ROWS_SHOWN = 50
RELOAD_AFTER = 3  # seconds
LONGEST_RUN = timedelta(days=1)


@router.get("/admin/runs")
def list_runs(
    request: Request, operator: Reader, cursor: str | None = None, job: str = "", failed: str = ""
) -> Response:
    app: Application = request.app.state.paperboy
    window = window_of(ROWS_SHOWN, cursor)
    listed = runs.list_runs(app, operator.key, window, job or None, True if failed else None)
    return page(
        request, "admin/runs.html", operator, runs=listed.items, next_cursor=listed.next_cursor,
        job=job, failed=failed,
    )  # fmt: skip


@router.get("/admin/runs/{run_id}")
def show_run(request: Request, operator: Reader, run_id: Id, reload: str = "") -> Response:
    """Show a run. Its page reloads until the run has ended, unless its process was probably killed."""
    app: Application = request.app.state.paperboy
    with app.db.read() as session:
        sending_paused = ledger.is_paused(session)
        holds_first = ledger.is_paused(session, ledger.FIRST_DIGESTS)
    run = runs.get_run(app, operator.key, run_id)
    in_progress = run.ended_at is None and clock.utcnow() - run.started_at < LONGEST_RUN
    return page(
        request, "admin/run.html", operator, run=run, sending_paused=sending_paused, holds_first=holds_first,
        reload_after=RELOAD_AFTER if in_progress and not reload else 0,
    )  # fmt: skip


@router.get("/admin/changes")
def list_changes(request: Request, operator: Reader, cursor: str | None = None, actor: str = "") -> Response:
    app: Application = request.app.state.paperboy
    window = window_of(ROWS_SHOWN, cursor)
    listed = audit_log.list_changes(app, operator.key, window, actor or None)
    return page(
        request, "admin/changes.html", operator, changes=listed.items, next_cursor=listed.next_cursor,
        actor=actor, describe=describe_action,
    )  # fmt: skip


@router.get("/admin/settings")
def show_settings(request: Request, operator: Reader) -> Response:
    """Show the settings in effect, without secrets."""
    listed = settings.list_settings(request.app.state.paperboy, operator.key)
    return page(request, "admin/settings.html", operator, settings=listed.items)
