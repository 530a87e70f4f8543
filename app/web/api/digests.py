"""Preview, backtest, explain and test digests."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from app import pipeline, subscribers
from app.delivery.send_result import SendOutcome
from app.digests import backtesting
from app.digests.explanation_types import Explanation
from app.errors import NotFound
from app.storage import hit_counters
from app.subscribers import Preferences
from app.types import DEFAULT_MAX_PAPERS, DEFAULT_MIN_PAPERS, Digest, Interest, Skip, UpdateKind
from app.web.api import problems
from app.web.api.auth import Analysis, Caller, CanRead, CanSend, Id
from app.web.api.interests import HintOut
from app.web.api.subscribers import MUTED, InterestIn, Text
from app.web.api.values import FROM_JSON, Day, Integer, Moment, RequestBody

router = APIRouter(tags=["digests"])

HOUR = timedelta(hours=1)
TESTS_TO_A_MAILBOX = 5  # an hour

PaperName = Annotated[
    str,
    Path(
        description="The paper's ID, arXiv ID, DOI or URL, as in `paperboy explain`.",
        examples=["2511.01234"],
        max_length=2000,
    ),
]
NOBODY = "reader@example.org"  # recipient of a preview that is for nobody in particular


class UpdateOut(BaseModel):
    """An update on a paper that a subscriber received or liked earlier."""

    kind: UpdateKind
    paper_id: int
    title: str
    url: str = Field(description="The URL of the code if the paper now has code, otherwise of the paper.")


class PreviewResponse(BaseModel):
    """The digest that would be sent, or the reason why it would be skipped."""

    edition: str = Field(examples=["2026-11-20"])
    skipped: str | None = Field(description="The reason for skipping the digest, or null.")
    considered: int = Field(description="Number of candidate papers.", examples=[412])
    note: str
    sections: list[dict[str, Any]] = Field(
        examples=[[{"interest": "agents", "picks": [{"paper_id": 7, "title": "…", "reason": "…"}]}]]
    )
    updates: list[UpdateOut] = Field(default=[], description="Updates on papers sent or liked earlier.")
    subject: str
    html: str
    text: str
    hints: list[HintOut] = Field(
        default=[], description="Hints on interests that may be misspelled or that match nothing."
    )


class PreviewRequest(RequestBody):
    """The preferences for a preview."""

    interests: list[InterestIn] = Field(min_length=1, max_length=subscribers.ABSOLUTE_MAX_INTERESTS)
    day: Day | None = Field(default=None, description="The day of the digest. Default: today.")
    min_papers: Integer = Field(default=DEFAULT_MIN_PAPERS, ge=1, le=subscribers.MAX_PAPERS)
    max_papers: Annotated[int, Field(ge=1, le=subscribers.MAX_PAPERS), FROM_JSON] | None = Field(
        default=None, description="Default: PAPERBOY_DEFAULT_MAX_PAPERS."
    )
    max_trending: Annotated[int, Field(ge=0, le=subscribers.MAX_PAPERS), FROM_JSON] | None = Field(
        default=None,
        description="Maximum number of trending papers beyond the interests. "
        "Default: PAPERBOY_DEFAULT_MAX_TRENDING.",
    )
    muted: list[Text] = Field(
        default=[], max_length=subscribers.MAX_MUTED, examples=[["blockchain"]], description=MUTED
    )


class BacktestRequest(RequestBody):
    """The interests to test, and the number of past days."""

    interests: list[InterestIn] = Field(min_length=1, max_length=subscribers.ABSOLUTE_MAX_INTERESTS)
    days: Integer = Field(
        default=14,
        ge=1,
        le=backtesting.MAX_DAYS,
        description="The number of days. The day of `at` counts if its digest was due by then.",
    )
    at: Moment | None = Field(default=None, description="The end of the tested period. Default: now.")
    max_papers: Integer = Field(default=DEFAULT_MAX_PAPERS, ge=1, le=subscribers.MAX_PAPERS)


class BacktestEdition(BaseModel):
    """The digest for a past day."""

    edition: str = Field(examples=["2026-11-20"])
    at: datetime = Field(description="The time at which the digest would have been due.")
    skipped: str | None = Field(description="The reason for skipping the digest, or null.")
    considered: int = Field(description="Number of candidate papers.", examples=[412])
    sections: list[dict[str, Any]]


class BacktestResult(BaseModel):
    """The digests for past days, oldest first."""

    items: list[BacktestEdition]


class Recipient(RequestBody):
    """The recipient of a test digest."""

    to: str = Field(max_length=320, examples=["you@example.org"])


class Outcome(BaseModel):
    """The relay's response to a test digest."""

    outcome: SendOutcome = Field(examples=[SendOutcome.ACCEPTED])
    code: int | None = Field(examples=[250])
    reply: str = Field(examples=["2.0.0 Ok: queued"])
    edition: str = Field(description="The edition of the digest that was sent.", examples=["2026-11-20"])


@router.post("/previews")
def preview(caller: CanRead, body: PreviewRequest, _slot: Analysis) -> PreviewResponse:
    """Preview the digest that a new subscriber with these interests would get."""
    chosen = Preferences(
        interests=_to_interests(body.interests),
        min_papers=body.min_papers,
        max_papers=caller.settings.default_max_papers if body.max_papers is None else body.max_papers,
        max_trending=caller.settings.default_max_trending if body.max_trending is None else body.max_trending,
        muted=tuple(body.muted),
    )
    digest, hints = pipeline.preview(
        caller.app, subscribers.check(chosen, caller.settings.max_interests), caller.now, day=body.day
    )
    response = _preview_out(caller, digest, (body.day or caller.now.date()).isoformat())
    return response.model_copy(update={"hints": [HintOut.of(hint) for hint in hints]})


@router.post("/backtests")
def backtest(caller: CanRead, body: BacktestRequest, _slot: Analysis) -> BacktestResult:
    """Return the digests that these interests would have produced on past days. No paper appears twice."""
    interests = _to_interests(body.interests)
    editions = pipeline.backtest(
        caller.app, body.at or caller.now, interests, body.days, max_papers=body.max_papers
    )
    items = [
        BacktestEdition(
            edition=edition.edition,
            at=edition.at,
            skipped=edition.digest.reason if isinstance(edition.digest, Skip) else None,
            considered=edition.digest.considered,
            sections=[] if isinstance(edition.digest, Skip) else edition.digest.as_dict()["sections"],
        )
        for edition in editions
    ]
    return BacktestResult(items=items)


@router.get("/subscribers/{subscriber_id}/explain/{paper:path}", responses=problems.responses(404))
def explain(
    caller: CanRead,
    subscriber_id: Id,
    paper: PaperName,
    _slot: Analysis,
    at: Annotated[Moment | None, Query(description="An earlier time. Default: now.")] = None,
) -> Explanation:
    """Explain why a subscriber did or did not get a paper, with every number used to rank it.

    Listings, votes, feedback, planned papers and the subscriber's state are those at the given time. The
    preferences and interests are the current ones: `note` and `changes_since` tell whether they have changed
    since that time, or since the digest with the paper.
    """
    return pipeline.explain(caller.app, caller.now, str(subscriber_id), paper, at)


@router.get("/subscribers/{subscriber_id}/preview", responses=problems.responses(404))
def preview_for_subscriber(caller: CanRead, subscriber_id: Id, _slot: Analysis) -> PreviewResponse:
    """Preview the digest that a subscriber would get now, without papers that they already received."""
    preview = next(pipeline.preview_due(caller.app, caller.now, [subscriber_id]), None)
    if preview is None:
        raise NotFound("There is no such subscriber.")
    return _preview_out(caller, preview.digest, preview.edition, preview.email or NOBODY)


@router.post("/subscribers/{subscriber_id}/test-send", responses=problems.responses(404, 409))
def send_test(caller: CanSend, subscriber_id: Id, body: Recipient, _slot: Analysis) -> Outcome:
    """Send the digest that a subscriber would get now, or else their last one, to another address.

    The ledger does not record it, so the subscriber's digest remains due. The links in the test do not work.
    """
    to = subscribers.normalize_address(body.to)
    digest = pipeline.latest_digest(caller.app, caller.now, subscriber_id).digest
    with caller.db.write() as session:
        by_key, to_mailbox = f"tests of key {caller.key.id}", f"tests to {subscribers.mailbox_hash(to)}"
        hit_counters.limit(session, by_key, caller.settings.test_sends_per_hour, caller.now, HOUR)
        hit_counters.limit(session, to_mailbox, TESTS_TO_A_MAILBOX, caller.now, HOUR)
        caller.record(session, "digest.test", subscriber_id, to=to)
    result = pipeline.send_test(caller.app, digest, to, caller.now)
    return Outcome(outcome=result.outcome, code=result.code, reply=result.text, edition=digest.edition)


def _to_interests(interests: Sequence[InterestIn]) -> tuple[Interest, ...]:
    """Convert and validate interests. Raise InvalidPreference if one is invalid."""
    converted = tuple(item.to_interest() for item in interests)
    return subscribers.check(Preferences(interests=converted)).interests


def _preview_out(caller: Caller, digest: Digest | Skip, edition: str, to: str = NOBODY) -> PreviewResponse:
    if isinstance(digest, Skip):
        empty = {"note": "", "sections": [], "subject": "", "html": "", "text": ""}
        return PreviewResponse(edition=edition, skipped=digest.reason, considered=digest.considered, **empty)
    mail = pipeline.render_digest(caller.app, digest, to, caller.now)
    values = digest.as_dict() | {"updates": [UpdateOut(**item._asdict()) for item in digest.updates]}
    return PreviewResponse(skipped=None, subject=mail.subject, html=mail.html, text=mail.text, **values)
