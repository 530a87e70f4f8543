"""Signatures of the received bytes, checked by an independent verifier."""

from __future__ import annotations

import email
import re
from datetime import datetime, timedelta
from email.header import decode_header, make_header

import dkim as dkimpy
import pytest

from app.application import Application
from app.mail import dkim
from app.mail.dkim import Algorithm
from app.settings import Settings
from tests.faults import checks
from tests.faults.relay_process import Sink
from tests.faults.sender_process import Starter

SOON = timedelta(minutes=10)
LONG_NAME = "Der Zeitungsjunge für Übersichten – 毎日の論文 " + "and a very long tail " * 6


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[Algorithm, str]:
    """A key of each algorithm, as an entry of the settings."""
    folder = tmp_path_factory.mktemp("keys")
    for algorithm in Algorithm:
        dkim.create(algorithm, folder / algorithm)
    return {algorithm: f"{algorithm}:{folder / algorithm}" for algorithm in Algorithm}


@pytest.fixture(params=["rsa", "ed25519", "both"])
def settings(request: pytest.FixtureRequest, settings: Settings, keys: dict[Algorithm, str]) -> Settings:
    """Settings that have every mail signed, and a name that is long and beyond ASCII."""
    both = request.param == "both"
    own = tuple(keys.values()) if both else (keys[Algorithm(request.param)],)
    return settings.model_copy(update={"dkim_keys": own, "site_name": LONG_NAME.strip()})


def verified(app: Application, mail: bytes) -> int:
    """Check all signatures of a mail and return their number."""
    domain = app.settings.mail_domain
    records = dict(key.record(domain) for key in dkim.load(app.settings.dkim_keys))
    known = {name.rstrip(".").encode(): text.encode() for name, text in records.items()}
    message = dkimpy.DKIM(mail)
    signatures = len(re.findall(rb"^DKIM-Signature:", mail, re.MULTILINE | re.IGNORECASE))
    for n in range(signatures):
        assert message.verify(idx=n, dnsfunc=lambda name, **_: known[name.rstrip(b".")])
    return signatures


def test_received_mails_verify(app: Application, relay: Sink, now: datetime, start: Starter) -> None:
    """With a long name outside ASCII, however packets are split."""
    names = checks.queue(app, now, 6)
    relay.talk(keeps=True, bytewise=True)
    assert start(now).counts() == {"sent": 6}
    for taken in relay.taken():
        mail = relay.mail(taken)
        assert verified(app, mail) == len(app.settings.dkim_keys)
        sender = email.message_from_bytes(mail)["From"]
        assert str(make_header(decode_header(sender))).startswith(LONG_NAME.strip())
    checks.check_everybody(app, relay, names)


def test_a_mail_that_is_sent_again_verifies(
    app: Application, relay: Sink, now: datetime, start: Starter
) -> None:
    """An uncertain mail that another process sends again has the same signature."""
    names = checks.queue(app, now, 3)
    relay.talk(keeps=True)
    relay.on("end", tell=True, takes=True, times=1, to="reader1@example.org")
    sender = start(now, settings={"smtp_connections": 1})
    relay.reached()
    sender.kill()
    relay.go_on()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    first, second = (relay.mail(taken) for taken in relay.copies()["reader1"])
    assert first == second
    assert verified(app, second) == len(app.settings.dkim_keys)
