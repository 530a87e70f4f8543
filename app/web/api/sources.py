"""The sources that are polled: add, change, pause, resume, and ask one now."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, ConfigDict, Field

from app import clock, pipeline
from app.application import Application
from app.papers import source_registry
from app.storage import audit_log
from app.storage.models import Source
from app.types import SourceKind
from app.web.api import problems
from app.web.api.auth import CanRead, CanWrite, Id, Limited, Now, Paperboy
from app.web.work_limits import WorkSlots

router = APIRouter(prefix="/sources", tags=["sources"])
log = structlog.get_logger(__name__)

Config = Annotated[
    dict[str, Any],
    Field(
        examples=[{"categories": ["cs.CL", "cs.LG"]}],
        description="arxiv: categories, or query; arxiv_feed: categories; feed: url; huggingface: nothing.",
    ),
]


class SourceOut(BaseModel):
    """A source and how it is."""

    id: int
    name: str = Field(examples=["arxiv"])
    kind: SourceKind
    config: Config
    paused: bool
    watermark: date | None = Field(description="The last day that was read to its end.")
    next_poll_at: datetime | None
    polled_at: datetime | None = Field(description="The last poll that worked.")
    failures: int = Field(description="Polls that failed in a row.", examples=[0])
    last_error: str | None
    created_at: datetime


class NewSource(BaseModel):
    """A source to be polled."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(examples=["A lab's blog"])
    kind: SourceKind = Field(examples=["feed"])
    config: Config = {}


class SourceChange(BaseModel):
    """What shall be different. A new configuration makes the source begin anew."""

    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    config: Config | None = None


class SourceList(BaseModel):
    """Every source: there are few."""

    items: list[SourceOut]


@router.get("")
def list_sources(app: Paperboy, _key: CanRead) -> SourceList:
    """Every source, in the order of their names."""
    with app.db.read() as session:
        return SourceList(items=[_shown(source) for source in source_registry.all_sources(session)])


@router.post("", status_code=201, responses=problems.responses(409))
def add_source(app: Paperboy, key: CanWrite, now: Now, wanted: NewSource) -> SourceOut:
    """A new source. It is asked for the first time within minutes, and back-filled."""
    with app.db.write() as session:
        source = source_registry.add(session, wanted.name, wanted.kind, wanted.config, now)
        audit_log.record(session, key.name, "source.add", source.name, now, kind=source.kind)
        return _shown(source)


@router.get("/{source_id}", responses=problems.responses(404))
def get_source(app: Paperboy, _key: CanRead, source_id: Id) -> SourceOut:
    """One source."""
    with app.db.read() as session:
        return _shown(source_registry.get(session, source_id))


@router.patch("/{source_id}", responses=problems.responses(404, 409))
def change_source(app: Paperboy, key: CanWrite, now: Now, source_id: Id, wanted: SourceChange) -> SourceOut:
    """Rename a source, or ask it for something else."""
    with app.db.write() as session:
        source = source_registry.get(session, source_id)
        source_registry.change(session, source, name=wanted.name, config=wanted.config)
        audit_log.record(session, key.name, "source.change", source.name, now)
        return _shown(source)


@router.post("/{source_id}/pause", responses=problems.responses(404))
def pause_source(app: Paperboy, key: CanWrite, now: Now, source_id: Id) -> SourceOut:
    """Ask this source no more until it is resumed."""
    with app.db.write() as session:
        source = source_registry.get(session, source_id)
        source_registry.pause(session, source)
        audit_log.record(session, key.name, "source.pause", source.name, now)
        return _shown(source)


@router.post("/{source_id}/resume", responses=problems.responses(404))
def resume_source(app: Paperboy, key: CanWrite, now: Now, source_id: Id) -> SourceOut:
    """Ask this source again, from where it stopped."""
    with app.db.write() as session:
        source = source_registry.get(session, source_id)
        source_registry.resume(session, source, now)
        audit_log.record(session, key.name, "source.resume", source.name, now)
        return _shown(source)


@router.post("/{source_id}/refresh", status_code=202, responses=problems.responses(404, 409))
def refresh_source(
    app: Paperboy, key: CanWrite, now: Now, source_id: Id, tasks: BackgroundTasks, limits: Limited
) -> SourceOut:
    """Ask this source now. The answer comes at once; what came of it stands among the runs."""
    limits.jobs.check()
    with app.db.write() as session:
        source = source_registry.sources_to_poll(session, now, source_id)[0]
        audit_log.record(session, key.name, "source.refresh", source.name, now)
        shown = _shown(source)
    tasks.add_task(_refresh, app, source_id, limits.jobs)
    return shown


def _refresh(app: Application, source_id: int, slots: WorkSlots) -> None:
    try:
        with slots.take():
            pipeline.refresh(app, clock.utcnow(), source_id=source_id)
    except Exception:  # the answer is out already: the run and the log tell
        log.exception("refresh failed", source=source_id)


def _shown(source: Source) -> SourceOut:
    return SourceOut.model_validate(source.model_dump())
