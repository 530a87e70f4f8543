"""A link that reached somebody else: what it still opens, what it tells, and how it is ended."""

from __future__ import annotations

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
from app.cli import cli
from app.delivery import ledger
from app.links import Purpose
from app.storage import api_keys
from app.storage.models import AuditEntry, Delivery, DeliveryState, Scope, SubscriberState
from app.subscribers import Preferences
from app.types import Interest, MailKind
from tests.support import sample_digest
from tests.support.mail_server import MailServer, Received

ALICE, BOB = "alice@example.org", "bob@example.org"
LINK = re.compile(r"https://paperboy\.test(/([a-z]+)/[\w-]{51})")


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """A visitor. What goes wrong inside is answered as in production."""
    site = main.create_app(app)
    with TestClient(site, base_url="https://paperboy.test", raise_server_exceptions=False) as visitor:
        yield visitor


def reader(app: Application, email: str) -> int:
    """A reader for two days."""
    with app.db.write() as session:
        wanted = Preferences(interests=(Interest("robotics"),))
        return subscribers.add(session, email, wanted, clock.utcnow() - timedelta(days=2))


@pytest.fixture
def alice(app: Application) -> int:
    return reader(app, ALICE)


def text_of(mail: Received) -> str:
    body = mail.parsed().get_body(("plain",))
    assert body is not None
    return str(body.get_content())


def links_of(mail: Received) -> dict[str, str]:
    """The paths of a mail's links, by what they are for; those of its papers left out."""
    return {purpose: path for path, purpose in LINK.findall(text_of(mail)) if purpose != Purpose.FEEDBACK}


def send_digest(
    app: Application, mail_server: MailServer, whose: int, edition: str = "2026-11-20"
) -> Received:
    """A digest, as it arrived."""
    now = clock.utcnow()
    with app.db.write() as session:
        delivery_id = enter(session, whose, edition)
    pipeline.send_pending(app, now, [delivery_id])
    return mail_server.messages[-1]


def enter(session: Session, whose: int, edition: str) -> int:
    now = clock.utcnow()
    given = ledger.enqueue(
        session, subscriber_id=whose, kind=MailKind.DIGEST, edition=edition, due_at=now, now=now,
        digest=sample_digest.digest(edition),
    )  # fmt: skip
    assert given is not None
    return given


def opens(client: TestClient, path: str) -> bool:
    return client.get(path).status_code == 200


# --- a forwarded digest


@pytest.mark.once
def test_a_forwarded_digest_exports_nothing(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """None of its links is, or leads to, the link of an export: that one goes to the owner's mailbox."""
    forwarded = links_of(send_digest(app, mail_server, alice))
    assert "export" not in forwarded
    for path in forwarded.values():
        assert "/export/" not in client.get(path).text
    token = forwarded["preferences"].rpartition("/")[2]
    for method in ("GET", "POST"):
        assert client.request(method, f"/export/{token}").status_code == 403
    answer = client.post(forwarded["preferences"] + "/export")
    assert "It works for 2 hours." in answer.text
    assert "deliveries" not in answer.text
    assert [mail.recipient for mail in mail_server.messages] == [ALICE] * 2
    client.post(forwarded["preferences"] + "/export")
    assert len(mail_server.messages) == 2, "one mail an hour"


@pytest.mark.once
def test_an_export_takes_a_fresh_mail(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """Its link downloads everything, for two hours, and grants nothing else."""
    digest = links_of(send_digest(app, mail_server, alice))
    client.post(digest["preferences"] + "/export")
    links = links_of(mail_server.messages[-1])
    assert links.keys() == {"export"}
    assert "works for 2 hours" in text_of(mail_server.messages[-1])
    assert opens(client, links["export"])
    held = json.loads(client.post(links["export"]).content)
    assert held["subscriber"]["email"] == ALICE
    with time_machine.travel(clock.utcnow() + timedelta(hours=2, minutes=1), tick=False):
        assert client.post(links["export"]).status_code == 410


@pytest.mark.once
def test_an_export_after_new_links_takes_a_new_mail(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """The link mailed before is void, so the mail of the last hour does not count; its page says why."""
    digest = links_of(send_digest(app, mail_server, alice))
    client.post(digest["preferences"] + "/export")
    before = links_of(mail_server.messages[-1])
    client.post(digest["preferences"] + "/links")
    fresh = links_of(mail_server.messages[-1])
    for _ in range(2):
        client.post(fresh["preferences"] + "/export")
    after = links_of(mail_server.messages[-1])
    assert len(mail_server.messages) == 4, "one mail an hour for each set of links"
    assert opens(client, after["export"])
    replaced = client.get(before["export"])
    assert replaced.status_code == 410
    assert "replaced by a newer link" in replaced.text


# --- new links


def renew_by_page(app: Application, client: TestClient, whose: int, preferences: str) -> None:
    answer = client.post(preferences + "/links")
    assert answer.status_code == 200
    assert "no longer work" in answer.text
    assert not LINK.search(answer.text)
    assert not re.search(r'href="/[a-z]+/[\w-]{51}', answer.text), "the new ones are mailed alone"


def renew_by_api(app: Application, client: TestClient, whose: int, preferences: str) -> None:
    with app.db.write() as session:
        held = {scope: api_keys.create(session, f"{scope}", [scope], clock.utcnow())[1] for scope in Scope}
    for scope, key in held.items():
        path, headers = f"/api/v1/subscribers/{whose}/new-links", {"Authorization": f"Bearer {key}"}
        answer = client.post(path, headers=headers)
        assert answer.status_code == (202 if scope is Scope.SEND else 403)
        if scope is Scope.SEND:
            assert client.post(path, headers=headers).status_code == 409
            pipeline.send_pending(app, clock.utcnow(), [answer.json()["delivery_id"]])


def renew_by_shell(app: Application, client: TestClient, whose: int, preferences: str) -> None:
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
    assert "were mailed" in result.output


@pytest.mark.once
@pytest.mark.parametrize("renew", [renew_by_page, renew_by_api, renew_by_shell])
def test_new_links_end_the_old_ones(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, renew: object
) -> None:
    """Of every mail so far, and of the feed. Only unsubscribing still works from an old mail."""
    other = links_of(send_digest(app, mail_server, reader(app, BOB)))
    old = links_of(send_digest(app, mail_server, alice))
    page = client.get(old["preferences"]).text
    found = re.search(r'href="(/feed/[\w-]{51})"', page)
    assert found is not None
    old["feed"] = found[1]
    assert all(opens(client, path) for path in old.values())
    renew(app, client, alice, old["preferences"])  # type: ignore[operator]
    assert {purpose for purpose, path in old.items() if opens(client, path)} == {"unsubscribe"}
    assert client.get(old["feed"] + ".json").status_code == 410
    assert client.post(old["preferences"] + "/links").status_code == 410
    fresh = links_of(mail_server.messages[-1])
    assert mail_server.messages[-1].recipient == ALICE
    assert fresh.keys() == {"preferences", "pause", "unsubscribe"}
    assert all(opens(client, path) for path in fresh.values())
    assert found[1] not in client.get(fresh["preferences"]).text, "the feed has a new address"
    assert all(opens(client, path) for path in other.values()), "Bob's links are Bob's"
    assert client.post(old["unsubscribe"]).status_code == 200
    with app.db.read() as session:
        assert subscribers.get(session, alice).state is SubscriberState.UNSUBSCRIBED


@pytest.mark.once
def test_new_links_are_made_once_an_hour(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """More would bomb a mailbox. What was mailed stays valid."""
    old = links_of(send_digest(app, mail_server, alice))
    client.post(old["preferences"] + "/links")
    fresh = links_of(mail_server.messages[-1])
    refused = client.post(fresh["preferences"] + "/links")
    assert refused.status_code == 409
    assert "less than an hour ago" in refused.text
    assert opens(client, fresh["preferences"])
    assert len(mail_server.messages) == 2


@pytest.mark.once
def test_links_cannot_be_renewed_for_who_is_no_reader(
    app: Application, client: TestClient, alice: int
) -> None:
    """Erased, or unknown: the operator is told so, and nothing is written down."""
    with app.db.write() as session:
        subscribers.erase(session, alice, clock.utcnow())
        key = api_keys.create(session, "desk", [Scope.SEND], clock.utcnow())[1]
    for whose, status in ((alice, 409), (4711, 404)):
        path = f"/api/v1/subscribers/{whose}/new-links"
        assert client.post(path, headers={"Authorization": f"Bearer {key}"}).status_code == status
    with app.db.read() as session:
        assert "subscriber.new-links" not in session.exec(select(AuditEntry.action)).all()


@pytest.mark.once
def test_a_digest_that_waits_leaves_with_the_new_links(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """Composed before, sent after: nobody gets a mail whose links are void."""
    now = clock.utcnow()
    with app.db.write() as session:
        waiting = enter(session, alice, "2026-11-21")
        subscribers.new_links(session, alice, now)
    pipeline.send_pending(app, now, [waiting])
    assert all(opens(client, path) for path in links_of(mail_server.messages[-1]).values())


# --- numbers


@pytest.mark.once
@pytest.mark.parametrize("asked_for", [BOB, "nobody@example.org"], ids=["a reader", "nobody"])
def test_no_later_mail_tells_whether_somebody_is_a_reader(
    mail_server: MailServer, app: Application, client: TestClient, alice: int, asked_for: str
) -> None:
    """Two mails to the attacker, and between them their question after another address."""
    reader(app, BOB)
    mine = [send_digest(app, mail_server, alice, "2026-11-20")]
    client.post("/manage", data={"email": asked_for}, headers={"origin": "https://paperboy.test"})
    # Links are made of the moment as well: two mails of one second hold the same ones.
    with time_machine.travel(clock.utcnow() + timedelta(days=1), tick=False):
        mine.append(send_digest(app, mail_server, alice, "2026-11-21"))
    with app.db.read() as session:
        ids = session.exec(select(Delivery.id).order_by(col(Delivery.id))).all()
    assert len(ids) == (3 if asked_for == BOB else 2)
    seen = [names_in(mail) for mail in mine]
    for one, other in pairwise(seen):
        assert len(one) == len(other) > 5
        for before, after in zip(one, other, strict=True):
            assert len(before) == len(after), "nothing grows with the number"
            assert not any(before[at : at + 8] == after[at : at + 8] for at in range(len(before) - 7))


def names_in(mail: Received) -> list[str]:
    """What a mail is called and can do, in the order in which it stands there."""
    local = mail.sender.partition("@")[0].removeprefix("bounce+")
    message_id = str(mail.parsed()["Message-ID"]).strip("<>").partition("@")[0]
    tokens = re.findall(
        r"(?<![\w-])[\w-]{51}(?![\w-])", text_of(mail) + str(mail.parsed()["List-Unsubscribe"])
    )
    return [local, message_id, *dict.fromkeys(tokens)]


@pytest.mark.once
def test_a_mail_holds_no_number_of_a_row(mail_server: MailServer, app: Application, alice: int) -> None:
    """In no header, link or return path: papers alone have public numbers."""
    with app.db.write() as session:
        now, done = clock.utcnow(), DeliveryState.SENT
        session.add(
            Delivery(
                id=7_654_321, subscriber_id=alice, edition="then", state=done, due_at=now, created_at=now
            )
        )
    mail = send_digest(app, mail_server, alice)
    with app.db.read() as session:
        last = session.exec(select(Delivery.id).order_by(col(Delivery.id).desc())).first()
    assert last == 7_654_322
    assert "7654322" not in mail.sender
    assert b"7654322" not in mail.data


@pytest.mark.once
def test_pages_of_a_reader_hold_no_number_of_a_row(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """Their digests are named by links, their pasted papers by what they are."""
    preferences = links_of(send_digest(app, mail_server, alice))["preferences"]
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
def test_a_neighbours_link_cannot_be_made_from_ones_own(
    app: Application, client: TestClient, alice: int, purpose: Purpose
) -> None:
    """Whichever bit is turned, the link is refused, and nothing tells which part was wrong."""
    token = app.signer.token(purpose, alice, clock.utcnow())
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    said = set()
    for place in range(0, len(token), 3):
        turned = alphabet[alphabet.index(token[place]) ^ 4]
        answer = client.get(f"/{purpose}/{token[:place]}{turned}{token[place + 1 :]}")
        said.add((answer.status_code, answer.text))
    assert {status for status, _ in said} == {403}
    assert len(said) == 1
