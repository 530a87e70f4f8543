"""Test the pages that ask before an action that cannot be undone."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlmodel import select

from app import clock, subscribers
from app.application import Application
from app.delivery import ledger
from app.papers import source_registry
from app.storage import webhook_endpoints
from app.storage.api_keys import Scope
from app.storage.models import Delivery, DeliveryState, SubscriberState
from app.subscribers import Preferences
from app.types import Interest, MailKind, SourceKind
from tests.support import sample_digest
from tests.web.admin.conftest import Desk

EDITION = "2026-11-20"
ASKED_ON = {  # the page with the link, by the page that asks
    "/admin/sources/1/remove": "/admin/sources",
    "/admin/webhooks/1/remove": "/admin/webhooks/1",
    "/admin/keys/1/revoke": "/admin/keys",
    f"/admin/editions/{EDITION}/cancel": f"/admin/editions/{EDITION}",
    f"/admin/editions/{EDITION}/resend-uncertain": f"/admin/editions/{EDITION}",
    f"/admin/editions/{EDITION}/confirm-uncertain": f"/admin/editions/{EDITION}",
    "/admin/subscribers/1/unsubscribe": "/admin/subscribers/1",
    "/admin/subscribers/1/new-links": "/admin/subscribers/1",
}


@pytest.fixture
def filled(app: Application) -> None:
    """Add a source, a webhook, a subscriber and an edition with an uncertain email."""
    now = clock.utcnow()
    with app.db.write() as session:
        config = {"categories": ["cs.CL", "stat.ML"]}
        source_registry.add(session, "announcements", SourceKind.ARXIV_FEED, config, now)
        webhook_endpoints.add(session, "https://hook.test/", ["sending.paused"], False, now)
        alice = subscribers.add(
            session, "alice@example.org", Preferences(interests=(Interest("x-rays"),)), now
        )
        ledger.enqueue(
            session, subscriber_id=alice, kind=MailKind.DIGEST, edition=EDITION, due_at=now, now=now,
            digest=sample_digest.digest(EDITION),
        )  # fmt: skip
        session.exec(select(Delivery)).one().state = DeliveryState.UNCERTAIN


def without_form_ids(page: str) -> str:
    """Return a page without what differs each time that it is shown."""
    return re.sub(r'name="form_id" value="[\w-]+"', "", page)


@pytest.mark.usefixtures("filled", "mail_server")
@pytest.mark.parametrize("asks", ASKED_ON)
def test_nothing_happens_before_the_answer(sign_in: Callable[..., Desk], asks: str) -> None:
    """The page leads to a question, which says what follows. Only its button acts."""
    desk = sign_in()
    listed = without_form_ids(desk.get(ASKED_ON[asks]).text)
    assert f'href="{asks}"' in listed
    assert f'action="{asks}"' not in listed
    question = desk.get(asks)
    assert question.status_code == 200
    assert question.text.count(f'<form method="post" action="{asks}">') == 1
    assert ">Go back</a>" in question.text
    assert without_form_ids(desk.get(ASKED_ON[asks]).text) == listed
    assert desk.press(asks).status_code == 303


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("asks", ASKED_ON)
def test_no_question_without_the_scope(sign_in: Callable[..., Desk], asks: str) -> None:
    """An operator who may not act sees no link and no question, and cannot act."""
    desk = sign_in(Scope.READ)
    assert f'href="{asks}"' not in desk.get(ASKED_ON[asks]).text
    assert desk.get(asks).status_code == 403
    assert desk.post(asks).status_code == 403


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("path", ["resend-uncertain", "confirm-uncertain"])
def test_no_question_about_an_edition_without_uncertain_emails(
    app: Application, sign_in: Callable[..., Desk], path: str
) -> None:
    with app.db.write() as session:
        session.exec(select(Delivery)).one().state = DeliveryState.SENT
    desk = sign_in()
    for edition in (EDITION, "2026-11-21"):
        question = desk.get(f"/admin/editions/{edition}/{path}")
        assert f"The edition {edition} has no uncertain emails." in question.text


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("state", SubscriberState)
@pytest.mark.parametrize("path", ["unsubscribe", "new-links"])
def test_no_question_about_subscribers_whose_page_has_no_link(
    app: Application, sign_in: Callable[..., Desk], path: str, state: SubscriberState
) -> None:
    """The state may have changed since the page was shown."""
    with app.db.write() as session:
        subscribers.get(session, 1).state = state
    desk = sign_in()
    has_link = f'href="/admin/subscribers/1/{path}"' in desk.get("/admin/subscribers/1").text
    question = desk.get(f"/admin/subscribers/1/{path}")
    assert question.status_code == (200 if has_link else 409)
    assert (f"state is now “{state}”" in question.text) is not has_link


@pytest.mark.parametrize(
    ("kind", "config", "with_form"),
    [
        (SourceKind.FEED, {"url": "https://a.test/x?a=1&b=2"}, True),
        (SourceKind.ARXIV, {"categories": ["cs.CL", "stat.ML"]}, True),
        (SourceKind.ARXIV, {"query": "cat:cs.CL AND all:agents"}, False),
        (SourceKind.ARXIV_FEED, {"categories": ["cs.CL", "stat.ML"]}, True),
        (SourceKind.ARXIV_OAI, {}, True),
        (SourceKind.ARXIV_OAI, {"set": "cs"}, True),
        (SourceKind.ARXIV_OAI, {"set": "cs", "from": "2024-01-01", "until": "2024-02-01"}, False),
        (SourceKind.HUGGINGFACE, {}, True),
    ],
)
def test_removed_source_can_be_added_again(
    app: Application, sign_in: Callable[..., Desk], kind: SourceKind, config: dict[str, Any], with_form: bool
) -> None:
    """The question shows all that is needed, because the list does not show removed sources."""
    with app.db.write() as session:
        source_registry.add(session, "the source", kind, config, clock.utcnow())
    desk = sign_in()
    question = desk.get("/admin/sources/1/remove").text
    facts = {
        name: html.unescape(value) for name, value in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", question)
    }
    assert ("<code>paperboy sources add</code>" in question) is not with_form
    assert set(facts) == {"Name", "Kind", *config}
    desk.post("/admin/sources/1/remove")
    if not with_form:
        assert {name: facts[name] for name in config} == config
        return
    form = desk.get("/admin/sources").text
    kinds = {label: value for value, label in re.findall(r'<option value="(\w+)"[^>]*>([^<]+)', form)}
    address = next((facts[name] for name in config), "")
    typed = {"name": facts["Name"], "kind": kinds[facts["Kind"]], "address": address}
    assert desk.post("/admin/sources", **typed).status_code == 303
    with app.db.read() as session:
        (source,) = source_registry.all_sources(session)
    assert (source.name, source.kind, source.config) == ("the source", kind, config)
