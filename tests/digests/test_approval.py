"""Test editions that wait until an operator has approved them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from app import main, pipeline, subscribers
from app.application import Application
from app.delivery import ledger
from app.settings import Settings
from tests.support import factories
from tests.support.mail_server import MailServer

HOUR = timedelta(hours=1)


@pytest.fixture
def service(settings: Settings, now: datetime) -> Iterator[Application]:
    """Return a service that asks for approval. Alice is due at 9:00 and Bob at 12:00."""
    app = main.build(settings.model_copy(update={"approve_editions": True, "compose_ahead_minutes": 0}))
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for number in range(4):
            day = now - timedelta(days=number - 1)
            factories.add_paper(session, source, f"Language agents, part {number}", day.date(), now)
        for name, hour in (("alice", 9), ("bob", 12)):
            due = now.replace(hour=hour, minute=0)
            factories.add_subscriber(session, f"{name}@example.org", ["language agents"], due, hour=hour)
    yield app
    app.db.dispose()


def test_edition_waits_for_approval(service: Application, mail_server: MailServer, now: datetime) -> None:
    """One approval holds for the whole edition, also for those who are due later. The next edition waits."""
    pipeline.send_due(service, now)
    assert mail_server.messages == []
    with service.db.write() as session:
        assert [(each.edition, each.reason) for each in ledger.pauses(session)] == [
            ("2026-11-20", ledger.AWAITS_APPROVAL)
        ]
        assert [row.edition for row in ledger.draw_waiting(session, "2026-11-20", 5)] == ["2026-11-20"]
        ledger.resume(session, "2026-11-20")
    pipeline.send_due(service, now + HOUR)
    pipeline.send_due(service, now + 3 * HOUR)
    assert [mail.recipient for mail in mail_server.messages] == ["alice@example.org", "bob@example.org"]
    pipeline.send_due(service, now + 24 * HOUR)
    assert len(mail_server.messages) == 2
    with service.db.read() as session:
        assert [each.edition for each in ledger.pauses(session)] == ["2026-11-21"]


def test_other_mails_need_no_approval(service: Application, mail_server: MailServer, now: datetime) -> None:
    pipeline.send_due(service, now)
    with service.db.write() as session:
        subscribers.send_link(session, "alice@example.org", "", now)
    pipeline.send(service, now)
    assert [mail.recipient for mail in mail_server.messages] == ["alice@example.org"]
