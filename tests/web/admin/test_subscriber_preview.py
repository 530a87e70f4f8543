"""Test the page with the digest that a subscriber would get now."""

import html
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlmodel import select

from app import clock, subscribers
from app.application import Application
from app.storage.models import AuditEntry, Delivery, Event, Paper, Subscriber
from app.subscribers import Preferences
from app.types import Interest
from app.web.capacity import Capacity
from tests.support import factories
from tests.web.admin.conftest import Desk


@pytest.fixture
def alice(app: Application) -> int:
    """Add Alice and three papers for her."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now, "A feed")
        for back in (1, 2, 3):
            day = now - timedelta(days=back)
            factories.add_paper(session, source, f"Diffusion Models {back}", day.date(), day)
        wanted = Preferences(interests=(Interest("diffusion models"),))
        return subscribers.add(session, "alice@example.org", wanted, now - timedelta(days=3))


def frame_of(desk: Desk, alice: int) -> str:
    """Return the path that the frame on the page shows."""
    page = desk.get(f"/admin/subscribers/{alice}/preview").text
    (path,) = re.findall(r'<iframe [^>]*src="([^"]*)"', page)
    return str(path)


def contents(app: Application) -> list[object]:
    with app.db.read() as session:
        tables = (Subscriber, Event, Delivery, AuditEntry)
        return [row.model_dump() for table in tables for row in session.exec(select(table)).all()]


def test_links_in_the_preview_do_nothing(app: Application, sign_in: Callable[..., Desk], alice: int) -> None:
    """Neither a click nor a mail program's one-click request unsubscribes Alice or votes in her name."""
    desk = sign_in()
    framed = desk.get(frame_of(desk, alice)).text
    before = contents(app)
    links = set(re.findall(r'href="https://paperboy\.test(/[^"]+/[^"]+)"', html.unescape(framed)))
    personal = {link for link in links if not link.startswith("/paper/")}
    assert any(link.startswith("/unsubscribe/") for link in personal)
    for link in personal:
        answer = desk.browser.post(link, data={"List-Unsubscribe": "One-Click"}, follow_redirects=False)
        assert desk.get(link).status_code == 403, link
        assert answer.status_code in (403, 405), link
    assert contents(app) == before


def test_frame_says_why_there_is_no_digest(
    app: Application, sign_in: Callable[..., Desk], alice: int
) -> None:
    """The frame may be shown, and says what has changed or what to do."""
    desk = sign_in()
    path = frame_of(desk, alice)
    limits: Capacity = desk.browser.app.state.capacity  # type: ignore[attr-defined]
    with limits.analyses.take(), limits.analyses.take():
        busy = desk.get(path)
    assert (busy.status_code, "reload the page" in busy.text) == (429, True)
    assert busy.headers["retry-after"]
    with app.db.write() as session:
        for paper in session.exec(select(Paper)).all():
            paper.hidden_at = clock.utcnow()
            session.add(paper)
    skipped = desk.get(path)
    assert "There would be no digest now: " in skipped.text
    for answer in (busy, skipped):
        assert answer.headers["x-frame-options"] == "SAMEORIGIN"
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
