"""Test that a requested first digest is sent once, while schedulers in other processes plan and send."""

from datetime import datetime

import pytest
from sqlmodel import select

from app import pipeline
from app.application import Application
from app.storage.models import Delivery, DeliveryState
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Starter
from tests.support import factories


@pytest.fixture
def check_conservation() -> None:
    """Disable the check, which compares one fixed edition."""


def test_first_digests_during_the_schedule(
    app: Application, now: datetime, relay: RelayProcess, start_sender: Starter
) -> None:
    """Every subscriber gets one row and one email, whichever process plans and sends it."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents", now.date(), now)
        readers = [
            factories.add_subscriber(session, f"reader{number}@example.org", ["agents"], now)
            for number in range(12)
        ]
    schedulers = [start_sender(now, verb="plan_and_send") for _ in range(2)]
    for reader in reversed(readers):
        for _ in range(2):
            if delivery := pipeline.plan_first(app, reader, now):
                pipeline.send_now(app, now, [delivery.id or 0])
    for scheduler in schedulers:
        scheduler.counts()
    pipeline.plan_and_send(app, now)
    with app.db.read() as session:
        rows = session.exec(select(Delivery)).all()
    assert sorted(row.subscriber_id for row in rows) == readers
    assert {row.state for row in rows} == {DeliveryState.SENT}
    copies = {name: len(mails) for name, mails in relay.copies().items()}
    assert copies == {f"reader{number}": 1 for number in range(12)}
