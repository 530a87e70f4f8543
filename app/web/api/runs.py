"""Job runs with their counts, rejected rows and errors, and the processes that run the jobs."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlmodel import col, select

from app.errors import NotFound
from app.storage import worker_registry
from app.storage.models import JobRun
from app.web.api import problems
from app.web.api.auth import CanRead, Id
from app.web.api.pagination import Page, Paging, newest_first
from app.web.api.values import Representation, UrlBoolean

router = APIRouter(tags=["runs"])


class RejectedRow(BaseModel):
    """A rejected row of a source or a file."""

    origin: str = Field(examples=["huggingface"])
    row: int | None = Field(
        examples=[17], description="The number of the row, from 1; null if the whole response was rejected."
    )
    reason: str = Field(examples=["no title"])
    detail: str = ""


class RunOut(Representation):
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


class WorkerOut(Representation):
    """A process that runs jobs, with its last heartbeat. A killed process remains listed for a day."""

    name: str = Field(examples=["mail1:4711:0123456789ab"], description="Machine, process ID, random number.")
    started_at: datetime
    seen_at: datetime = Field(description="The last heartbeat. There is one every ten seconds.")
    lost: bool = Field(description="True if there has been no heartbeat for a minute.")


class JobCountOut(Representation):
    """The number of jobs with the same name and state. With SQLite, no jobs are listed."""

    job: str = Field(examples=["send"])
    state: Literal["waiting", "running", "failed"]
    count: int = Field(examples=[1])
    since: datetime = Field(description="When the oldest of these jobs entered this state.")
    newest: datetime = Field(description="When the newest of these jobs entered this state.")


class Fleet(BaseModel):
    """All workers, and the jobs that have not succeeded yet. Failed jobs are listed for a day."""

    workers: list[WorkerOut]
    jobs: list[JobCountOut]


@router.get("/runs")
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
    return Page(items=[RunOut.model_validate(row) for row in rows], next_cursor=cursor)


@router.get("/runs/{run_id}", responses=problems.responses(404))
def get_run(caller: CanRead, run_id: Id) -> RunDetail:
    """Return a run with its rejected rows."""
    with caller.db.read() as session:
        row = session.get(JobRun, run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}")
    return RunDetail.model_validate(row)


@router.get("/workers")
def get_workers(caller: CanRead) -> Fleet:
    """Return the processes that run jobs, and the waiting, running and failed jobs."""
    with caller.db.read() as session:
        return Fleet(
            workers=[WorkerOut.model_validate(status) for status in worker_registry.statuses(session)],
            jobs=[JobCountOut.model_validate(count) for count in worker_registry.job_counts(session)],
        )
