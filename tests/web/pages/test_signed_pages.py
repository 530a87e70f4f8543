"""Test the pages behind signed links: GET shows the action, POST performs it, and repeating it changes
nothing.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import time_machine
from fastapi.testclient import TestClient
from sqlmodel import Session, select

from app import clock, pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.digests import reconciliation
from app.links import LIFETIMES, Purpose
from app.settings import Settings
from app.storage.models import (
    Delivery,
    DeliveryState,
    Event,
    FeedbackRow,
    InterestRow,
    JobRun,
    PrivatePaper,
    Subscriber,
    SubscriberState,
    Suppression,
)
from app.subscribers import Preferences, repository
from app.types import EmptyDigestPolicy, Interest, MailKind, Skip
from app.web import templating
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer
from tests.web.conftest import ALICE, BOB, WANTED, Link

PURPOSES = list(Purpose)
READ_ONLY = (Purpose.VIEW, Purpose.FEED)
WITH_BUTTON = [purpose for purpose in PURPOSES if purpose not in READ_ONLY]
PREFERENCES = {
    "interest": ["world models", "diffusion models", ""], "weight": ["2", "1", "1"], "quota": ["4", "", ""],
    "cadence": "weekdays", "weekday": "0", "hour": "19", "zone": "Asia/Tokyo", "min_papers": "2",
    "max_papers": "7", "max_trending": "2",
    "when_empty": "trending",
}  # fmt: skip


def state_of(app: Application, reader: int) -> SubscriberState:
    """Return the state of a subscriber."""
    with app.db.read() as session:
        return subscribers.get(session, reader).state


def snapshot(app: Application) -> list[object]:
    """Return every row that a link could change."""
    tables = (Subscriber, InterestRow, Delivery, Event, FeedbackRow, PrivatePaper, Suppression)
    with app.db.read() as session:
        return [row.model_dump() for table in tables for row in session.exec(select(table))]


def add_digest(session: Session, reader: int) -> int:
    delivery = ledger.enqueue(
        session,
        subscriber_id=reader,
        kind=MailKind.DIGEST,
        edition="2026-11-20",
        due_at=clock.utcnow(),
        now=clock.utcnow(),
        digest=sample_digest.digest(),
    )
    assert delivery is not None
    return delivery


def link_argument(session: Session, reader: int, purpose: Purpose) -> int:
    """Return the argument for a link of this purpose: a paper, or a delivery."""
    if purpose is not Purpose.FEEDBACK:
        return add_digest(session, reader)
    now = clock.utcnow()
    return factories.add_paper(session, factories.add_source(session, now), "A Paper", now.date(), now)


# --- every link


@pytest.mark.once
@pytest.mark.parametrize("purpose", PURPOSES)
def test_opening_a_link_changes_nothing(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    """Mail scanners open links, often more than once."""
    with app.db.write() as session:
        argument = link_argument(session, alice, purpose)
    path = link(purpose, alice, argument=argument)
    before = snapshot(app)
    for _ in range(2):
        assert client.get(path).status_code == 200
    assert snapshot(app) == before


@pytest.mark.once
@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_forged_links_are_refused(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose, method: str
) -> None:
    """Test a changed character, random text, and tokens for other purposes."""
    if purpose in READ_ONLY and method == "POST":
        return
    path = link(purpose, alice)
    good = path.split("/")[2]
    foreign = [link(other, alice).split("/")[2] for other in PURPOSES if other is not purpose]
    before = snapshot(app)
    for token in [good[:-1] + "_", "x", "a" * 51, "%F0%9F%92%A9", "..%2F..%2Fetc", *foreign]:
        answer = client.request(method, path.replace(good, token))
        assert answer.status_code in (403, 404), token
        assert ALICE not in answer.text
    assert snapshot(app) == before


@pytest.mark.once
@pytest.mark.parametrize("purpose", sorted({*LIFETIMES, Purpose.CONFIRM, Purpose.PREFERENCES}))
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_expired_link_offers_a_new_one(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose, method: str
) -> None:
    old = link(purpose, alice, issued=clock.utcnow() - app.signer.lifetimes[purpose] - timedelta(minutes=1))
    before = snapshot(app)
    answer = client.request(method, old)
    assert answer.status_code == 410
    assert 'href="/manage"' in answer.text
    assert snapshot(app) == before


@pytest.mark.parametrize("purpose", PURPOSES)
def test_revoked_links_allow_only_unsubscribing(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    """Raising the epoch revokes all links, but an unsubscribe link of any age works."""
    path = link(purpose, alice)
    with app.db.write() as session:
        subscribers.get(session, alice).link_epoch += 1
    assert client.get(path).status_code == (200 if purpose is Purpose.UNSUBSCRIBE else 410)


@pytest.mark.parametrize("purpose", PURPOSES)
def test_link_for_an_unknown_subscriber_is_refused(client: TestClient, link: Link, purpose: Purpose) -> None:
    """The signature is valid, but the subscriber never existed."""
    assert client.get(link(purpose, 4711)).status_code == 403


@pytest.mark.once
@pytest.mark.parametrize("purpose", PURPOSES)
def test_link_pages_are_not_cached_indexed_or_referred(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    with app.db.write() as session:
        argument = link_argument(session, alice, purpose)
    answer = client.get(link(purpose, alice, argument=argument))
    assert answer.headers["cache-control"] == "no-store"
    assert "noindex" in answer.headers["x-robots-tag"]
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("purpose", WITH_BUTTON)
def test_after_erasure_only_unsubscribe_links_work(
    app: Application, client: TestClient, alice: int, link: Link, purpose: Purpose
) -> None:
    path = link(purpose, alice)
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow())
    before = snapshot(app)
    works = purpose in (Purpose.ERASE, Purpose.DECLINE, Purpose.UNSUBSCRIBE, Purpose.ADDRESS)
    assert client.post(path).status_code == (200 if works else 410)
    assert snapshot(app) == before


# --- joining


@pytest.mark.parametrize(
    ("zone", "words"),
    [("America/New_York", "every day at 08:00, America/New York time"), ("UTC", "every day at 08:00, UTC")],
)
def test_schedule_in_words(settings: Settings, zone: str, words: str) -> None:
    macros: Any = templating.environment(settings).get_template("schedule_in_words_macros.html").module
    assert macros.in_words(Preferences(zone=zone, hour=8)) == words


def test_confirming_starts_the_digests(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """The page shows the chosen preferences. Confirming twice changes nothing."""
    path = link(Purpose.CONFIRM, pending)
    page = client.get(path).text
    assert "bob@example.org" in page
    assert "diffusion models" in page
    assert "every day at 08:00, Europe/Berlin" in page
    assert subscribers.CONSENT_TEXT in page
    welcome = client.post(path).text
    assert "You are subscribed" in welcome
    assert "08:00</strong>" in welcome
    ahead = re.search(r'href="(/preferences/[^"]+/preview)#preview"', welcome)
    assert ahead is not None
    assert 'value="diffusion models"' in client.get(ahead[1]).text
    assert state_of(app, pending) is SubscriberState.ACTIVE
    before = snapshot(app)
    assert client.post(path).status_code == 200
    assert snapshot(app) == before


def test_confirmation_page_can_be_reopened(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """It is not the response to a form, so the back button works. It leads to the next steps each time."""
    path = link(Purpose.CONFIRM, pending)
    answer = client.post(path, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, path)
    page = client.get(path).text
    assert "Send me my first digest now" in page
    ahead = re.search(r'href="(/preferences/\S{51})"', page)
    assert ahead
    assert client.get(ahead[1]).status_code == 200
    with app.db.write() as session:
        subscribers.pause(session, pending, None, clock.utcnow())
    paused = client.get(path).text
    assert "Your digests are paused." in paused
    assert "Send me my first digest now" not in paused


def test_old_confirmation_link_does_not_lead_to_the_preferences(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """Others may have received the email or fetched its link since."""
    path = link(Purpose.CONFIRM, pending)
    client.post(path)
    with app.db.write() as session:
        confirmation = subscribers.last_confirmation(session, pending)
        assert confirmation
        confirmation.at -= timedelta(days=1)
    page = client.get(path).text
    assert "You are subscribed" in page
    assert "Email me a link to my preferences" in page
    assert "/preferences/" not in page


def test_confirming_after_unsubscribing_is_a_conflict(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """An old confirmation email does not subscribe anyone again."""
    client.post(link(Purpose.UNSUBSCRIBE, alice))
    path = link(Purpose.CONFIRM, alice)
    assert "no longer valid" in client.get(path).text
    answer = client.post(path)
    assert answer.status_code == 409
    assert "sign up again" in answer.text


def test_confirming_a_suppressed_address(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """The page says that mail is blocked, before and after pressing the button."""
    path = link(Purpose.CONFIRM, pending)
    with app.db.write() as session:
        suppression.suppress(session, BOB, "bounced", clock.utcnow())
    for answer in (client.get(path), client.post(path)):
        assert answer.status_code == 409
        assert "Mail to this address is blocked" in answer.text
        assert "already been done" not in answer.text
    assert state_of(app, pending) is SubscriberState.PENDING


def test_confirmed_sign_up_cannot_be_declined(client: TestClient, alice: int, link: Link) -> None:
    """The page says so before a button is pressed."""
    path = link(Purpose.DECLINE, alice)
    for page in (client.get(path).text, client.post(path).text):
        assert "This sign-up has already been confirmed" in page


def test_declining_deletes_the_sign_up(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """Declining twice gives the same response."""
    path = link(Purpose.DECLINE, pending)
    for _ in range(2):
        assert "Request deleted" in client.post(path).text
    assert state_of(app, pending) is SubscriberState.ERASED
    with app.db.read() as session:
        assert not suppression.is_suppressed(session, "bob@example.org")


# --- leaving


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"List-Unsubscribe": "One-Click"}},
        {"files": {"List-Unsubscribe": (None, "One-Click")}},
        {"content": b"", "headers": {"content-type": "application/x-www-form-urlencoded"}},
        {"content": b"broken", "headers": {"content-type": "multipart/form-data; boundary=none"}},
    ],
    ids=["urlencoded", "multipart", "empty", "broken"],
)
def test_one_click_unsubscribe(
    app: Application, client: TestClient, alice: int, link: Link, body: dict[str, object]
) -> None:
    """The request of a mail program has no cookie and no origin, and gets no redirect (RFC 8058)."""
    foreign = {"origin": "https://mail.example", "sec-fetch-site": "cross-site"}
    headers = {**foreign, **body.pop("headers", {})}  # type: ignore[dict-item]
    issued = clock.utcnow() - timedelta(days=3000)
    with app.db.write() as session:
        subscribers.get(session, alice).created_at = issued
    path = link(Purpose.UNSUBSCRIBE, alice, issued=issued)
    for _ in range(2):
        answer = client.post(path, **body, headers=headers, follow_redirects=False)  # type: ignore[arg-type]
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
    assert state_of(app, alice) is SubscriberState.UNSUBSCRIBED


@pytest.mark.parametrize("purpose", [Purpose.UNSUBSCRIBE, Purpose.PREFERENCES, Purpose.ERASE])
def test_link_that_is_older_than_its_subscriber(
    purpose: Purpose, app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """It was for another one, to whom the database had assigned this id before a restore."""
    path = link(purpose, alice, issued=clock.utcnow() - timedelta(days=2, seconds=2))
    for answer in (client.get(path), client.post(path)):
        assert answer.status_code == 410
    assert state_of(app, alice) is SubscriberState.ACTIVE


def test_unsubscribe_page_masks_the_address(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Its owner recognises it; someone with a forwarded email cannot read it."""
    path = link(Purpose.UNSUBSCRIBE, alice)
    hint = f"{ALICE[0]}…@{ALICE.partition('@')[2]}"
    for answer in (client.get(path), client.post(path), client.get(path)):
        assert hint in answer.text
        assert ALICE not in answer.text
    assert "You are unsubscribed" in answer.text, "the link was opened once more"
    assert "<button" not in answer.text.partition("<main")[2]
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow(), suppress=False)
    assert "erased" not in client.get(path).text


def test_links_in_a_forwarded_digest_do_not_reveal_the_address(
    client: TestClient, alice: int, link: Link
) -> None:
    for purpose in (Purpose.UNSUBSCRIBE, Purpose.PAUSE, Purpose.DECLINE):
        assert ALICE not in client.get(link(purpose, alice)).text


def test_export_is_a_download(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """It contains all data and no secret."""
    with app.db.write() as session:
        add_digest(session, alice)
    answer = client.post(link(Purpose.EXPORT, alice))
    assert answer.headers["content-disposition"].startswith("attachment")
    export = json.loads(answer.content)
    assert export["subscriber"]["email"] == ALICE
    assert export["interests"][0]["text"] == "diffusion models"
    assert export["deliveries"][0]["digest"]["sections"]
    assert "link_epoch" not in answer.text


@pytest.mark.parametrize("keep_off", [True, False])
def test_erasure_requires_a_mailed_link(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, link: Link, keep_off: bool
) -> None:
    """The preferences page sends the link; its button erases, and may be pressed again."""
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/erase")
    assert "sent you an email with a link to erase your data" in answer.text
    assert state_of(app, alice) is SubscriberState.ACTIVE
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    path = next(word for word in text.split() if "/erase/" in word).removeprefix("https://paperboy.test")
    client.get(path)
    for _ in range(2):
        assert (
            "Everything has been erased"
            in client.post(path, data={"keep_off": "yes"} if keep_off else {}).text
        )
    assert state_of(app, alice) is SubscriberState.ERASED
    reopened = client.get(path).text
    assert "Everything has already been erased" in reopened
    assert "<form" not in reopened.partition("<main")[2]
    with app.db.read() as session:
        assert suppression.is_suppressed(session, ALICE) is keep_off


@pytest.mark.parametrize("state", [SubscriberState.BOUNCING, SubscriberState.UNSUBSCRIBED])
def test_no_link_is_promised_to_a_suppressed_address(
    app: Application, client: TestClient, alice: int, link: Link, state: SubscriberState
) -> None:
    """The page behind a digest's link says that mail is blocked, before and after a request."""
    path = link(Purpose.SUBSCRIPTION, alice)
    assert "Email me a link" in client.get(path).text
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complained", clock.utcnow())
        subscribers.get(session, alice).state = state
    page = client.get(path).text
    assert ("Mail to this address is blocked" in page, "Email me a link" in page) == (True, False)
    answer = client.post(path)
    assert (answer.status_code, "Mail to this address is blocked" in answer.text) == (409, True)


@pytest.mark.parametrize("action", ["export", "erase", "address", "links"])
def test_request_in_a_pause_is_answered_when_sending_resumes(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, link: Link, action: str
) -> None:
    """The page says so, a repeated request gets no second email, and the link works even after a weekend."""
    path, weekend = link(Purpose.PREFERENCES, alice), timedelta(hours=62)
    with app.db.write() as session:
        ledger.pause(session, "the relay is down", clock.utcnow())
    form = {"email": "new@example.org"}
    page = client.post(f"{path}/{action}", data=form).text
    assert "resumes" in page
    assert not re.search("We(’ve)? (sent|send) (you )?an email", page)
    with app.db.write() as session:
        for mail in session.exec(select(Delivery)).all():
            mail.created_at -= weekend
            mail.give_up_at = (mail.give_up_at or mail.due_at) - weekend
        for pause in ledger.pauses(session):
            pause.since -= weekend
    client.post(f"{path}/{action}", data=form)
    assert pipeline.send_now(app, clock.utcnow()) == {}
    with app.db.write() as session:
        ledger.resume(session, clock.utcnow())
    assert pipeline.send_now(app, clock.utcnow()) == {"sent": 1}
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    mailed = next(word for word in text.split() if word.startswith("https://paperboy.test/"))
    answer = client.get(mailed)
    assert (answer.status_code, "<button" in answer.text) == (200, True)


# --- staying


def test_preferences_are_shown_and_saved(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    path = link(Purpose.PREFERENCES, alice)
    page = client.get(path).text
    assert ALICE in page
    assert 'value="diffusion models"' in page
    answer = client.post(path, data=PREFERENCES)
    assert (answer.status_code, str(answer.url).partition("?")[2]) == (200, "done=saved")
    assert "Saved." in answer.text
    with app.db.read() as session:
        preferences = subscribers.preferences_of(session, subscribers.get(session, alice))
    assert [(interest.text, interest.weight, interest.quota) for interest in preferences.interests] == [
        ("world models", 2.0, 4),
        ("diffusion models", 1.0, None),
    ]
    assert (preferences.cadence, preferences.hour, preferences.zone) == ("weekdays", 19, "Asia/Tokyo")
    assert (preferences.min_papers, preferences.max_papers, preferences.when_empty) == (2, 7, "trending")


@pytest.mark.parametrize(("typed", "wanted"), [(["no"], False), (["no", "yes"], True), ([], True)])
def test_news_of_earlier_papers(
    app: Application, client: TestClient, link: Link, alice: int, typed: list[str], wanted: bool
) -> None:
    """A box that is not checked turns them off, and the page shows what is chosen."""
    path = link(Purpose.PREFERENCES, alice)
    page = client.post(path, data=PREFERENCES | {"paper_updates": typed}).text
    assert ('name="paper_updates" value="yes" checked' in page) is wanted
    with app.db.read() as session:
        assert subscribers.get(session, alice).paper_updates is wanted


def test_stored_interest_with_an_overlong_word_is_saved_again(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Otherwise, no other preference could be changed. A new one is refused."""
    word = "x" * 150
    with app.db.write() as session:
        subscriber = subscribers.get(session, alice)
        repository.store_preferences(session, subscriber, replace(WANTED, interests=(Interest(word),)))
    path = link(Purpose.PREFERENCES, alice)
    form = {**PREFERENCES, "interest": [word], "weight": "1", "quota": "", "had": word}
    assert "more than 100 characters" not in client.post(path + "/preview", data=form).text
    assert str(client.post(path, data=form).url).endswith("done=saved")
    new = "y" * 150
    refused = client.post(path, data={**form, "interest": new, "had": new})
    assert (refused.status_code, "more than 100 characters" in refused.text) == (422, True)


@pytest.mark.once
@pytest.mark.parametrize(
    ("field", "typed", "marked"),
    [
        ("zone", "Atlantis/Centre", "zone"),
        ("hour", "-1", "hour"),
        ("min_papers", "8", "min_papers"),
        ("max_papers", "lots", "max_papers"),
        ("max_papers", "", "max_papers"),
        ("max_trending", "", "max_trending"),
        ("interest", ["fine", "…"], "interests.1"),
        ("interest", ["y" * 10_000], "interests.0"),
        ("weight", ["nan"], "interests.0"),
        ("weight", ["heavy"], "interests.0"),
        ("quota", ["-3"], "interests.0"),
    ],
)
def test_invalid_preferences_keep_the_form(
    app: Application, client: TestClient, alice: int, link: Link, field: str, typed: object, marked: str
) -> None:
    """The error is marked at its field and nothing is saved."""
    answer = client.post(link(Purpose.PREFERENCES, alice), data={**PREFERENCES, field: typed})
    assert answer.status_code == 422
    assert f'id="problem-{marked}"' in answer.text
    with app.db.read() as session:
        assert subscribers.preferences_of(session, subscribers.get(session, alice)) == WANTED


def test_missing_weights_get_the_default(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """A script may send an incomplete form."""
    few = {**PREFERENCES, "weight": [], "quota": []}
    assert client.post(link(Purpose.PREFERENCES, alice), data=few).status_code == 200
    with app.db.read() as session:
        preferences = subscribers.preferences_of(session, subscribers.get(session, alice))
    assert [interest.weight for interest in preferences.interests] == [1.0, 1.0]


@pytest.mark.parametrize("beside", ["", "/pause"], ids=["the link in the email", "the preferences page"])
def test_pause_and_resume(app: Application, client: TestClient, alice: int, link: Link, beside: str) -> None:
    """A pause lasts until a day in the reader's time zone, or until it is resumed."""
    path = link(Purpose.PREFERENCES, alice) + beside if beside else link(Purpose.PAUSE, alice)
    back = clock.utcnow().date() + timedelta(days=10)
    for _ in range(2):
        answer = client.post(path, data={"until": back.isoformat()})
        assert [answer.status_code, *(response.status_code for response in answer.history)] == [200, 303]
    with app.db.read() as session:
        until = subscribers.get(session, alice).paused_until
    assert until is not None
    assert until.date() == back - timedelta(days=1), "midnight in Berlin is the evening before in UTC"
    for _ in range(2):
        assert client.post(path, data={"action": "resume"}).status_code == 200
    assert state_of(app, alice) is SubscriberState.ACTIVE
    assert "until you" in client.post(link(Purpose.PAUSE, alice)).text
    assert "Digests are paused until you resume" in client.get(link(Purpose.PAUSE, alice)).text


TODAY = datetime(2026, 11, 20, 15, tzinfo=UTC)  # already Saturday, 21 November in Tokyo


@pytest.mark.once
@pytest.mark.parametrize(
    ("until", "kind", "problem"),
    [
        ("2020-01-01", "date", "1 January 2020 is in the past: choose 22 November 2026 or a later day."),
        ("0001-01-01", "date", "1 January 1 is in the past: choose 22 November 2026 or a later day."),
        ("2026-11-21", "date", "21 November 2026 is today: choose 22 November 2026 or a later day."),
        (
            "9999-12-31",
            "date",
            "is more than a year away: choose a day up to 22 November 2027, or leave the date empty.",
        ),
        ("soon", "text", "“soon” is not a date. Write year, month and day as in 2026-12-31."),
        ("2026-02-30", "text", "“2026-02-30” is not a date."),
    ],
)
def test_pause_requires_a_future_day(
    app: Application, client: TestClient, alice: int, link: Link, until: str, kind: str, problem: str
) -> None:
    """Any other day is marked as an error, and nothing is paused."""
    with time_machine.travel(TODAY, tick=False):
        with app.db.write() as session:
            subscribers.get(session, alice).zone = "Asia/Tokyo"
        for path in (link(Purpose.PAUSE, alice), link(Purpose.PREFERENCES, alice) + "/pause"):
            answer = client.post(path, data={"until": f" {until} "})
            assert answer.status_code == 422
            assert problem in answer.text
            assert f'type="{kind}" value="{until}" min="2026-11-22" max="2027-11-22"' in answer.text
        assert state_of(app, alice) is SubscriberState.ACTIVE
        page = client.post(link(Purpose.PAUSE, alice), data={"until": "2026-11-22"}).text
    assert "Sun\N{NO-BREAK SPACE}22\N{NO-BREAK SPACE}Nov 2026" in page


def test_resubscribing_restores_the_preferences(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """The link in the email records a new consent."""
    client.post(link(Purpose.UNSUBSCRIBE, alice))
    path = link(Purpose.PREFERENCES, alice)
    assert "You are unsubscribed" in client.get(path).text
    for _ in range(2):
        assert "Welcome back" in client.post(path + "/return").text
    with app.db.read() as session:
        assert subscribers.preferences_of(session, subscribers.get(session, alice)) == WANTED
    assert "nothing to pause" not in client.get(link(Purpose.PAUSE, alice)).text


def test_resubscribing_needs_an_interest(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """If the preferences were deleted, the page asks for new ones first."""
    client.post(link(Purpose.UNSUBSCRIBE, alice))
    with app.db.write() as session:
        reset = subscribers.default_preferences(app.settings)
        subscribers.forget_former_subscribers(session, datetime(2100, 1, 1, tzinfo=UTC), reset)
    path = link(Purpose.PREFERENCES, alice)
    page = client.get(path).text
    assert "Your preferences were deleted." in page
    assert "Subscribe again" not in page
    answer = client.post(path + "/return")
    assert answer.status_code == 422
    assert "Add at least one interest" in answer.text
    assert state_of(app, alice) is SubscriberState.UNSUBSCRIBED
    assert "Subscribe again" in client.post(path, data=PREFERENCES).text
    assert "Welcome back" in client.post(path + "/return").text


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (SubscriberState.UNSUBSCRIBED, "To get digests again, subscribe again."),
        (SubscriberState.BOUNCING, "emails to your address bounced. Please contact us."),
    ],
)
def test_resuming_a_subscription_that_ended_is_a_conflict(
    app: Application, client: TestClient, alice: int, link: Link, state: SubscriberState, advice: str
) -> None:
    """A page that was opened before says what to do instead of reporting success."""
    with app.db.write() as session:
        session.get_one(Subscriber, alice).state = state
    paths = [(link(Purpose.PREFERENCES, alice) + "/pause", {"action": "resume"})]
    if state is SubscriberState.BOUNCING:
        paths.append((link(Purpose.PREFERENCES, alice) + "/return", {}))
    for path, form in paths:
        answer = client.post(path, data=form)
        assert answer.status_code == 409
        assert advice in answer.text
    assert state_of(app, alice) is state


def test_message_parameter_is_not_echoed(client: TestClient, alice: int, link: Link) -> None:
    """Only known messages are shown."""
    page = client.get(link(Purpose.PREFERENCES, alice), params={"done": "<b>your password</b>"}).text
    assert "your password" not in page


def test_history_explains_missing_digests(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """It lists each digest and the reason for each missing one, but no replies of the relay."""
    now = clock.utcnow()
    with app.db.write() as session:
        delivery = session.get_one(Delivery, add_digest(session, alice))
        delivery.subject, delivery.reason = "Seven papers", "550 secret relay talk"
        silence = Skip("none of 31 recent papers matched an interest")
        ledger.add_entries(session, [ledger.Entry(alice, "2026-11-19", now, silence)], now)
    page = client.get(link(Purpose.PREFERENCES, alice)).text
    assert "Seven papers" in page
    assert "/view/" in page
    assert "skipped: none of 31 recent papers matched an interest" in page
    assert "relay talk" not in page


def test_history_links_only_digests_that_were_released(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Digests that wait for approval or were cancelled cannot be read, not even after they are given up."""
    now = clock.utcnow()
    path = link(Purpose.PREFERENCES, alice)
    with app.db.write() as session:
        number = add_digest(session, alice)
        edition = session.get_one(Delivery, number).edition
    assert "/view/" in client.get(path).text
    with app.db.write() as session:
        ledger.pause(session, ledger.AWAITS_APPROVAL, now, edition)
    held = client.get(path).text
    assert "waits until the operator of this service releases it" in held
    assert "about to be sent" not in held
    assert "/view/" not in held
    opened_earlier = client.get(link(Purpose.VIEW, alice, argument=number))
    assert opened_earlier.status_code == 409
    assert "The operator of this service may still release it." in opened_earlier.text
    with app.db.read() as session:
        assert [row["digest"] for row in subscribers.export(session, alice, now)["deliveries"]] == [{}]
    with app.db.write() as session:
        delivery = session.get_one(Delivery, number)
        delivery.state, delivery.next_attempt_at = DeliveryState.FAILED, None  # by `expiry`
    assert "/view/" not in client.get(path).text
    with app.db.write() as session:
        delivery = session.get_one(Delivery, number)
        delivery.state, delivery.next_attempt_at = DeliveryState.PENDING, now
        ledger.cancel(session, edition)
        ledger.resume(session, now, edition)
    cancelled = client.get(path).text
    assert "No digest" in cancelled
    assert "skipped: cancelled by an operator" in cancelled
    assert "/view/" not in cancelled


def test_history_links_a_digest_only_when_it_is_due(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """A digest that failed after an attempt can be read."""
    with app.db.write() as session:
        delivery = session.get_one(Delivery, add_digest(session, alice))
        delivery.due_at = clock.utcnow() + timedelta(minutes=5)
        number = delivery.id
    assert "/view/" not in client.get(link(Purpose.PREFERENCES, alice)).text
    with app.db.write() as session:
        delivery = session.get_one(Delivery, number)
        delivery.due_at, delivery.attempts, delivery.state = clock.utcnow(), 1, DeliveryState.FAILED
    assert "/view/" in client.get(link(Purpose.PREFERENCES, alice)).text


# --- reading


def test_digest_page_shows_the_mailed_digest(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """The page has a sandbox policy."""
    with app.db.write() as session:
        delivery_id = add_digest(session, alice)
    answer = client.get(link(Purpose.VIEW, alice, argument=delivery_id))
    assert "Read or Retrieve" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "sandbox" in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy


def test_digests_of_other_subscribers_are_not_found(
    app: Application, client: TestClient, alice: int, pending: int, link: Link
) -> None:
    """Deleted digests and emails that are not digests are not found either."""
    with app.db.write() as session:
        delivery_id = add_digest(session, alice)
        confirmation = session.exec(select(Delivery.id).where(Delivery.subscriber_id == pending)).one() or 0
    assert client.get(link(Purpose.VIEW, pending, argument=delivery_id)).status_code == 403
    deleted = client.get(link(Purpose.VIEW, alice, argument=4711))
    assert (deleted.status_code, "<h1>This digest is no longer stored</h1>" in deleted.text) == (410, True)
    assert 'href="/search">Search the papers</a>' in deleted.text
    assert "Send me a new link" not in deleted.text
    assert client.get(link(Purpose.VIEW, pending, argument=confirmation)).status_code == 410


def test_confirmation_page_announces_the_first_digest(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """With trending papers enabled, the first digest does not depend on matches."""
    for when_empty, later in ((EmptyDigestPolicy.SKIP, True), (EmptyDigestPolicy.TRENDING, False)):
        with app.db.write() as session:
            reader = session.get_one(Subscriber, pending)
            reader.when_empty, reader.state = when_empty, SubscriberState.PENDING
        page = client.post(link(Purpose.CONFIRM, pending)).text
        assert "Your first digest is due on" in page
        assert ("If no papers match by then" in page) is later


def test_confirmation_page_announces_the_next_digest(
    app: Application, client: TestClient, pending: int, link: Link
) -> None:
    """Subscribers who come back have had their first one already."""
    now = clock.utcnow()
    with app.db.write() as session:
        ledger.enqueue(
            session, subscriber_id=pending, kind=MailKind.DIGEST, edition="2026-11-01",
            due_at=now - timedelta(days=9), now=now, digest=sample_digest.digest(),
        )  # fmt: skip
    page = client.post(link(Purpose.CONFIRM, pending)).text
    assert "Your next digest is due on" in page
    assert "Send me my first digest now" not in page


def test_requested_first_digest_may_wait_for_approval(
    app: Application, mail_server: MailServer, client: TestClient, pending: int, link: Link
) -> None:
    """It is composed, and the page says that it waits."""
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Diffusion Models", now.date(), now)
        ledger.pause(session, ledger.AWAITS_APPROVAL, now)
    path = f"{link(Purpose.PREFERENCES, pending)}/first"
    client.post(link(Purpose.CONFIRM, pending))
    assert "It waits until the operator of this service releases it." in client.post(path).text
    assert mail_server.messages == []


def test_first_digest_is_sent_on_request(
    app: Application, mail_server: MailServer, client: TestClient, pending: int, link: Link
) -> None:
    """It goes through the ledger: once, and the digest of the schedule does not follow on the same day."""
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Diffusion Models", now.date(), now)
    button = re.search(
        r'action="(/preferences/[^"]+/first)"', client.post(link(Purpose.CONFIRM, pending)).text
    )
    assert button
    sent = client.post(button[1]).text
    assert "Your first digest is on its way." in sent
    again = client.post(button[1]).text
    assert "Your first digest has been sent or is scheduled." in again
    assert [mail.recipient for mail in mail_server.messages] == [BOB]
    last_second = now.astimezone(ZoneInfo(WANTED.zone)).replace(hour=23, minute=59, second=59)
    pipeline.plan_and_send(app, last_second.astimezone(UTC))
    with app.db.read() as session:
        (row,) = subscribers.history(session, pending, 9)
        assert row.state is DeliveryState.SENT
        assert subscribers.get(session, pending).next_due_at > last_second  # type: ignore[operator]
        assert reconciliation.reconcile_recent(session, now).is_consistent
    assert button[1] not in client.post(link(Purpose.CONFIRM, pending)).text


@pytest.mark.parametrize("state", [SubscriberState.ACTIVE, SubscriberState.PAUSED])
def test_preferences_offer_the_first_digest(
    app: Application, client: TestClient, alice: int, link: Link, state: SubscriberState
) -> None:
    """The button is there until the digest exists, unless the subscription is paused."""
    add_first_paper(app)
    with app.db.write() as session:
        reader = session.get_one(Subscriber, alice)
        reader.state, reader.next_due_at = state, reader.next_due_at if state == "active" else None
    path = link(Purpose.PREFERENCES, alice)
    button = f'<form method="post" action="{path}/first">'
    before = client.get(path).text
    assert (button in before, "Your first digest is due on" in before) == (state == "active",) * 2
    if state == "active":
        assert "Your first digest is on its way." in client.post(f"{path}/first").text
        after = client.get(path).text
        assert (button in after, "Your next digest is due on" in after) == (False, True)


def press_for_first_digest(client: TestClient, link: Link, reader: int) -> str:
    """Press the button and return the message."""
    answer = client.post(link(Purpose.PREFERENCES, reader) + "/first")
    message = re.search(r'role="status">([^<]*)|<p class="lead">([^<]*)', answer.text)
    assert message, answer.text
    return (message[1] or message[2]).strip()


def add_first_paper(app: Application) -> None:
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_paper(session, factories.add_source(session, now), "Diffusion Models", now.date(), now)


def test_request_for_first_digest_sends_no_others(
    app: Application, mail_server: MailServer, client: TestClient, alice: int, link: Link
) -> None:
    """Carol and Dave are due as well, and Dave's digest is in the ledger. The scheduler sends theirs."""
    now = clock.utcnow()
    add_first_paper(app)
    with app.db.write() as session:
        carol, dave = (
            factories.add_subscriber(
                session, f"{name}@example.org", ["diffusion models"], now - timedelta(minutes=1)
            )
            for name in ("carol", "dave")
        )
        add_digest(session, dave)
    assert "on its way" in press_for_first_digest(client, link, alice)
    assert [mail.recipient for mail in mail_server.messages] == [ALICE]
    with app.db.read() as session:
        assert subscribers.history(session, carol, 9) == []
        assert [row.state for row in subscribers.history(session, dave, 9)] == [DeliveryState.PENDING]
        assert session.exec(select(JobRun)).all() == []


def test_first_digest_without_matches(
    app: Application, mail_server: MailServer, client: TestClient, alice: int, link: Link
) -> None:
    """The page says that there is none today, however often the button is pressed."""
    for _ in range(2):
        assert press_for_first_digest(client, link, alice).startswith("There is no digest today.")
    assert mail_server.messages == []
    with app.db.read() as session:
        (row,) = subscribers.history(session, alice, 9)
    assert row.state is DeliveryState.SKIPPED


def test_first_digest_composed_ahead_is_scheduled(
    app: Application, mail_server: MailServer, client: TestClient, alice: int, link: Link
) -> None:
    add_first_paper(app)
    due = clock.utcnow() + timedelta(minutes=5)
    with app.db.write() as session:
        reader = subscribers.get(session, alice)
        reader.zone, reader.hour = "UTC", (due.hour + 12) % 24  # not due again within minutes
        reader.next_due_at = due
    pipeline.plan(app, clock.utcnow())
    assert "has been sent or is scheduled" in press_for_first_digest(client, link, alice)
    assert mail_server.messages == []
    with app.db.read() as session:
        (row,) = subscribers.history(session, alice, 9)
    assert (row.state, row.due_at) == (DeliveryState.PENDING, due)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (SubscriberState.PAUSED, "Digests are paused. Resume them first."),
        (SubscriberState.UNSUBSCRIBED, "this subscription is not active"),
    ],
)
def test_no_first_digest_while_inactive(
    app: Application, client: TestClient, alice: int, link: Link, state: SubscriberState, problem: str
) -> None:
    with app.db.write() as session:
        session.get_one(Subscriber, alice).state = state
    before = snapshot(app)
    answer = client.post(link(Purpose.PREFERENCES, alice) + "/first")
    assert answer.status_code == 409
    assert problem in answer.text
    assert snapshot(app) == before


def test_first_digest_is_left_to_scheduler_while_clocks_disagree(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    with app.db.write() as session:
        session.get_one(
            Delivery,
            add_digest(session, subscribers.add(session, "carol@example.org", WANTED, clock.utcnow())),
        ).created_at += timedelta(days=30)
    assert press_for_first_digest(client, link, alice).startswith("Your first digest is scheduled.")
    with app.db.read() as session:
        assert subscribers.history(session, alice, 9) == []
        assert subscribers.get(session, alice).next_due_at <= clock.utcnow() + timedelta(seconds=1)  # type: ignore[operator]


def test_requests_for_first_digests_are_limited(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    path = link(Purpose.PREFERENCES, alice) + "/first"
    answers = [client.post(path) for _ in range(app.settings.first_digests_per_hour + 1)]
    assert answers[-1].status_code == 429
    assert "wait" in answers[-1].text
    assert {answer.status_code for answer in answers[:-1]} == {200}


def test_links_of_test_mails_are_explained(app: Application, client: TestClient) -> None:
    token = app.signer.token(Purpose.PREFERENCES, 0, clock.utcnow())
    answer = client.get(f"/preferences/{token}")
    assert answer.status_code == 403
    assert "This link is from a test email" in answer.text


def test_address_is_changed_by_two_mailed_links(
    app: Application, mail_server: MailServer, client: TestClient, alice: int, link: Link
) -> None:
    """An invalid address is shown again with its error. The last page links to the preferences."""
    path = link(Purpose.PREFERENCES, alice) + "/address"
    wrong = client.post(path, data={"email": "nobody"})
    assert wrong.status_code == 422
    assert 'id="new-address" name="email" type="email" value="nobody"' in wrong.text
    message = "We send an email to your current address, at most once an hour."
    assert message in client.post(path, data={"email": BOB}).text
    for recipient, heading in ((ALICE, "Now check your new mailbox"), (BOB, "Your digests now go to this")):
        mail = mail_server.messages[-1]
        assert mail.recipient == recipient
        text = mail.parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
        confirmation = re.search(r"https://paperboy\.test(/address/\S{51})\s", text)
        assert confirmation
        assert f'name="email" value="{BOB}"' in client.get(confirmation[1]).text
        assert client.post(confirmation[1], data={"email": ALICE}).status_code == 409
        done = client.post(confirmation[1], data={"email": BOB}).text
        assert heading in done
        again = client.post(confirmation[1], data={"email": BOB})
        assert again.status_code == 200
        assert (heading if recipient == ALICE else "This change is complete") in again.text
    with app.db.read() as session:
        assert subscribers.get(session, alice).email == BOB
    assert client.get(path.removesuffix("/address")).status_code == 410
    new_link = re.search(r'href="(/preferences/\S{51})"', done)
    assert new_link
    assert client.get(new_link[1]).status_code == 200


@pytest.mark.parametrize("email", ["new@example.org", BOB])
def test_pending_address_is_shown_until_it_is_confirmed(
    app: Application, client: TestClient, alice: int, link: Link, email: str
) -> None:
    """The text is the same if the address belongs to another subscriber."""
    with app.db.write() as session:
        subscribers.add(session, BOB, WANTED, clock.utcnow())
    path = link(Purpose.PREFERENCES, alice)
    pending = "takes effect once you confirm it from both mailboxes"
    assert pending not in client.get(path).text
    page = client.post(f"{path}/address", data={"email": email}).text
    assert f"The change to <strong>{email}</strong> {pending}." in page
    with app.db.write() as session:
        subscribers.expire_changes(session, clock.utcnow() + timedelta(days=3))
    assert pending not in client.get(path).text


def test_international_domain_of_an_address(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Pages show it in Unicode, as its owner knows it."""
    with app.db.write() as session:
        session.get_one(Subscriber, alice).email = "alice@xn--r8jz45g.jp"
    for purpose, address in ((Purpose.PREFERENCES, "alice@例え.jp"), (Purpose.UNSUBSCRIBE, "a…@例え.jp")):
        page = client.get(link(purpose, alice)).text
        assert address in page
        assert "xn--" not in page


def test_alias_of_a_time_zone_is_kept(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """Each zone is offered under one name, but an alias that is stored from before stays selected."""
    with app.db.write() as session:
        subscriber = subscribers.get(session, alice)
        repository.store_preferences(session, subscriber, replace(WANTED, zone="Asia/Calcutta"))
    page = client.get(link(Purpose.PREFERENCES, alice)).text
    assert '<option value="Asia/Calcutta" selected>Asia/Calcutta' in page
    assert '<option value="Asia/Kolkata">Kolkata' in page
    assert "US/Pacific" not in page
