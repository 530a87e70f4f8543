"""What a digest would be: for a reader, for any interests, or as a mail to an address of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from app import pipeline, subscribers
from app.application import Application
from app.digests import backtesting
from app.digests.explanation_types import Explanation
from app.errors import Conflict, NotFound
from app.storage import audit_log, rate_limits
from app.subscribers import Preferences
from app.types import Digest, Interest, SendOutcome, Skip
from app.web.api import problems
from app.web.api.auth import Analysis, CanRead, CanSend, Id, Now, Paperboy
from app.web.api.subscribers import InterestIn, Text
from app.web.api.values import FROM_JSON, Day, Integer, Moment

router = APIRouter(tags=["digests"])

HOUR = timedelta(hours=1)
TESTS_AN_HOUR = 20  # a key: one that leaked must not become somebody's bulk mailer
TESTS_TO_A_MAILBOX = 5  # an hour

Named = Annotated[
    str,
    Path(
        description="The paper's number here, its arXiv id, DOI or URL, as `paperboy explain` takes it.",
        examples=["2511.01234"],
        max_length=2000,
    ),
]
NOBODY = "reader@example.org"  # whom a rendered preview is addressed to


class Preview(BaseModel):
    """A digest as it would be now, or the reason why there would be none."""

    edition: str = Field(examples=["2026-11-20"])
    skipped: str | None = Field(description="Why there would be no digest.")
    considered: int = Field(description="How many papers were looked at.", examples=[412])
    note: str
    sections: list[dict[str, Any]] = Field(
        examples=[[{"interest": "agents", "picks": [{"paper_id": 7, "title": "…", "reason": "…"}]}]]
    )
    subject: str
    html: str
    text: str


class PreviewRequest(BaseModel):
    """What nobody in particular might want."""

    model_config = ConfigDict(extra="forbid")
    interests: list[InterestIn] = Field(min_length=1, max_length=subscribers.MAX_INTERESTS)
    day: Day | None = Field(default=None, description="As on this day; today, if left out.")
    min_papers: Integer = Field(default=1, ge=1, le=subscribers.MAX_PAPERS)
    max_papers: Integer = Field(default=10, ge=1, le=subscribers.MAX_PAPERS)
    beyond: Annotated[int, Field(ge=0, le=subscribers.MAX_PAPERS), FROM_JSON] | None = Field(
        default=None,
        description="At most so many papers that trend beyond the interests; left out: as for a new reader.",
    )
    muted: list[Text] = Field(
        default=[],
        max_length=subscribers.MAX_MUTED,
        examples=[["blockchain"]],
        description="What keeps a paper out: words, author:, cat:.",
    )


class BacktestRequest(BaseModel):
    """Interests of nobody in particular, and how far to look back."""

    model_config = ConfigDict(extra="forbid")
    interests: list[InterestIn] = Field(min_length=1, max_length=subscribers.MAX_INTERESTS)
    days: Integer = Field(default=14, ge=1, le=backtesting.MOST_DAYS)
    at: Moment | None = Field(default=None, description="Back from this moment; now, if left out.")
    max_papers: Integer = Field(default=10, ge=1, le=subscribers.MAX_PAPERS)


class EditionOut(BaseModel):
    """What a day would have brought."""

    edition: str = Field(examples=["2026-11-20"])
    at: datetime = Field(description="When it would have been due.")
    skipped: str | None = Field(description="Why there would have been no digest.")
    considered: int = Field(description="How many papers were looked at.", examples=[412])
    sections: list[dict[str, Any]]


class BacktestResult(BaseModel):
    """The digests of the last days, the oldest first."""

    items: list[EditionOut]


class Recipient(BaseModel):
    """Where a test goes."""

    model_config = ConfigDict(extra="forbid")
    to: str = Field(max_length=320, examples=["you@example.org"])


class Outcome(BaseModel):
    """What the relay said of a test."""

    verdict: SendOutcome = Field(examples=[SendOutcome.ACCEPTED])
    code: int | None = Field(examples=[250])
    answer: str = Field(examples=["2.0.0 Ok: queued"])


@router.post("/previews")
def preview(app: Paperboy, _key: CanRead, now: Now, wanted: PreviewRequest, _place: Analysis) -> Preview:
    """The digest that a new reader with these interests would get."""
    chosen = Preferences(
        interests=_wishes(wanted.interests),
        min_papers=wanted.min_papers,
        max_papers=wanted.max_papers,
        beyond=app.settings.default_beyond if wanted.beyond is None else wanted.beyond,
        muted=tuple(wanted.muted),
    )
    digest = pipeline.preview(app, subscribers.check(chosen), now, day=wanted.day)
    return _shown(app, digest, (wanted.day or now.date()).isoformat(), now)


@router.post("/backtests")
def backtest(
    app: Paperboy, _key: CanRead, now: Now, wanted: BacktestRequest, _place: Analysis
) -> BacktestResult:
    """What these interests would have brought, day by day, each paper once."""
    wishes = _wishes(wanted.interests)
    editions = pipeline.backtest(app, wanted.at or now, wishes, wanted.days, max_papers=wanted.max_papers)
    return BacktestResult(items=[_brought(edition) for edition in editions])


@router.get("/subscribers/{subscriber_id}/explain/{paper:path}", responses=problems.responses(404))
def explain(
    app: Paperboy,
    _key: CanRead,
    now: Now,
    subscriber_id: Id,
    paper: Named,
    _place: Analysis,
    at: Annotated[Moment | None, Query(description="As at this moment; now, if left out.")] = None,
) -> Explanation:
    """Why this reader was sent this paper, or why not: every number on the way.

    Listings, votes, the reader's state and opinions, and what was promised are those of the moment; settings
    and interests are today's.
    """
    return pipeline.explain(app, now, str(subscriber_id), paper, at)


@router.get("/subscribers/{subscriber_id}/preview", responses=problems.responses(404))
def preview_for_subscriber(
    app: Paperboy, _key: CanRead, now: Now, subscriber_id: Id, _place: Analysis
) -> Preview:
    """The digest that this reader would get now: without the papers that they have had already."""
    edition, digest = _foreseen(app, subscriber_id, now)
    return _shown(app, digest, edition, now)


@router.post("/subscribers/{subscriber_id}/test-send", responses=problems.responses(404, 409))
def send_test(
    app: Paperboy,
    key: CanSend,
    now: Now,
    subscriber_id: Id,
    wanted: Recipient,
    _place: Analysis,
) -> Outcome:
    """Send this reader's digest, as it would be now, to an address of your own.

    It is outside of the ledger: the reader's digest stays due. The links in it grant nothing.
    """
    to = subscribers.normalise_address(wanted.to)
    _, digest = _foreseen(app, subscriber_id, now)
    if isinstance(digest, Skip):
        raise Conflict(f"there would be no digest: {digest.reason}")
    with app.db.write() as session:
        rate_limits.limit(session, f"tests of key {key.id}", TESTS_AN_HOUR, now, HOUR)
        rate_limits.limit(session, f"tests to {subscribers.mailbox_hash(to)}", TESTS_TO_A_MAILBOX, now, HOUR)
        audit_log.record(session, key.name, "digest.test", subscriber_id, now, to=to)
    answer = pipeline.send_test(app, digest, to, now)
    return Outcome(verdict=answer.outcome, code=answer.code, answer=answer.text)


def _wishes(interests: Sequence[InterestIn]) -> tuple[Interest, ...]:
    """Interests as the pipeline takes them, or InvalidPreference, which says what to change about one."""
    wanted = tuple(Interest(each.text, each.weight, each.quota) for each in interests)
    return subscribers.check(Preferences(interests=wanted)).interests


def _brought(edition: backtesting.Edition) -> EditionOut:
    digest, when = edition.digest, {"edition": edition.edition, "at": edition.at}
    if isinstance(digest, Skip):
        return EditionOut(**when, skipped=digest.reason, considered=0, sections=[])
    sections = [asdict(section) for section in digest.sections]
    return EditionOut(**when, skipped=None, considered=digest.considered, sections=sections)


def _foreseen(app: Application, subscriber_id: int, now: datetime) -> tuple[str, Digest | Skip]:
    foreseen = pipeline.preview_due(app, now, [subscriber_id])
    if not foreseen:
        raise NotFound("There is no such reader.")
    return foreseen[0].edition, foreseen[0].digest


def _shown(app: Application, digest: Digest | Skip, edition: str, now: datetime) -> Preview:
    if isinstance(digest, Skip):
        empty = {"considered": 0, "note": "", "sections": [], "subject": "", "html": "", "text": ""}
        return Preview(edition=edition, skipped=digest.reason, **empty)
    mail = pipeline.render_digest(app, digest, NOBODY, now)
    return Preview(skipped=None, subject=mail.subject, html=mail.html, text=mail.text, **asdict(digest))
