"""Sources of papers: add, change, pause, resume and poll them."""

from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, Field

from app import pipeline
from app.papers import poll_history, poll_schedule, source_registry
from app.storage.models import Source
from app.types import SourceKind
from app.web import background
from app.web.api import problems
from app.web.api.auth import CanRead, CanWrite, Id
from app.web.api.etags import IfMatch, Versioned, require_match
from app.web.api.values import Representation, RequestBody

router = APIRouter(prefix="/sources", tags=["sources"])

POLLS_LISTED = 50

Config = Annotated[
    dict[str, Any],
    Field(
        examples=[{"categories": ["cs.CL", "cs.LG"]}],
        description="arxiv: categories or query. arxiv_feed: categories. feed: url. huggingface: empty. "
        "arxiv_oai: set, from and until, all optional.",
    ),
]


class SourceOut(Versioned):
    """A source with its status."""

    id: int
    name: str = Field(examples=["arxiv"])
    kind: SourceKind
    config: Config
    paused: bool
    watermark: date | None = Field(description="The last day whose papers were all read.")
    next_poll_at: datetime | None
    polled_at: datetime | None = Field(description="The time of the last successful poll.")
    failures: int = Field(description="The number of failed polls in a row.", examples=[0])
    last_error: str | None
    created_at: datetime
    state: str = Field(description="The state in words, as on the admin pages.", examples=["works"])


class NewSource(RequestBody):
    """A source to add."""

    name: str = Field(examples=["A lab's blog"])
    kind: SourceKind = Field(examples=["feed"])
    config: Config = Field(default={})


class SourceChange(RequestBody):
    """Changes to a source. If `config` changes, the papers are fetched as if the source were new."""

    name: str | None = None
    config: Config | None = None


class SourceTrial(RequestBody):
    """A source to try."""

    kind: SourceKind = Field(examples=["feed"])
    config: Config = Field(default={})


class TrialPaperOut(BaseModel):
    """A paper that the source lists."""

    title: str
    arxiv_id: str
    doi: str
    url: str
    listed_on: date | None
    published_on: date | None
    paper_id: int | None = Field(description="The ID of the paper in the archive; null if it is new.")


class RejectionOut(BaseModel):
    """A row that cannot be used."""

    row: int | None
    reason: str
    detail: str


class TrialOut(BaseModel):
    """The newest papers of a source that was tried. Nothing was stored."""

    rows: int = Field(description="The number of rows read, including the skipped ones.")
    new: int = Field(description="Papers that are not in the archive.")
    existing: int = Field(description="Papers that are already in the archive.")
    skipped: int = Field(description="Rows that cannot be used.")
    papers: list[TrialPaperOut] = Field(description="The newest of the papers.")
    rejections: list[RejectionOut] = Field(description="The first rows that cannot be used.")
    warning: str = Field(description="The reason why papers may be missing, or empty.")
    error: str = Field(description="The reason why the source could not be read, or empty.")


class PollOut(Representation):
    """A poll of a source."""

    started_at: datetime
    ended_at: datetime
    counts: dict[str, int]
    rejections: list[RejectionOut] = Field(description="The first rejected rows.")
    error: str


class PollList(BaseModel):
    """The last polls of a source, newest first."""

    items: list[PollOut]


class SourceList(BaseModel):
    """All sources, without pagination."""

    items: list[SourceOut]


@router.get("")
def list_sources(caller: CanRead) -> SourceList:
    """List all sources by name."""
    with caller.db.read() as session:
        return SourceList(items=[_to_out(source) for source in source_registry.all_sources(session)])


@router.post("", status_code=201, responses=problems.responses(409))
def add_source(caller: CanWrite, body: NewSource) -> SourceOut:
    """Add a source. Its first poll, within minutes, also fetches earlier papers."""
    with caller.db.write() as session:
        source = source_registry.add(session, body.name, body.kind, body.config, caller.now)
        caller.record(session, "source.add", source.name, kind=source.kind)
        return _to_out(source)


@router.post("/trial", responses=problems.responses(409))
def try_source(caller: CanWrite, body: SourceTrial) -> TrialOut:
    """Try a source: fetch its newest papers, but store nothing. The response may take a minute."""
    with caller.capacity.jobs.take():
        result = pipeline.try_source(caller.app, body.kind, body.config, caller.now)
    papers = [TrialPaperOut(**asdict(paper.record), paper_id=paper.paper_id) for paper in result.papers]
    return TrialOut(
        rows=result.rows, new=result.new, existing=result.existing, skipped=result.rejected, papers=papers,
        rejections=[RejectionOut.model_validate(each, from_attributes=True) for each in result.rejections],
        warning=result.warning, error=result.error,
    )  # fmt: skip


@router.get("/{source_id}/polls", responses=problems.responses(404))
def list_polls(caller: CanRead, source_id: Id) -> PollList:
    """List the last polls of a source with their counts and errors."""
    with caller.db.read() as session:
        source_registry.get(session, source_id)
        polls = poll_history.latest(session, source_id, POLLS_LISTED)
    return PollList(items=[PollOut.model_validate(poll) for poll in polls])


@router.get("/{source_id:int}", responses=problems.responses(404))
def get_source(caller: CanRead, source_id: Id) -> SourceOut:
    """Return a source."""
    with caller.db.read() as session:
        return _to_out(source_registry.get(session, source_id))


@router.patch("/{source_id:int}", responses=problems.responses(404, 409, 412))
def change_source(caller: CanWrite, source_id: Id, body: SourceChange, if_match: IfMatch = None) -> SourceOut:
    """Rename or reconfigure a source."""
    with caller.db.write() as session:
        source = source_registry.get_for_update(session, source_id)
        require_match(if_match, _to_out(source))
        source_registry.change(session, source, caller.now, name=body.name, config=body.config)
        caller.record(session, "source.change", source.name)
        return _to_out(source)


@router.delete("/{source_id:int}", status_code=204, responses=problems.responses(404, 412))
def remove_source(caller: CanWrite, source_id: Id, if_match: IfMatch = None) -> None:
    """Remove a source. Its papers and votes remain. If it is added again, it is read from the beginning."""
    with caller.db.write() as session:
        source = source_registry.get_for_update(session, source_id)
        require_match(if_match, _to_out(source))
        source_registry.remove(session, source, caller.now)
        caller.record(session, "source.remove", source.name)


@router.post("/{source_id}/pause", responses=problems.responses(404))
def pause_source(caller: CanWrite, source_id: Id) -> SourceOut:
    """Stop polling a source until it is resumed."""
    with caller.db.write() as session:
        source = source_registry.get(session, source_id)
        source_registry.pause(session, source)
        caller.record(session, "source.pause", source.name)
        return _to_out(source)


@router.post("/{source_id}/resume", responses=problems.responses(404))
def resume_source(caller: CanWrite, source_id: Id) -> SourceOut:
    """Resume polling a source. Polling starts at once, from where it stopped."""
    with caller.db.write() as session:
        source = source_registry.get(session, source_id)
        source_registry.resume(session, source, caller.now)
        caller.record(session, "source.resume", source.name)
        return _to_out(source)


@router.post("/{source_id}/refresh", status_code=202, responses=problems.responses(404, 409))
def refresh_source(caller: CanWrite, source_id: Id, tasks: BackgroundTasks) -> SourceOut:
    """Start polling a source now. The response is immediate. See /runs for the result."""
    caller.capacity.jobs.check()
    with caller.db.write() as session:
        source = poll_schedule.sources_to_poll(session, caller.now, source_id)[0]
        caller.record(session, "source.refresh", source.name)
        response = _to_out(source)
    tasks.add_task(
        background.run_job, caller.capacity.jobs, "refresh", pipeline.refresh, caller.app, source_id=source_id
    )
    return response


def _to_out(source: Source) -> SourceOut:
    return SourceOut.model_validate(source.model_dump() | {"state": source_registry.describe_state(source)})
