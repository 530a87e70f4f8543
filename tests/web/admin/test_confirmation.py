"""Test the pages that ask before an action that cannot be undone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app import clock, subscribers
from app.application import Application
from app.delivery import ledger
from app.papers import source_registry
from app.storage import webhook_endpoints
from app.storage.api_keys import Scope
from app.subscribers import Preferences
from app.types import Interest, Skip, SourceKind
from tests.web.admin.conftest import Desk

EDITION = "2026-11-20"
ASKED_ON = {  # the page with the link, by the page that asks
    "/admin/sources/1/remove": "/admin/sources",
    "/admin/webhooks/1/remove": "/admin/webhooks/1",
    "/admin/keys/1/revoke": "/admin/keys",
    f"/admin/editions/{EDITION}/cancel": f"/admin/editions/{EDITION}",
}


@pytest.fixture
def filled(app: Application) -> None:
    """Add a source, a webhook and an edition."""
    now = clock.utcnow()
    with app.db.write() as session:
        config = {"categories": ["cs.CL", "stat.ML"]}
        source_registry.add(session, "announcements", SourceKind.ARXIV_FEED, config, now)
        webhook_endpoints.add(session, "https://hook.test/", ["sending.paused"], False, now)
        alice = subscribers.add(
            session, "alice@example.org", Preferences(interests=(Interest("x-rays"),)), now
        )
        ledger.add_entries(session, [ledger.Entry(alice, EDITION, now, Skip("none"))], now)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("asks", ASKED_ON)
def test_nothing_happens_before_the_answer(sign_in: Callable[..., Desk], asks: str) -> None:
    """The page leads to a question, which says what follows. Only its button acts."""
    desk = sign_in()
    listed = desk.get(ASKED_ON[asks]).text
    assert f'href="{asks}"' in listed
    assert f'action="{asks}"' not in listed
    question = desk.get(asks)
    assert question.status_code == 200
    assert question.text.count(f'<form method="post" action="{asks}">') == 1
    assert ">Go back</a>" in question.text
    assert desk.get(ASKED_ON[asks]).text == listed
    assert desk.post(asks).status_code == 303


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("asks", ASKED_ON)
def test_no_question_without_the_scope(sign_in: Callable[..., Desk], asks: str) -> None:
    """An operator who may not act sees no link and no question, and cannot act."""
    desk = sign_in(Scope.READ)
    assert f'href="{asks}"' not in desk.get(ASKED_ON[asks]).text
    assert desk.get(asks).status_code == 403
    assert desk.post(asks).status_code == 403


@pytest.mark.usefixtures("filled")
def test_removed_source_can_be_added_again(sign_in: Callable[..., Desk]) -> None:
    """The question shows what it reads, because the list does not show removed sources."""
    question = sign_in().get("/admin/sources/1/remove").text
    assert "<dd>arXiv, daily announcements</dd>" in question
    assert "<dd>cs.CL stat.ML</dd>" in question
