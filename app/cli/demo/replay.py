"""Replay the days of the demo: at each moment, send what was due between two files of the sample."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlmodel import col, func, select

from app import pipeline
from app.application import Application
from app.storage.models import Delivery, DeliveryState, Subscriber, SubscriberState

A_WHILE = timedelta(hours=2)


def deliver_between(app: Application, start: datetime, end: datetime) -> None:
    """Do at each moment what the minute schedule would have done then, without waiting for it."""
    moment = start
    while (following := _next_moment(app, moment)) is not None and following <= end:
        moment = following
        pipeline.send_due(app, moment)


def _next_moment(app: Application, after: datetime) -> datetime | None:
    """When the next reader is due, or the next mail that was composed ahead or put off."""
    due = select(func.min(Subscriber.next_due_at)).where(
        Subscriber.state == SubscriberState.ACTIVE, col(Subscriber.next_due_at) > after
    )
    again = select(func.min(Delivery.next_attempt_at)).where(
        col(Delivery.state).in_((DeliveryState.PENDING, DeliveryState.DEFERRED)),
        col(Delivery.next_attempt_at) > after,
    )
    with app.db.read() as session:
        moments = [session.exec(question).one() for question in (due, again)]
    return min((moment for moment in moments if moment is not None), default=None)
