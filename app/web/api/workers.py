"""The processes that run jobs, and the waiting, running and failed jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.storage import worker_registry
from app.web.api.auth import CanRead

router = APIRouter(prefix="/workers", tags=["runs"])


class WorkerOut(BaseModel):
    """A process that runs jobs, with its last heartbeat. A killed process remains listed for a day."""

    model_config = ConfigDict(from_attributes=True)

    name: str = Field(examples=["mail1:4711:0123456789ab"], description="Machine, process ID, random number.")
    started_at: datetime
    seen_at: datetime = Field(description="The last heartbeat. There is one every ten seconds.")
    lost: bool = Field(description="True if there has been no heartbeat for a minute.")


class JobCountOut(BaseModel):
    """The number of jobs with the same name and state. With SQLite, no jobs are listed."""

    model_config = ConfigDict(from_attributes=True)

    job: str = Field(examples=["send"])
    state: Literal["waiting", "running", "failed"]
    count: int = Field(examples=[1])
    since: datetime = Field(description="When the oldest of these jobs entered this state.")
    newest: datetime = Field(description="When the newest of these jobs entered this state.")


class Fleet(BaseModel):
    """All workers, and the jobs that have not succeeded yet. Failed jobs are listed for a day."""

    workers: list[WorkerOut]
    jobs: list[JobCountOut]


@router.get("")
def get_workers(caller: CanRead) -> Fleet:
    """Return the processes that run jobs, and the waiting, running and failed jobs."""
    with caller.db.read() as session:
        return Fleet(
            workers=[WorkerOut.model_validate(status) for status in worker_registry.statuses(session)],
            jobs=[JobCountOut.model_validate(count) for count in worker_registry.job_counts(session)],
        )
