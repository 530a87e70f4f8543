"""Import and export subscribers as CSV files."""

import io
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect

from app import maintenance, subscribers
from app.application import Application
from app.errors import InvalidInput
from app.storage.api_keys import Scope
from app.storage.models import SubscriberState
from app.types import Cadence, EmptyDigestPolicy
from app.web.api import idempotency, problems
from app.web.api.auth import Caller, CanRead, CanWrite
from app.web.api.subscribers import InterestIn
from app.web.api.values import Representation, UrlBoolean

router = APIRouter(prefix="/subscribers", tags=["subscribers"])

MEDIA_TYPE = "text/csv"
ROWS_PER_CHUNK = 500
_FILE = {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
_CSV = {"description": "The file.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}


class ImportedRow(BaseModel):
    """A row as it is stored."""

    email: str = Field(examples=["alice@example.org"])
    state: SubscriberState
    paused_until: datetime | None
    cadence: Cadence
    weekday: int
    hour: int
    zone: str
    min_papers: int
    max_papers: int
    when_empty: EmptyDigestPolicy
    max_trending: int
    paper_updates: bool
    muted: list[str]
    interests: list[InterestIn]
    consent_at: datetime | None = Field(description="Null if it is the time of the import.")
    consent_version: str


class SkippedRowOut(Representation):
    """A row that was skipped."""

    row: int = Field(examples=[3], description="The spreadsheet row: the first subscriber is in row 2.")
    email: str = Field(description="The address, as typed if it is invalid.", examples=["bob@example.org"])
    reason: str = Field(
        description="All problems of the row.",
        examples=["hour must be a full hour, such as 8 or 08:00, not “seven”"],
    )


class ImportOut(BaseModel):
    """The result of an import, or of its preview."""

    complete: bool = Field(description="False if the service was stopped: import the file again.")
    added: int = Field(description="The number of subscribers added or, in a preview, to be added.")
    rejected: int = Field(description="The number of skipped rows.")
    registered: int = Field(description="Skipped rows with an address that is registered or suppressed.")
    rejections: list[SkippedRowOut] = Field(description="The first 1,000 skipped rows.")
    ignored_columns: list[str] = Field(
        description="Unknown columns. If one of them says who left the other service, remove the rows of "
        "these people."
    )
    held: bool = Field(
        description="True if all sending or the first digests of the added subscribers wait for an operator."
    )
    run_id: int | None = Field(description="The run of this import: see /runs. Null in a preview.")
    first_rows: list[ImportedRow] = Field(
        description="In a preview: the first ten rows as they would be stored."
    )


@router.post(
    "/import",
    # Refuse the header, because the response has addresses, and a key is claimed before the file is read.
    openapi_extra={"requestBody": _FILE, **idempotency.REFUSED},
    responses=problems.responses(409, 413, 415),
)
async def import_subscribers(
    request: Request,
    caller: CanWrite,
    hold: Annotated[
        UrlBoolean | None,
        Query(
            description="Pause all sending first. Default: true if no digest has ever been sent; otherwise, "
            "only the first digests of the added subscribers are held."
        ),
    ] = None,
    preview: Annotated[UrlBoolean, Query(description="Only check the file, and store nothing.")] = False,
) -> ImportOut:
    """Add the subscribers in a CSV file. They must have given consent elsewhere. Invalid rows are skipped.

    Subscribers are active at once, so the key also needs the `send` scope, except for a preview. If the
    request is interrupted, repeat it: subscribers who are already registered are skipped. While another
    import is running, the response is 409: wait, and send the file again. The request must not have an
    Idempotency-Key.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise HTTPException(415, f"send the file as the body of the request, with Content-Type: {MEDIA_TYPE}")
    if not preview and Scope.SEND not in caller.key.scopes:
        raise HTTPException(
            403,
            "this key lacks the “send” scope, which an import needs because subscribers are active at once: "
            "use a key with both scopes",
        )
    with tempfile.TemporaryFile() as file:
        try:
            async for chunk in request.stream():
                await run_in_threadpool(file.write, chunk)
        except ClientDisconnect:
            raise InvalidInput(
                "the upload was interrupted, so nobody was added: send the file again"
            ) from None
        if file.tell() > caller.settings.max_import_bytes:
            most = caller.settings.max_import_bytes
            raise HTTPException(413, f"the file is larger than {most:,} bytes: split it into several files")
        if preview:
            return await run_in_threadpool(preview_import, caller, file)
        return await run_in_threadpool(_import, caller, file, hold)


@router.get("/export", response_class=StreamingResponse, responses={200: _CSV})
def export_subscribers(caller: CanRead) -> StreamingResponse:
    """Return all subscribers as a CSV file, except erased ones."""
    return StreamingResponse(
        export_chunks(caller.app),
        media_type=MEDIA_TYPE,
        headers={"Content-Disposition": 'attachment; filename="subscribers.csv"'},
    )


def export_chunks(app: Application) -> Iterator[str]:
    """Yield the CSV file of all subscribers in chunks."""
    rows = subscribers.exported(app.db)
    text = io.StringIO()
    subscribers.write_header(text)
    yield text.getvalue()
    while chunk := list(islice(rows, ROWS_PER_CHUNK)):
        text = io.StringIO()
        subscribers.write_rows(chunk, text)
        yield text.getvalue()


def preview_import(caller: Caller, file: BinaryIO) -> ImportOut:
    """Return the result that importing the file would have now."""
    with caller.capacity.jobs.take():
        defaults = subscribers.default_preferences(caller.settings)
        report = subscribers.preview_file(caller.db, file, defaults, caller.now)
    first = [
        ImportedRow(
            email=new.email,
            state=new.state,
            paused_until=new.paused_until,
            **asdict(new.preferences),
            consent_at=new.consent_at,
            consent_version=new.consent_version,
        )
        for new in report.first
    ]
    return _to_out(report, first_rows=first)


def _import(caller: Caller, file: BinaryIO, hold: bool | None) -> ImportOut:
    with caller.capacity.jobs.take():
        result = maintenance.import_subscribers(caller.app, file, caller.key.name, caller.now, hold=hold)
    return _to_out(result.report, held=result.paused_scope is not None, run_id=result.run_id)


def _to_out(report: subscribers.ImportReport, **values: Any) -> ImportOut:
    return ImportOut(
        complete=report.is_complete,
        added=report.added,
        rejected=report.rejected,
        registered=report.registered,
        rejections=[SkippedRowOut.model_validate(item) for item in report.rejections],
        ignored_columns=list(report.ignored_columns),
        **{"held": False, "run_id": None, "first_rows": [], **values},
    )
