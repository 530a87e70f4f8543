"""Key figures of the service."""

from dataclasses import asdict
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy import func
from sqlmodel import Session, col, select

from app import subscribers
from app.bounces import rates, recording
from app.delivery import ledger
from app.digests import planning
from app.papers import listing_days, source_registry
from app.storage.models import DeliveryState, InterestRow, Paper, SubscriberState
from app.web.api.auth import CanRead
from app.web.api.values import Representation

router = APIRouter(prefix="/statistics", tags=["statistics"])


class DayCount(BaseModel):
    """The number of papers on a day."""

    day: date
    count: int = Field(examples=[78])


class ReceiverOut(Representation):
    """The emails to one receiver during the warm-up."""

    receiver: str = Field(description="A provider, or a domain.", examples=["google"])
    sent: int = Field(description="Emails sent today (UTC).")
    waiting: int = Field(description="Digests that must wait until tomorrow.")


class WarmUpOut(Representation):
    """The warm-up of the sending domain (PAPERBOY_WARM_UP_START)."""

    day: date
    start: date
    unlimited_from: date
    limit: int | None = Field(
        description="The maximum number of emails to each receiver today. Null before and after the warm-up."
    )
    waiting: int = Field(description="Digests that wait until tomorrow.")
    receivers: list[ReceiverOut]


_AGE = "With over 10,000 subscribers, they may be up to ten minutes old."


class Statistics(BaseModel):
    """Key figures of the service."""

    at: datetime
    subscribers: dict[SubscriberState, int] = Field(examples=[{"active": 1000, "pending": 12}])
    changes: dict[str, int] = Field(
        examples=[{"confirmed": 12, "unsubscribed": 3}],
        description="Events of subscribers in the last `days` days, such as confirmations, by kind.",
    )
    interests: int = Field(description="The number of distinct interests of all subscribers.")
    papers: int
    papers_per_day: list[DayCount] = Field(
        description="The number of papers on each of the latest days with papers."
    )
    digests: dict[DeliveryState, int] = Field(
        description=f"Digests due in the last `days` days, by state. {_AGE}"
    )
    digest_lateness_seconds: float = Field(description="The waiting time of the oldest overdue digest.")
    sources: int
    sources_failing: int
    warm_up: WarmUpOut | None = Field(description="Null if no warm-up is configured.")


@router.get("")
def get_statistics(caller: CanRead, days: Annotated[int, Query(ge=1, le=366)] = 14) -> Statistics:
    """Return counts of subscribers, papers and sources, papers per day, and recent digests by state."""
    since = caller.now - timedelta(days=days)
    with caller.db.read() as session:
        sources = source_registry.all_sources(session)
        warm_up = ledger.warm_up_status(session, ledger.warm_up_of(caller.settings), caller.now)
        return Statistics(
            at=caller.now,
            subscribers=subscribers.count_by_state(session),
            changes=subscribers.count_changes(session, since, caller.now),
            interests=session.exec(select(func.count(func.distinct(InterestRow.query_id)))).one(),
            papers=count_papers(session),
            papers_per_day=[
                DayCount(day=day, count=count) for day, count in listing_days.latest(session, limit=days)
            ],
            digests=caller.figures.get(
                session,
                f"digests of {days} days",
                caller.now,
                partial(ledger.digest_totals_since, session, since),
            ),
            digest_lateness_seconds=planning.lateness(session, caller.now).total_seconds(),
            sources=len(sources),
            sources_failing=sum(source.failures > 0 for source in sources),
            warm_up=WarmUpOut.model_validate(warm_up) if warm_up else None,
        )


class MailRate(BaseModel):
    """The numbers of emails, bounces and complaints of a receiver on a UTC day."""

    day: date
    receiver: str = Field(description="A provider with many domains, or `others`.", examples=["google"])
    sent: int
    bounces: int
    complaints: int = Field(description="Subscribers who complained, each counted once.")
    complaint_percent: float


@router.get("/rates")
def get_rates(caller: CanRead, days: Annotated[int, Query(ge=1, le=31)] = 7) -> list[MailRate]:
    """Count sent emails, bounces and complaints by UTC day and receiver, newest day first.

    Subscribers who have been erased are not counted. With over 10,000 subscribers, the counts may be up to
    ten minutes old.
    """
    with caller.db.read() as session:
        count = partial(rates.by_day, session, caller.now, days)
        receiver_rates = caller.figures.get(
            session, f"rates of {days} days until {caller.now.date()}", caller.now, count
        )
    return [MailRate(**asdict(rate), complaint_percent=rate.complaint_percent) for rate in receiver_rates]


class DayOut(BaseModel):
    """The number of subscribers with each kind of event on a UTC day. A subscriber counts once per kind."""

    day: date
    joined: int = Field(description="Subscribers who confirmed, were added or imported, or came back.")
    left: int = Field(description="Subscribers who unsubscribed or were erased.")
    bounces: int = Field(description="Subscribers whose email bounced, permanently or not.")
    complaints: int


_EVENTS = {
    "joined": ("confirmed", "added", "came_back"),
    "left": ("unsubscribed", "erased"),
    "bounces": (recording.HARD, recording.SOFT),
    "complaints": (recording.COMPLAINT,),
}


@router.get("/days")
def get_days(caller: CanRead, days: Annotated[int, Query(ge=1, le=366)] = 30) -> list[DayOut]:
    """Count the subscribers who joined, left, bounced or complained, by UTC day, newest first.

    With over 10,000 subscribers, the counts may be up to ten minutes old.
    """
    last = [caller.now.date() - timedelta(days=back) for back in range(days)]
    with caller.db.read() as session:
        count = partial(subscribers.count_by_day, session, _EVENTS, datetime.combine(last[-1], time(), UTC))
        counts = caller.figures.get(session, f"days since {last[-1]}", caller.now, count)
    return [DayOut(day=day, **counts.get(day, dict.fromkeys(_EVENTS, 0))) for day in last]


class NoticeOut(Representation):
    """A complaint about an email, or a bounce."""

    at: datetime
    kind: str = Field(examples=["complaint"], description="complaint, bounce or soft_bounce.")
    detail: str
    subscriber_id: int
    email: str = Field(examples=["alice@example.org"])


class NoticeList(BaseModel):
    """Complaints, then bounces, each newest first."""

    items: list[NoticeOut]


@router.get("/notices")
def get_notices(
    caller: CanRead, days: Annotated[int, Query(ge=1, le=31)] = 30,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> NoticeList:  # fmt: skip
    """Return the complaints and bounces of the last `days` days, each with the subscriber."""
    with caller.db.read() as session:
        notices = rates.newest_notices(session, caller.now, days, limit)
    return NoticeList(items=[NoticeOut.model_validate(notice) for notice in notices])


def count_papers(session: Session) -> int:
    """Count the papers. Merged papers count as one."""
    statement = select(func.count()).select_from(Paper).where(col(Paper.merged_into_id).is_(None))
    return session.exec(statement).one()
