"""What waits for its hour is signed ahead, and what was signed ahead leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlmodel import select

from app import deliver, dkim, main, pipeline, signing
from app.errors import DeliveryError
from app.letters import Composer, Draft
from app.models import Contents, Delivery, Subscriber
from app.models import DeliveryState as State
from app.pipeline import App
from app.records import Letter
from app.settings import Settings
from tests.mailserver import MailServer
from tests.test_deliver import queue

HOUR = timedelta(hours=1)
NAMES = ["alice", "bob", "carol"]


@pytest.fixture
def signer(settings: Settings, tmp_path: Path) -> Iterator[App]:
    """The application, with a key that signs quickly."""
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    app = main.build(settings.model_copy(update={"dkim_keys": (f"s1:{tmp_path / 'key.pem'}",)}))
    yield app
    app.db.dispose()


def signatures(app: App) -> dict[str, str]:
    """What was made ahead, by the name of the reader."""
    theirs = (
        select(Subscriber.email, Contents.signature).select_from(Delivery).join(Subscriber).join(Contents)
    )
    with app.db.read() as session:
        found = session.exec(theirs).all()
    return {email.partition("@")[0]: made for email, made in found}


def test_at_the_hour_nothing_is_left_to_compute(
    signer: App, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leaves with the signature that it was given ahead."""
    monkeypatch.setattr(signing, "SHARD", 2)
    queue(signer, now, *NAMES, due_at=now + HOUR)
    assert signing.sign_ahead(signer, now) == 3
    assert signing.sign_ahead(signer, now) == 0
    ahead = signatures(signer)
    with monkeypatch.context() as patch:
        patch.setattr(Composer, "_sign", None)
        assert pipeline.send_pending(signer, now + HOUR) == {"sent": 3}
    for mail in mail_server.messages:
        assert mail.data.decode().startswith(ahead[mail.recipient.partition("@")[0]])


def test_what_changed_meanwhile_is_signed_anew(signer: App, mail_server: MailServer, now: datetime) -> None:
    """A signature of what a mail was is worse than none."""
    queue(signer, now, "alice", due_at=now + HOUR)
    signing.sign_ahead(signer, now)
    with signer.db.write() as session:
        session.get_one(Subscriber, 1).email = "alice@elsewhere.org"
        ahead = session.get_one(Contents, 1).signature
    assert pipeline.send_pending(signer, now + HOUR) == {"sent": 1}
    (mail,) = mail_server.messages
    assert mail.recipient == "alice@elsewhere.org"
    assert ahead.splitlines()[-1] not in mail.data.decode()


def test_one_that_cannot_be_written_costs_the_others_nothing(
    signer: App, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It will say so when it is to leave."""
    queue(signer, now, *NAMES, due_at=now + HOUR)
    draft = Composer.draft

    def spoiled(composer: Composer, letter: Letter) -> Draft:
        if letter.email.startswith("bob"):
            raise DeliveryError("no", permanent=True)
        return draft(composer, letter)

    monkeypatch.setattr(Composer, "draft", spoiled)
    assert signing.sign_ahead(signer, now) == 2
    assert {name for name, made in signatures(signer).items() if not made} == {"bob"}


def test_only_what_waits_is_signed(signer: App, mail_server: MailServer, now: datetime) -> None:
    """What left meanwhile, or is due already, is left alone; and nothing is signed in a hurry to end."""
    queue(signer, now, "alice")
    assert signing.sign_ahead(signer, now) == 0
    queue(signer, now, "bob", due_at=now + HOUR)
    signer.stopping.set()
    assert signing.sign_ahead(signer, now) == 0
    assert set(signatures(signer).values()) == {""}


def test_no_digest_is_looked_at_twice(signer: App, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be signed, has left or is due at once needs no second look."""
    monkeypatch.setattr(Composer, "signature", None)
    ids = queue(signer, now, "alice", "bob", due_at=now + HOUR)
    queue(signer, now, "carol")
    with signer.db.write() as session:
        session.get_one(Delivery, ids[1]).state = State.SENT
        session.flush()
        assert deliver.lock_unsigned(session, now, limit=9) == {ids[0]: True, ids[1]: False}
    assert signing.sign_ahead(signer, now) == 0
    with signer.db.read() as session:
        assert not signing.anything_unsigned(signer, session, now)


def test_without_keys_nothing_is_signed(app: App, now: datetime) -> None:
    """The relay does it."""
    queue(app, now, "alice", due_at=now + HOUR)
    assert signing.sign_ahead(app, now) == 0


def test_a_failure_costs_the_run_nothing(
    signer: App, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mails that were due are sent, and the run has no error."""
    queue(signer, now, "alice")

    def fail(_app: App, _now: datetime) -> int:
        raise OSError("no threads")

    monkeypatch.setattr(signing, "sign_ahead", fail)
    assert pipeline.send_due(signer, now)["sent"] == 1


def test_four_processes_sign_each_mail_once(
    signer: App, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever one of them has in hand, the others leave alone."""
    monkeypatch.setattr(signing, "SHARD", 10)
    queue(signer, now, *(f"reader{n}" for n in range(120)), due_at=now + HOUR)
    made = []
    signature = Composer.signature

    def counted(composer: Composer, draft: Draft) -> tuple[str, str]:
        made.append(draft)
        return signature(composer, draft)

    monkeypatch.setattr(Composer, "signature", counted)
    apps = [main.build(signer.settings) for _ in range(4)]
    with ThreadPoolExecutor(4) as machines:
        signed = sum(machines.map(lambda app: signing.sign_ahead(app, now), apps))
    for app in apps:
        app.db.dispose()
    assert signed == len(made) == 120
    assert "" not in signatures(signer).values()
