"""What a digest would be: for a reader, for any interests, or as a mail to an address of one's own."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from app import audit, pipeline, subscribers
from app.errors import Conflict, NotFound
from app.interest import parse
from app.pipeline import App
from app.records import Digest, Skip, Verdict, Wish
from app.web.api import problems
from app.web.api.access import Id, Now, Paperboy, Reader, Sender
from app.web.api.subscribers import InterestIn
from app.web.security import Limits

router = APIRouter(tags=["digests"])

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


class Wanted(BaseModel):
    """Interests of nobody in particular."""

    model_config = ConfigDict(extra="forbid")
    interests: list[InterestIn] = Field(min_length=1, max_length=subscribers.MAX_INTERESTS)
    day: date | None = Field(default=None, description="As on this day; today, if left out.")
    max_papers: int = Field(default=10, ge=1, le=subscribers.MAX_PAPERS)


class Recipient(BaseModel):
    """Where a test goes."""

    model_config = ConfigDict(extra="forbid")
    to: str = Field(max_length=320, examples=["you@example.org"])


class Outcome(BaseModel):
    """What the relay said of a test."""

    verdict: Verdict = Field(examples=[Verdict.ACCEPTED])
    code: int | None = Field(examples=[250])
    answer: str = Field(examples=["2.0.0 Ok: queued"])


def _limits(request: Request) -> Limits:
    limits: Limits = request.app.state.test_limits
    return limits


@router.post("/previews")
def preview(app: Paperboy, _key: Reader, now: Now, wanted: Wanted) -> Preview:
    """The digest that a new reader with these interests would get."""
    wishes = [Wish(each.text, each.weight, each.quota) for each in wanted.interests]
    for wish in wishes:
        parse(wish.text)
    digest = pipeline.preview(app, wishes, now, day=wanted.day, max_papers=wanted.max_papers)
    return _shown(app, digest, (wanted.day or now.date()).isoformat(), now)


@router.get("/subscribers/{subscriber_id}/preview", responses=problems.responses(404))
def preview_for_subscriber(app: Paperboy, _key: Reader, now: Now, subscriber_id: Id) -> Preview:
    """The digest that this reader would get now: without the papers that they have had already."""
    edition, digest = _foreseen(app, subscriber_id, now)
    return _shown(app, digest, edition, now)


@router.post("/subscribers/{subscriber_id}/test-send", responses=problems.responses(404, 409))
def send_test(
    app: Paperboy,
    key: Sender,
    now: Now,
    subscriber_id: Id,
    wanted: Recipient,
    limits: Annotated[Limits, Depends(_limits)],
) -> Outcome:
    """Send this reader's digest, as it would be now, to an address of your own.

    It is outside of the ledger: the reader's digest stays due. The links in it grant nothing.
    """
    to = subscribers.normalise_address(wanted.to)
    _, digest = _foreseen(app, subscriber_id, now)
    if isinstance(digest, Skip):
        raise Conflict(f"there would be no digest: {digest.reason}")
    limits.visitor(f"key {key.id}")
    limits.address(to)
    with app.db.write() as session:
        audit.note(session, key.name, "digest.test", subscriber_id, now, to=to)
    answer = pipeline.send_test(app, digest, to, now)
    return Outcome(verdict=answer.verdict, code=answer.code, answer=answer.text)


def _foreseen(app: App, subscriber_id: int, now: datetime) -> tuple[str, Digest | Skip]:
    foreseen = pipeline.foresee(app, now, [subscriber_id])
    if not foreseen:
        raise NotFound("There is no such reader.")
    return foreseen[0].edition, foreseen[0].digest


def _shown(app: App, digest: Digest | Skip, edition: str, now: datetime) -> Preview:
    if isinstance(digest, Skip):
        empty = {"considered": 0, "note": "", "sections": [], "subject": "", "html": "", "text": ""}
        return Preview(edition=edition, skipped=digest.reason, **empty)
    mail = pipeline.show(app, digest, NOBODY, now)
    return Preview(skipped=None, subject=mail.subject, html=mail.html, text=mail.text, **asdict(digest))
