"""Job runs: counts, rejected rows and errors."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import col, select

from app.errors import NotFound
from app.storage.models import JobRun
from app.web.api import problems
from app.web.api.auth import CanRead, Id
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import UrlBoolean

router = APIRouter(prefix="/runs", tags=["runs"])


class RejectedRow(BaseModel):
    """A rejected row of a source or a file."""

    origin: str = Field(examples=["huggingface"])
    row: int | None = Field(
        examples=[17], description="The number of the row, from 1; null if the whole response was rejected."
    )
    reason: str = Field(examples=["no title"])
    detail: str = ""


class RunOut(BaseModel):
    """A run of a job. If `ended_at` is null, it is still running or its process was killed."""

    id: int = Field(examples=[42])
    job: str = Field(examples=["refresh"])
    started_at: datetime
    ended_at: datetime | None
    counts: dict[str, int] = Field(examples=[{"rows": 100, "papers_new": 12, "rejected": 1}])
    error: str = Field(examples=[""], description="Empty if the run succeeded.")


class RunDetail(RunOut):
    """A run with up to 500 of its rejected rows."""

    rejections: list[RejectedRow]


@router.get("")
def list_runs(
    caller: CanRead,
    window: Paging,
    job: Annotated[str | None, Query(max_length=30, examples=["refresh"])] = None,
    failed: UrlBoolean | None = None,
) -> Page[RunOut]:
    """List the runs, newest first."""
    statement = select(JobRun)
    if failed is not None:
        statement = statement.where(JobRun.error != "" if failed else JobRun.error == "")
    with caller.db.read() as session:
        rows, cursor = newest_first(session, statement, col(JobRun.id), window, job=job)
    return Page(items=[RunOut.model_validate(row.model_dump()) for row in rows], next_cursor=cursor)


@router.get("/{run_id}", responses=problems.responses(404))
def get_run(caller: CanRead, run_id: Id) -> RunDetail:
    """Return a run with its rejected rows."""
    with caller.db.read() as session:
        row = session.get(JobRun, run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    return RunDetail.model_validate(row.model_dump())
