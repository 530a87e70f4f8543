"""Import subscribers from a CSV file, after a preview, and export them."""

from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

import structlog
from fastapi import APIRouter, BackgroundTasks, HTTPException, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.datastructures import UploadFile

from app import clock, maintenance, subscribers
from app.application import Application
from app.delivery import ledger
from app.errors import Conflict, InvalidInput, NotFound, TooManyRequests
from app.storage import job_runs, uploads
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import Importer, ImportSubmitter, Operator, Reader, back_to, check_form_token
from app.web.api import subscriber_files as api
from app.web.capacity import Capacity
from app.web.forms import Text
from app.web.security import NOT_STORED

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/subscribers"
SKIPPED_SHOWN = 200
TOO_LARGE = "The file is too large. Split it into several files."
HOLDS = {"": None, "yes": True, "no": False}  # None: see `maintenance.import_subscribers`

log = structlog.get_logger(__name__)


@router.get(PATH + "/export")
def export_subscribers(operator: Reader) -> Response:
    headers = {**NOT_STORED, "Content-Disposition": 'attachment; filename="subscribers.csv"'}
    return StreamingResponse(api.export_chunks(operator.app), media_type=api.MEDIA_TYPE, headers=headers)


@router.get(PATH + "/import")
def ask_for_file(operator: Importer) -> Response:
    return _upload_page(operator)


@router.post(PATH + "/import")
async def upload_file(operator: Importer) -> Response:
    """Store a file until its import is confirmed. The operator is authenticated before the body is read."""
    if not operator.request.headers.get("content-type", "").startswith("multipart/form-data"):
        return _upload_page(operator, "Choose a file.")
    try:
        async with operator.request.form(max_files=1, max_fields=5) as form:
            token, file = form.get("form_token"), form.get("file")
            check_form_token(operator, token if isinstance(token, str) else "")
            if not isinstance(file, UploadFile) or not file.filename:
                return _upload_page(operator, "Choose a file.")
            if (file.size or 0) > operator.settings.max_import_bytes:
                return _upload_page(operator, TOO_LARGE)
            name = await run_in_threadpool(
                uploads.store, _folder(operator), file.file, operator.form_token, clock.utcnow()
            )
    except HTTPException as error:
        if error.status_code != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise
        return _upload_page(operator, TOO_LARGE)
    return back_to(f"{PATH}/import/{name}")


@router.get(PATH + "/import/{name}")
def preview_import(operator: Importer, name: str) -> Response:
    """Show the first rows as they will be stored, and the rows that would be skipped."""
    try:
        with uploads.find(_folder(operator), name, operator.form_token, operator.now).open("rb") as file:
            preview = api.preview_import(operator, file)
    except (InvalidInput, NotFound) as error:
        return _upload_page(operator, str(error))
    with operator.db.read() as session:
        any_sent = ledger.any_sent(session)
    return operator.page(
        "admin/import_preview.html", preview=preview, name=name, skipped=preview.rejections[:SKIPPED_SHOWN],
        any_sent=any_sent,
    )  # fmt: skip


@router.post(PATH + "/import/{name}")
def confirm_import(operator: ImportSubmitter, name: str, later: BackgroundTasks, hold: Text = "") -> Response:
    """Import the file after the response. The run's page shows the progress."""
    operator.capacity.jobs.check()
    try:
        with ExitStack() as on_error:
            taken = uploads.take(_folder(operator), name, operator.form_token, operator.now)
            file = on_error.enter_context(taken)
            subscribers.survey(file)
            on_error.pop_all()
    except (InvalidInput, NotFound) as error:
        return _upload_page(operator, str(error))
    run_id = job_runs.begin(operator.db, "import", operator.now)
    later.add_task(_import, operator.app, operator.capacity, file, operator.key.name, HOLDS.get(hold), run_id)
    return back_to(f"/admin/runs/{run_id}")


def _import(
    app: Application, capacity: Capacity, file: BinaryIO, actor: str, hold: bool | None, run_id: int
) -> None:
    try:
        with file, capacity.jobs.take():
            maintenance.import_subscribers(app, file, actor, clock.utcnow(), hold=hold, run_id=run_id)
    except Conflict as error:  # another import is running
        job_runs.abort(app.db, run_id, clock.utcnow(), str(error))
    except TooManyRequests:  # before the file was read
        message = "the file was not imported, because other jobs were running: import it again"
        job_runs.abort(app.db, run_id, clock.utcnow(), message)
    except Exception as error:
        log.exception("import failed", run=run_id)
        message = f"{error}: the import may be incomplete; import the file again"
        job_runs.abort(app.db, run_id, clock.utcnow(), message)


def _folder(operator: Operator) -> Path:
    return uploads.folder(operator.settings.journal_dir)


def _upload_page(operator: Operator, problem: str = "") -> Response:
    return operator.page(
        "admin/import.html", status=422 if problem else 200,
        most_megabytes=operator.settings.max_import_bytes // 1_000_000, problem=problem,
    )  # fmt: skip
