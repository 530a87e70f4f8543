"""Test presigning: digests are signed before they are due and sent with that signature."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import dkim as verifier
import pytest
from sqlalchemy import update
from sqlmodel import col, select

from app import main, maintenance, pipeline
from app.application import Application
from app.delivery import ledger, presigning
from app.delivery.ledger import retention
from app.digests.operator_changes import Editor
from app.errors import DeliveryError
from app.mail import dkim
from app.mail.composer import Composer, Draft
from app.settings import Settings
from app.storage.models import Delivery, DigestContent, Subscriber
from app.storage.models import DeliveryState as State
from app.types import MailRequest
from tests.delivery.ledger.test_ledger import enqueue_mails
from tests.support import factories
from tests.support.mail_server import MailServer

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAMES = ["alice", "bob", "carol"]


@pytest.fixture
def signer(settings: Settings, tmp_path: Path) -> Iterator[Application]:
    """Return the application with a key that signs quickly."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    app = main.build(settings.model_copy(update={"dkim_keys": (f"s1:{tmp_path / 'key.pem'}",)}))
    yield app
    app.db.dispose()


def signatures(app: Application) -> dict[str, str]:
    """Return the stored signatures by the reader's name."""
    query = (
        select(Subscriber.email, DigestContent.signature)
        .select_from(Delivery)
        .join(Subscriber)
        .join(DigestContent)
    )
    with app.db.read() as session:
        rows = session.exec(query).all()
    return {email.partition("@")[0]: signature for email, signature in rows}


def test_presigned_digests_are_sent_without_signing(
    signer: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is sent with its stored signature."""
    monkeypatch.setattr(presigning, "BATCH_SIZE", 2)
    enqueue_mails(signer, now, *NAMES, due_at=now + HOUR)
    assert presigning.sign_ahead(signer.sender, now) == 3
    assert presigning.sign_ahead(signer.sender, now) == 0
    ahead = signatures(signer)
    with monkeypatch.context() as patch:
        patch.setattr(Composer, "_sign", None)
        assert pipeline.send_now(signer, now + HOUR) == {"sent": 3}
    for mail in mail_server.messages:
        assert mail.data.decode().startswith(ahead[mail.recipient.partition("@")[0]])


def cards(app: Application) -> set[int]:
    """Return the identities of the cached cards."""
    return {id(cached) for by_item in app.composer._fragments._cards_by_item for cached in by_item.values()}


def test_digests_are_sent_with_the_cards_of_their_signing(
    signer: Application, mail_server: MailServer, now: datetime
) -> None:
    """Cards of an earlier day are dropped at the first signing or sending of a day, and not again.

    The digests that are due at midnight UTC are signed on the day before.
    """
    midnight = now.replace(hour=0, minute=0) + DAY
    for number, due_at in enumerate((midnight - HOUR, midnight, midnight + 8 * HOUR)):
        early = due_at - timedelta(minutes=9)
        enqueue_mails(signer, early, NAMES[number], due_at=due_at)
        assert presigning.sign_ahead(signer.sender, early) == 1
        signed_with = cards(signer)
        assert pipeline.send_now(signer, due_at) == {"sent": 1}
        assert signed_with
        assert signed_with <= cards(signer)


def test_pruning_drops_what_only_waiting_emails_need(
    signer: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sent emails lose their signature, their sender and when to give them up. Waiting emails keep them."""
    monkeypatch.setattr(retention, "BATCH_SIZE", 2)
    enqueue_mails(signer, now, *NAMES, due_at=now + HOUR)
    presigning.sign_ahead(signer.sender, now)
    with signer.db.write() as session:
        session.connection().execute(update(Delivery).values(give_up_at=now + DAY))
        waiting = session.get_one(Delivery, 2)
        waiting.next_attempt_at, waiting.lease_owner = now + 2 * HOUR, "worker 7"
    assert pipeline.send_now(signer, now + HOUR) == {"sent": 2}
    assert maintenance.prune(signer, now + HOUR)["signatures"] == 0  # their results may be repeated
    assert maintenance.prune(signer, now + 2 * HOUR)["signatures"] == 2
    assert sorted(map(bool, signatures(signer).values())) == [False, False, True]
    with signer.db.read() as session:
        contents = session.exec(select(DigestContent).order_by(col(DigestContent.delivery_id))).all()
        deliveries = session.exec(select(Delivery).order_by(col(Delivery.id))).all()
        assert [content.signature_fingerprint == "-" for content in contents] == [True, False, True]
        assert [delivery.lease_owner for delivery in deliveries] == ["", "worker 7", ""]
        assert [delivery.give_up_at for delivery in deliveries] == [None, now + DAY, None]
    assert maintenance.prune(signer, now + 2 * HOUR)["signatures"] == 0


def test_a_changed_mail_is_signed_again(signer: Application, mail_server: MailServer, now: datetime) -> None:
    """The stored signature would not verify."""
    enqueue_mails(signer, now, "alice", due_at=now + HOUR)
    presigning.sign_ahead(signer.sender, now)
    with signer.db.write() as session:
        session.get_one(Subscriber, 1).email = "alice@elsewhere.org"
        ahead = session.get_one(DigestContent, 1).signature
    assert pipeline.send_now(signer, now + HOUR) == {"sent": 1}
    (mail,) = mail_server.messages
    assert mail.recipient == "alice@elsewhere.org"
    assert ahead.splitlines()[-1] not in mail.data.decode()


def test_digest_that_changes_while_it_is_signed_is_signed_again(
    signer: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite cannot lock it. On PostgreSQL, a digest that is being signed changes when it is claimed."""
    enqueue_mails(signer, now, "alice", "bob", due_at=now + HOUR)
    with signer.db.write() as session:
        paper = factories.add_paper(session, factories.add_source(session, now), "Read", now.date(), now)
    signature = Composer.signature
    signed_ids: list[int] = []

    def hide_once(composer: Composer, draft: Draft) -> tuple[str, str]:
        lines = signature(composer, draft)
        if not signed_ids:
            with signer.db.write() as session:
                Editor(session, "desk", now).hide(paper)
        signed_ids.append(draft.request.delivery_id)
        return lines

    monkeypatch.setattr(Composer, "signature", hide_once)
    monkeypatch.setattr(presigning, "ThreadPoolExecutor", partial(ThreadPoolExecutor, 1))
    assert presigning.sign_ahead(signer.sender, now) == 2
    assert set(signed_ids) == {1, 2}
    assert all(signatures(signer).values())
    assert pipeline.send_now(signer, now + HOUR) == {"sent": 2}
    (key,) = dkim.load(signer.settings.dkim_keys)
    _, record = key.record(signer.settings.mail_domain)
    for mail in mail_server.messages:
        assert b"Read or Retrieve" not in mail.data
        assert verifier.verify(mail.data, dnsfunc=lambda *_, **__: record.encode())


def test_a_digest_that_cannot_be_composed_is_skipped(
    signer: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is recorded when it is due."""
    enqueue_mails(signer, now, *NAMES, due_at=now + HOUR)
    draft = Composer.draft

    def fail_for_bob(composer: Composer, request: MailRequest) -> Draft:
        if request.email.startswith("bob"):
            raise DeliveryError("no", permanent=True)
        return draft(composer, request)

    monkeypatch.setattr(Composer, "draft", fail_for_bob)
    assert presigning.sign_ahead(signer.sender, now) == 2
    assert {name for name, signature in signatures(signer).items() if not signature} == {"bob"}


def test_only_waiting_digests_are_signed(signer: Application, mail_server: MailServer, now: datetime) -> None:
    """Sent and due ones are skipped, and a stopping process signs nothing."""
    enqueue_mails(signer, now, "alice")
    assert presigning.sign_ahead(signer.sender, now) == 0
    enqueue_mails(signer, now, "bob", due_at=now + HOUR)
    signer.stopping.set()
    assert presigning.sign_ahead(signer.sender, now) == 0
    assert set(signatures(signer).values()) == {""}


def test_no_digest_is_selected_twice(
    signer: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Digests that cannot be signed, were sent or are due get an empty signature."""
    monkeypatch.setattr(Composer, "signature", None)
    ids = enqueue_mails(signer, now, "alice", "bob", due_at=now + HOUR)
    enqueue_mails(signer, now, "carol")
    with signer.db.write() as session:
        session.get_one(Delivery, ids[1]).state = State.SENT
        session.flush()
        assert ledger.lock_unsigned(session, now, limit=9) == {ids[0]: True, ids[1]: False}
    assert presigning.sign_ahead(signer.sender, now) == 0
    with signer.db.read() as session:
        assert not presigning.has_unsigned(signer.sender, session, now)


def test_no_presigning_without_keys(app: Application, now: datetime) -> None:
    """The relay may sign."""
    enqueue_mails(app, now, "alice", due_at=now + HOUR)
    assert presigning.sign_ahead(app.sender, now) == 0


def test_presigning_error_does_not_fail_the_run(
    signer: Application, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Due emails are sent, and the run has no error."""
    enqueue_mails(signer, now, "alice")

    def fail(_app: Application, _now: datetime) -> int:
        raise OSError("no threads")

    monkeypatch.setattr(presigning, "sign_ahead", fail)
    assert pipeline.plan_and_send(signer, now)["sent"] == 1


def test_four_processes_sign_each_mail_once(
    signer: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each skips the emails that another one is signing."""
    monkeypatch.setattr(presigning, "BATCH_SIZE", 10)
    enqueue_mails(signer, now, *(f"reader{n}" for n in range(120)), due_at=now + HOUR)
    drafts = []
    signature = Composer.signature

    def counted(composer: Composer, draft: Draft) -> tuple[str, str]:
        drafts.append(draft)
        return signature(composer, draft)

    monkeypatch.setattr(Composer, "signature", counted)
    apps = [main.build(signer.settings) for _ in range(4)]
    with ThreadPoolExecutor(4) as machines:
        signed = sum(machines.map(lambda app: presigning.sign_ahead(app.sender, now), apps))
    for app in apps:
        app.db.dispose()
    assert signed == len(drafts) == 120
    assert "" not in signatures(signer).values()
