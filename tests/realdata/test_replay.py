"""Replay 74 recorded days for 50 readers: no paper is sent twice, and every due digest has one result."""

import email
import re
from collections import Counter, defaultdict
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pytest
from sqlmodel import col, select

from app import pipeline
from app.application import Application
from app.delivery import ledger
from app.digests import reconciliation
from app.papers import canonical_rows
from app.storage.models import Delivery, DeliveryState
from app.subscribers.schedule import next_due
from app.types import Cadence, EmptyDigestPolicy, MailKind
from tests.conftest import SHARED_DATA
from tests.support import factories
from tests.support.mail_server import MailServer

INTERESTS = [
    ["language agents", "tool use"],
    ["video generation"],
    ["quantization", '"mixture of experts"'],
    ["reinforcement learning -robot", "reasoning"],
    ["robotics", "vision language action"],
    ["medical imaging", "protein"],
    ["speech recognition", "text to speech", "music"],
    ["world models", "3D reconstruction"],
    ["retrieval augmented generation"],
    [],
]
RHYTHMS = [
    {"cadence": Cadence.DAILY, "zone": "Europe/Berlin", "hour": 8},
    {"cadence": Cadence.DAILY, "zone": "America/Los_Angeles", "hour": 23, "min_papers": 3},
    {"cadence": Cadence.WEEKDAYS, "zone": "Asia/Tokyo", "hour": 6, "when_empty": EmptyDigestPolicy.TRENDING},
    {"cadence": Cadence.WEEKLY, "weekday": 4, "zone": "Pacific/Auckland", "hour": 12, "max_papers": 15},
    {"cadence": Cadence.DAILY, "zone": "UTC", "hour": 0, "max_papers": 3},
]
DAY = timedelta(days=1)
TICKS = (5, 11, 16, 23)  # UTC hours: together they include every subscriber's hour


@pytest.mark.realdata
@pytest.mark.once
@pytest.mark.timeout(400)
def test_no_paper_is_sent_twice(app: Application, mail_server: MailServer) -> None:
    """Each recorded day is ingested on its day and sent at each reader's hour through a real server."""
    files = {date.fromisoformat(path.stem): path for path in (SHARED_DATA / "hf_daily").glob("*.json")}
    start = datetime.combine(min(files), datetime.min.time(), UTC)
    readers = {}
    with app.db.write() as session:
        for number, (interests, rhythm) in enumerate(product(INTERESTS, RHYTHMS)):
            address = f"reader{number}@example.org"
            due = _first_due(start, **rhythm)
            readers[address] = factories.add_subscriber(session, address, interests, due, **rhythm)
    days = set()
    for day in sorted(files):
        for following in range(2 if day + DAY not in files else 1):
            days.add(day + DAY * following)
            midnight = datetime.combine(day + DAY * following, datetime.min.time(), UTC)
            if not following:
                pipeline.read_files(app, [files[day]], midnight + timedelta(hours=4), day=day)
            for hour in TICKS:
                pipeline.plan_and_send(app, midnight + timedelta(hours=hour))

    with app.db.read() as session:
        rows = session.exec(
            select(Delivery).where(Delivery.kind == MailKind.DIGEST).order_by(col(Delivery.id))
        ).all()
        # Days between the recorded ones are an outage, after which only the newest edition is sent.
        whole = [day.isoformat() for day in sorted(days) if {day - DAY, day + DAY} <= days]
        results = [reconciliation.reconcile(session, midnight + DAY, edition) for edition in whole]
        stored = ledger.stored_digests(session, [row.id for row in rows])
        papers = {number: ledger.paper_ids(digest) for number, digest in stored.items()}
        promised = {paper for numbers in papers.values() for paper in numbers}
        today = canonical_rows.canonical_ids(session, promised)
    by_subscriber: dict[int, Counter[int]] = defaultdict(Counter)
    for row in rows:
        by_subscriber[row.subscriber_id].update(today[number] for number in papers.get(row.id or 0, ()))
    assert {number for seen in by_subscriber.values() for number, times in seen.items() if times > 1} == set()
    assert len({(row.subscriber_id, row.edition) for row in rows}) == len(rows)
    assert {row.state for row in rows} <= {DeliveryState.SENT, DeliveryState.SKIPPED}
    assert all(row.reason for row in rows if row.state is DeliveryState.SKIPPED)
    assert len(whole) > 40
    assert [result for result in results if not result.is_consistent or result.unplanned] == []
    assert sum(result.due for result in results) == sum(row.edition in whole for row in rows)
    assert sum(row.state is DeliveryState.SENT for row in rows) == len(mail_server.messages)
    _check_no_paper_was_received_twice(
        mail_server, {title for seen in by_subscriber.values() for title in seen}
    )
    assert set(by_subscriber) == set(readers.values())


def _first_due(
    start: datetime, *, hour: int, zone: str, cadence: Cadence, weekday: int = 0, **_: object
) -> datetime:
    return next_due(cadence, weekday, hour, zone, start)


def _check_no_paper_was_received_twice(server: MailServer, papers: set[int]) -> None:
    """Check the received emails: no link to a paper is in two emails to one reader."""
    links: dict[str, Counter[bytes]] = defaultdict(Counter)
    for mail in server.messages:
        parts = email.message_from_bytes(mail.data).walk()  # `parsed` takes ten times as long
        (text,) = (part for part in parts if part.get_content_type() == "text/plain")
        body = text.get_payload(decode=True)
        assert isinstance(body, bytes)
        links[mail.recipient].update(set(re.findall(rb"https://arxiv\.org/abs/\S+", body)))
    assert sum(len(seen) for seen in links.values()) > len(papers)
    assert {link for seen in links.values() for link, times in seen.items() if times > 1} == set()
