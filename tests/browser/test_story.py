"""Test the whole story from sign-up to unsubscribing with real parts only."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect
from sqlmodel import select

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.settings import Settings
from app.storage.models import Subscriber, SubscriberState
from tests.support import running_app
from tests.support.mail_server import MailServer, Received

ALICE = "alice@example.org"
FITTING = "Language Agents that Plan Ahead"
OTHER = "Folding Proteins on a Laptop"


@contextmanager
def service(settings: Settings) -> Iterator[tuple[Application, str]]:
    """Serve the real application at its own base URL."""
    bound = running_app.bind_free_port()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    app = main.build(settings.model_copy(update={"base_url": url}))
    with running_app.serve(main.create_app(app), bound):
        yield app, url
    app.db.dispose()


def paper_row(arxiv_id: str, title: str, upvotes: int) -> dict[str, Any]:
    """Return a paper as listed by Hugging Face."""
    paper = {
        "id": arxiv_id,
        "title": title,
        "summary": f"{title}: we show how, and measure it.",
        "authors": [{"name": "Ada Lovelace", "hidden": False}],
        "publishedAt": f"{clock.utcnow():%Y-%m-%d}T09:00:00.000Z",
        "upvotes": upvotes,
    }
    return {"paper": paper, "title": title, "numComments": 2}


def state_of(app: Application) -> SubscriberState:
    with app.db.read() as session:
        return session.exec(select(Subscriber)).one().state


def plain_text(mail: Received) -> str:
    body = mail.parsed().get_body(("plain",))
    assert body
    return str(body.get_content())


def html_part(mail: Received) -> str:
    body = mail.parsed().get_body(("html",))
    assert body
    return str(body.get_content())


def link_to(mail: Received, purpose: str) -> str:
    match = re.search(rf"http://127\.0\.0\.1:\d+/{purpose}/[^\s\"]+", html_part(mail))
    assert match, plain_text(mail)
    return match.group()


def sign_up(page: Page, url: str, mail_server: MailServer) -> Received:
    """Fill in the form and return the confirmation email."""
    page.goto(url)
    page.get_by_label("Email address").fill(ALICE)
    page.get_by_label("Interest 1").fill("language agents")
    page.get_by_label("At").select_option("8")
    page.get_by_role("button", name="Send me the digest").click()
    return mail_server.wait_for(1)[0]


def give_feedback(app: Application, page: Page, digest: Received) -> None:
    """Follow the links of the received email: GET changes nothing, the button records, and undo removes."""
    more = link_to(digest, r"feedback/[\w-]+/like")
    for _ in range(2):
        assert httpx.get(more).status_code == 200
    assert feedback_of_alice(app) == []
    page.goto(more)
    assert FITTING in page.inner_text("main")
    page.get_by_role("button", name="More like this").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    assert feedback_of_alice(app) == [(FITTING, True)]
    page.goto(link_to(digest, r"feedback/[\w-]+/dislike"))
    page.get_by_role("button", name="Less like this").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    assert feedback_of_alice(app) == [(FITTING, False)]
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_have_text("Your feedback was removed.")
    assert feedback_of_alice(app) == []
    page.goto(link_to(digest, "view"))  # the cards have the same links there
    page.get_by_role("link", name="More").first.click()
    page.get_by_role("button", name="More like this").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    assert feedback_of_alice(app) == [(FITTING, True)]


def mute_and_follow(app: Application, page: Page, digest: Received) -> None:
    """Follow the links on the page of More: each has a button and an undo."""
    page.goto(link_to(digest, r"feedback/[\w-]+/like"))
    page.get_by_role("link", name="mute a word").click()
    page.get_by_role("radio", name="Plan Ahead").check()
    page.get_by_role("button", name="Mute").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Plan Ahead")
    assert preferences_of_alice(app).muted == ("Plan Ahead",)
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("No longer muted")
    assert preferences_of_alice(app).muted == ()
    page.goto(link_to(digest, r"feedback/[\w-]+/like"))
    page.get_by_role("link", name="follow one of its authors").click()
    page.get_by_role("button", name="Follow").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Ada Lovelace")
    assert preferences_of_alice(app).interests[-1].text == 'author:"Ada Lovelace"'
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_have_text("You no longer follow Ada Lovelace.")
    assert len(preferences_of_alice(app).interests) == 1


def preferences_of_alice(app: Application) -> subscribers.Preferences:
    with app.db.read() as session:
        return subscribers.preferences_of(session, session.exec(select(Subscriber)).one())


def feedback_of_alice(app: Application) -> list[tuple[str, bool]]:
    with app.db.read() as session:
        reader = session.exec(select(Subscriber.id)).one() or 0
        return [
            (each.title, each.liked)
            for each in subscribers.feedback_for_ranking(session, [reader]).get(reader, ())
        ]


def run_schedule(app: Application, at: datetime) -> None:
    """Run the scheduled jobs in a thread, as the scheduler does."""
    running_app.run_in_thread(lambda: pipeline.plan_and_send(app, at))


@pytest.mark.browser
def test_from_sign_up_to_the_last_mail(
    settings: Settings, mail_server: MailServer, page: Page, tmp_path: Path
) -> None:
    """Sign up, confirm, get one digest with the right paper and reason, unsubscribe, get no more."""
    with service(settings) as (app, url):
        confirmation = sign_up(page, url, mail_server)
        assert confirmation.recipient == ALICE
        confirm = link_to(confirmation, "confirm")
        for _ in range(2):  # an email scanner opens every link
            assert httpx.get(confirm).status_code == 200
        assert state_of(app) is SubscriberState.PENDING
        page.goto(confirm)
        page.get_by_role("button", name="Yes, send me the digest").click()
        assert page.get_by_role("heading", level=1).is_visible()
        assert state_of(app) is SubscriberState.ACTIVE

        now = clock.utcnow()
        answer = tmp_path / f"{now:%Y-%m-%d}.json"
        answer.write_text(
            json.dumps([paper_row("2611.00001", FITTING, 40), paper_row("2611.00002", OTHER, 90)])
        )
        assert pipeline.read_files(app, [answer], now).summary.papers_new == 2

        with app.db.read() as session:
            due = session.exec(select(Subscriber)).one().next_due_at
        assert due
        run_schedule(app, due - timedelta(minutes=1))
        assert len(mail_server.messages) == 1
        for _ in range(2):  # the scheduler may run it twice
            run_schedule(app, due)
        assert len(mail_server.messages) == 2
        digest = mail_server.messages[1]
        assert FITTING in str(digest.parsed()["Subject"])
        assert ">Language Agents</span>" in html_part(digest)
        fitting, trending = plain_text(digest).split("TRENDING BEYOND YOUR INTERESTS")
        assert FITTING in fitting
        assert OTHER not in fitting
        assert OTHER in trending

        give_feedback(app, page, digest)
        mute_and_follow(app, page, digest)

        headers = digest.parsed()
        assert headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        target = re.findall(r"<(http[^>]*)>", str(headers["List-Unsubscribe"]))[0]
        response = httpx.post(target, data={"List-Unsubscribe": "One-Click"})
        assert response.status_code == 200
        assert state_of(app) is SubscriberState.UNSUBSCRIBED
        for days in range(1, 9):
            run_schedule(app, due + timedelta(days=days))
        assert len(mail_server.messages) == 2
