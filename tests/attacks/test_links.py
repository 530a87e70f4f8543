"""Test links that reached another person: what they allow, what they reveal, and how to revoke them."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from urllib.parse import urlsplit

import pytest
import time_machine
from fastapi.testclient import TestClient
from sqlmodel import Session, col, select
from typer.testing import CliRunner

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.cli.commands import cli
from app.delivery import ledger, suppression
from app.links import Purpose
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, Delivery, DeliveryState, SubscriberState
from app.subscribers import Preferences
from app.types import Interest, MailKind
from tests.support import sample_digest
from tests.support.mail_server import MailServer, Received

ALICE, BOB = "alice@example.org", "bob@example.org"
LINK = re.compile(r"https://paperboy\.test(/([a-z]+)/[\w-]{51})")


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """Return a browser of a visitor. Internal errors give an error page, as in production."""
    site = main.create_app(app)
    with TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False) as visitor:
        yield visitor


def add_reader(app: Application, email: str) -> int:
    """Add a reader who confirmed two days ago, and return the id."""
    with app.db.write() as session:
        preferences = Preferences(interests=(Interest("robotics"),))
        return subscribers.add(session, email, preferences, clock.utcnow() - timedelta(days=2))


@pytest.fixture
def alice(app: Application) -> int:
    return add_reader(app, ALICE)


def text_of(mail: Received) -> str:
    body = mail.parsed().get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def links_of(mail: Received) -> dict[str, str]:
    """Return the paths of an email's links by purpose, without those of papers."""
    return {purpose: path for path, purpose in LINK.findall(text_of(mail)) if purpose != Purpose.FEEDBACK}


def preferences_of(app: Application, whose: int) -> str:
    """Return the path of a new link to the preferences, as it is sent on request."""
    return f"/preferences/{app.signer.token(Purpose.PREFERENCES, whose, clock.utcnow())}"


def send_digest(
    app: Application, mail_server: MailServer, whose: int, edition: str = "2026-11-20"
) -> Received:
    """Send a digest, and return it as received."""
    now = clock.utcnow()
    with app.db.write() as session:
        delivery_id = enqueue_digest(session, whose, edition)
    pipeline.send_now(app, now, [delivery_id])
    return mail_server.messages[-1]


def enqueue_digest(session: Session, whose: int, edition: str) -> int:
    now = clock.utcnow()
    delivery = ledger.enqueue(
        session, subscriber_id=whose, kind=MailKind.DIGEST, edition=edition, due_at=now, now=now,
        digest=sample_digest.digest(edition),
    )  # fmt: skip
    assert delivery is not None
    return delivery


def is_valid(client: TestClient, path: str) -> bool:
    return client.get(path).status_code == 200


# --- a forwarded digest


@pytest.mark.once
def test_links_of_a_forwarded_digest_change_nothing(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """They read, pause, leave and give feedback. The link to everything else is sent to the owner."""
    forwarded = links_of(send_digest(app, mail_server, alice))
    assert forwarded.keys() == {Purpose.SUBSCRIPTION, Purpose.VIEW, Purpose.UNSUBSCRIBE}
    page = client.get(forwarded[Purpose.SUBSCRIPTION]).text
    assert "robotics" in page
    assert ALICE not in page
    assert {purpose for _, purpose in re.findall(r'"(/([a-z]+)/[\w-]{51})', page)} == {
        Purpose.PAUSE,
        Purpose.UNSUBSCRIBE,
    }
    token = forwarded[Purpose.SUBSCRIPTION].rpartition("/")[2]
    for purpose in Purpose:
        if purpose is not Purpose.SUBSCRIPTION:
            assert client.get(f"/{purpose}/{token}").status_code in (403, 404)
    for action in ("", "/pause", "/export", "/erase", "/address", "/links", "/first"):
        assert client.post(f"/preferences/{token}{action}").status_code == 403
    with app.db.read() as session:
        assert subscribers.preferences_of(session, subscribers.get(session, alice)).interests
    assert len(mail_server.messages) == 1


@pytest.mark.once
def test_digest_links_to_a_form_that_pauses(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """A scanner that opens every link pauses nobody. The reader can pause, and resume on the same page."""

    def state() -> SubscriberState:
        with app.db.read() as session:
            return subscribers.get(session, alice).state

    subscription = links_of(send_digest(app, mail_server, alice))[Purpose.SUBSCRIPTION]
    (form,) = re.findall(r'action="(/pause/[\w-]{51})"', client.get(subscription).text)
    client.get(form)
    assert state() is SubscriberState.ACTIVE
    until = (clock.utcnow() + timedelta(days=9)).date()
    assert "Digests resume on" in client.post(form, data={"until": until.isoformat()}).text
    assert state() is SubscriberState.PAUSED
    page = client.get(subscription).text
    assert "are paused until <strong>" in page
    assert '<input type="hidden" name="action" value="resume">' in page
    client.post(form, data={"action": "resume"})
    assert state() is SubscriberState.ACTIVE
    client.post(form)
    assert "are paused until you resume" in client.get(subscription).text
    with app.db.write() as session:
        subscribers.unsubscribe(session, alice, clock.utcnow())
    assert "/pause/" not in client.get(subscription).text
    assert len(mail_server.messages) == 1


@pytest.mark.once
def test_digest_links_to_a_mailed_link(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """The button emails it at most once an hour, and the page tells a stranger nothing."""
    subscription = links_of(send_digest(app, mail_server, alice))[Purpose.SUBSCRIPTION]
    for _ in range(2):
        answer = client.post(subscription, headers={"origin": "https://paperboy.test"})
        assert "a…@example.org" in answer.text
        assert not LINK.search(answer.text)
    assert [mail.recipient for mail in mail_server.messages] == [ALICE] * 2
    mailed = links_of(mail_server.messages[-1])[Purpose.PREFERENCES]
    assert is_valid(client, mailed)
    assert "works for 30 days" in text_of(mail_server.messages[-1])
    with time_machine.travel(clock.utcnow() + timedelta(days=30, minutes=1), tick=False):
        expired = client.get(mailed)
        assert expired.status_code == 410
        assert "Send me a new link" in expired.text
        assert is_valid(client, subscription)


@pytest.mark.once
def test_export_is_mailed_once_an_hour(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """The page that requests it shows no data."""
    for _ in range(2):
        answer = client.post(preferences_of(app, alice) + "/export")
        assert "It works for 2 hours." in answer.text
        assert "deliveries" not in answer.text
    assert [mail.recipient for mail in mail_server.messages] == [ALICE]


@pytest.mark.once
def test_export_requires_a_mailed_link(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """Its link downloads the data for two hours and allows nothing else."""
    preferences = preferences_of(app, alice)
    client.post(preferences + "/export")
    links = links_of(mail_server.messages[-1])
    assert links.keys() == {"export"}
    assert "works for 2 hours" in text_of(mail_server.messages[-1])
    assert is_valid(client, links["export"])
    export = json.loads(client.post(links["export"]).content)
    assert export["subscriber"]["email"] == ALICE
    with time_machine.travel(clock.utcnow() + timedelta(hours=2, minutes=1), tick=False):
        assert client.post(links["export"]).status_code == 410


@pytest.mark.once
def test_export_after_renewing_links_is_mailed_again(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """The earlier link is revoked, so the hourly limit does not apply; its page gives the reason."""
    preferences = preferences_of(app, alice)
    client.post(preferences + "/export")
    before = links_of(mail_server.messages[-1])
    client.post(preferences + "/links")
    fresh = links_of(mail_server.messages[-1])
    for _ in range(2):
        client.post(fresh["preferences"] + "/export")
    after = links_of(mail_server.messages[-1])
    assert len(mail_server.messages) == 3, "one email an hour for each set of links"
    assert is_valid(client, after["export"])
    replaced = client.get(before["export"])
    assert replaced.status_code == 410
    assert "replaced by a newer link" in replaced.text


# --- new links


def renew_by_page(app: Application, client: TestClient, whose: int, preferences: str) -> None:
    answer = client.post(preferences + "/links")
    assert answer.status_code == 200
    assert "no longer work" in answer.text
    assert not LINK.search(answer.text)
    assert not re.search(r'href="/[a-z]+/[\w-]{51}', answer.text), "the new links must only be sent by email"


def renew_by_api(app: Application, client: TestClient, whose: int, preferences: str) -> None:
    with app.db.write() as session:
        keys = {scope: api_keys.create(session, f"{scope}", [scope], clock.utcnow())[1] for scope in Scope}
    for scope, key in keys.items():
        path, headers = f"/api/v1/subscribers/{whose}/new-links", {"Authorization": f"Bearer {key}"}
        answer = client.post(path, headers=headers)
        assert answer.status_code == (202 if scope is Scope.SEND else 403)
        if scope is Scope.SEND:
            assert client.post(path, headers=headers).status_code == 409
            pipeline.send_now(app, clock.utcnow(), [answer.json()["delivery_id"]])


def renew_by_cli(app: Application, client: TestClient, whose: int, preferences: str) -> None:
    environment = {
        f"PAPERBOY_{name.upper()}": value
        for name in ("database_url", "base_url", "from_address", "smtp_security", "journal_dir")
        if (value := str(getattr(app.settings, name)))
    } | {
        "PAPERBOY_SECRET_KEYS": app.settings.secret_keys[0],
        "PAPERBOY_SMTP_PORT": str(app.settings.smtp_port),
    }
    result = CliRunner().invoke(
        cli, ["subscribers", "new-links", ALICE], env=environment, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert "The new ones were sent." in result.output


@pytest.mark.once
@pytest.mark.parametrize("renew", [renew_by_page, renew_by_api, renew_by_cli])
def test_renewing_links_revokes_earlier_ones(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, renew: object
) -> None:
    """This includes the feed. Only unsubscribing still works from an old email."""
    other = links_of(send_digest(app, mail_server, add_reader(app, BOB)))
    old = links_of(send_digest(app, mail_server, alice))
    old["preferences"] = preferences_of(app, alice)
    page = client.get(old["preferences"]).text
    match = re.search(r'href="(/feed/[\w-]{51})"', page)
    assert match is not None
    old["feed"] = match[1]
    assert all(is_valid(client, path) for path in old.values())
    renew(app, client, alice, old["preferences"])  # type: ignore[operator]
    assert {purpose for purpose, path in old.items() if is_valid(client, path)} == {"unsubscribe"}
    assert client.get(old["feed"] + ".json").status_code == 410
    assert client.post(old["preferences"] + "/links").status_code == 410
    fresh = links_of(mail_server.messages[-1])
    assert mail_server.messages[-1].recipient == ALICE
    assert fresh.keys() == {"preferences", "pause", "unsubscribe"}
    assert all(is_valid(client, path) for path in fresh.values())
    assert match[1] not in client.get(fresh["preferences"]).text, "the feed has a new address"
    assert all(is_valid(client, path) for path in other.values()), "Bob's links are Bob's"
    assert client.post(old["unsubscribe"]).status_code == 200
    with app.db.read() as session:
        assert subscribers.get(session, alice).state is SubscriberState.UNSUBSCRIBED


@pytest.mark.once
def test_links_are_renewed_at_most_once_an_hour(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """More would flood a mailbox. The links that were sent stay valid."""
    client.post(preferences_of(app, alice) + "/links")
    fresh = links_of(mail_server.messages[-1])
    refused = client.post(fresh["preferences"] + "/links")
    assert refused.status_code == 409
    assert "in the last hour" in refused.text
    assert is_valid(client, fresh["preferences"])
    assert len(mail_server.messages) == 1


@pytest.mark.once
def test_page_says_that_new_links_wait_while_sending_is_paused(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """The links are replaced at once, because one of them may have leaked."""
    with app.db.write() as session:
        ledger.pause(session, "the relay moves", clock.utcnow())
    answer = client.post(preferences_of(app, alice) + "/links")
    assert "You’ll get an email with new links as soon as this service resumes sending." in answer.text
    assert "sent you" not in answer.text
    assert not mail_server.messages


@pytest.mark.once
def test_links_of_a_suppressed_address_are_not_replaced(
    app: Application, client: TestClient, alice: int
) -> None:
    """The email with the new ones would not be sent."""
    preferences = preferences_of(app, alice)
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complained", clock.utcnow())
    answer = client.post(preferences + "/links")
    assert (answer.status_code, "Mail to this address is blocked" in answer.text) == (409, True)
    assert is_valid(client, preferences)


@pytest.mark.once
def test_relay_is_not_probed_for_a_refused_request(app: Application, client: TestClient, alice: int) -> None:
    """The answer names the hourly limit, although the relay cannot be used meanwhile."""
    with app.db.write() as session:
        key = api_keys.create(session, "desk", [Scope.SEND], clock.utcnow())[1]
        subscribers.new_links(session, alice, clock.utcnow())
        ledger.pause(session, "the relay moves", clock.utcnow())
    path = f"/api/v1/subscribers/{alice}/new-links"
    answer = client.post(path, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 409
    assert "in the last hour" in answer.text


@pytest.mark.once
def test_links_of_erased_or_unknown_readers_cannot_be_renewed(
    app: Application, client: TestClient, alice: int
) -> None:
    """The operator gets an error, and nothing is stored."""
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow())
        key = api_keys.create(session, "desk", [Scope.SEND], clock.utcnow())[1]
    for whose, status in ((alice, 409), (4711, 404)):
        path = f"/api/v1/subscribers/{whose}/new-links"
        assert client.post(path, headers={"Authorization": f"Bearer {key}"}).status_code == status
    with app.db.read() as session:
        assert "subscriber.new-links" not in session.exec(select(AuditEntry.action)).all()


@pytest.mark.once
def test_planned_digest_is_sent_with_renewed_links(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """A digest composed earlier must not be sent with revoked links."""
    now = clock.utcnow()
    with app.db.write() as session:
        waiting = enqueue_digest(session, alice, "2026-11-21")
        subscribers.new_links(session, alice, now)
    pipeline.send_now(app, now, [waiting])
    assert all(is_valid(client, path) for path in links_of(mail_server.messages[-1]).values())


# --- numbers


@pytest.mark.once
@pytest.mark.parametrize("asked_for", [BOB, "nobody@example.org"], ids=["a reader", "nobody"])
def test_mails_do_not_reveal_other_readers(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, asked_for: str
) -> None:
    """The attacker compares two own emails, requested before and after asking about another address."""
    add_reader(app, BOB)
    own_mails = [send_digest(app, mail_server, alice, "2026-11-20")]
    client.post("/manage", data={"email": asked_for}, headers={"origin": "https://paperboy.test"})
    # Links contain the time in seconds, so two emails in one second have the same links.
    with time_machine.travel(clock.utcnow() + timedelta(days=1), tick=False):
        own_mails.append(send_digest(app, mail_server, alice, "2026-11-21"))
    with app.db.read() as session:
        ids = session.exec(select(Delivery.id).order_by(col(Delivery.id))).all()
    assert len(ids) == (3 if asked_for == BOB else 2)
    identifiers = [identifiers_of(mail) for mail in own_mails]
    for earlier, later in pairwise(identifiers):
        assert len(earlier) == len(later) == 5
        for before, after in zip(earlier, later, strict=True):
            assert len(before) == len(after), "nothing grows with the number"
            assert not any(before[at : at + 8] == after[at : at + 8] for at in range(len(before) - 7))


def identifiers_of(mail: Received) -> list[str]:
    """Return the subjects, ids and links of an email in their order."""
    local = mail.sender.partition("@")[0].removeprefix("bounce+")
    message_id = str(mail.parsed()["Message-ID"]).strip("<>").partition("@")[0]
    tokens = re.findall(
        r"(?<![\w-])[\w-]{51}(?![\w-])", text_of(mail) + str(mail.parsed()["List-Unsubscribe"])
    )
    return [local, message_id, *dict.fromkeys(tokens)]


@pytest.mark.once
def test_mails_contain_no_row_ids(mail_server: MailServer, app: Application, alice: int) -> None:
    """Check headers, links and return paths. Only ids of papers are public."""
    with app.db.write() as session:
        now, sent = clock.utcnow(), DeliveryState.SENT
        session.add(
            Delivery(
                id=7_654_321, subscriber_id=alice, edition="then", state=sent, due_at=now, created_at=now
            )
        )
    mail = send_digest(app, mail_server, alice)
    with app.db.read() as session:
        last = session.exec(select(Delivery.id).order_by(col(Delivery.id).desc())).first()
    assert last == 7_654_322
    assert "7654322" not in mail.sender
    assert b"7654322" not in mail.data


@pytest.mark.once
def test_reader_pages_contain_no_row_ids(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """Digests are identified by links, pasted papers by their content."""
    preferences = preferences_of(app, alice)
    pasted = {"liked": "@article{a, title={A Paper that Nobody Knows}, author={Ada Lovelace}}"}
    client.post(preferences + "/papers", data=pasted, headers={"origin": "https://paperboy.test"})
    page = client.get(preferences).text
    assert 'name="own" value="' in page
    values = re.findall(r'<button[^>]* name="own" value="([^"]*)"', page)
    assert all(re.fullmatch(r"[0-9a-f]{16}", value) for value in values)
    paths = {urlsplit(link).path for link in re.findall(r'(?:href|action)="([^"]+)"', page)}
    assert not [path for path in paths if re.search(r"/\d+(/|$)", path)]


@pytest.mark.once
@pytest.mark.parametrize("purpose", [Purpose.PREFERENCES, Purpose.FEED, Purpose.VIEW])
def test_modified_links_are_refused(
    app: Application, client: TestClient, alice: int, purpose: Purpose
) -> None:
    """Any flipped bit is refused, and the error does not reveal which part was wrong."""
    token = app.signer.token(purpose, alice, clock.utcnow())
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    pages = set()
    for place in range(0, len(token), 3):
        turned = alphabet[alphabet.index(token[place]) ^ 4]
        answer = client.get(f"/{purpose}/{token[:place]}{turned}{token[place + 1 :]}")
        pages.add((answer.status_code, answer.text))
    assert {status for status, _ in pages} == {403}
    assert len(pages) == 1
