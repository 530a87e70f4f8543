"""Verify the signatures of received emails with an independent verifier."""

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
from tests.faults.relay_process import RelayProcess
from tests.faults.sender_process import Starter

SOON = timedelta(minutes=10)
LONG_NAME = "Der Zeitungsjunge für Übersichten – 毎日の論文 " + "and a very long tail " * 6


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[Algorithm, str]:
    """Create a key of each algorithm, as entries of the settings."""
    folder = tmp_path_factory.mktemp("keys")
    for algorithm in Algorithm:
        dkim.create(algorithm, folder / algorithm)
    return {algorithm: f"{algorithm}:{folder / algorithm}" for algorithm in Algorithm}


@pytest.fixture(params=["rsa", "ed25519", "both"])
def settings(request: pytest.FixtureRequest, settings: Settings, keys: dict[Algorithm, str]) -> Settings:
    """Return settings that sign every email, with a long non-ASCII site name."""
    both = request.param == "both"
    own = tuple(keys.values()) if both else (keys[Algorithm(request.param)],)
    return settings.model_copy(update={"dkim_keys": own, "site_name": LONG_NAME.strip()})


def count_valid_signatures(app: Application, mail: bytes) -> int:
    """Check all signatures of an email and return their number."""
    domain = app.settings.mail_domain
    records = dict(key.record(domain) for key in dkim.load(app.settings.dkim_keys))
    published = {name.rstrip(".").encode(): text.encode() for name, text in records.items()}
    message = dkimpy.DKIM(mail)
    signatures = len(re.findall(rb"^DKIM-Signature:", mail, re.MULTILINE | re.IGNORECASE))
    for n in range(signatures):
        assert message.verify(idx=n, dnsfunc=lambda name, **_: published[name.rstrip(b".")])
    return signatures


def test_received_mails_verify(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """The sender's name is long and not ASCII, and the relay splits packets."""
    names = checks.queue(app, now, 6)
    relay.talk(keeps=True, bytewise=True)
    assert start_sender(now).counts() == {"sent": 6}
    for accepted in relay.accepted():
        mail = relay.mail(accepted)
        assert count_valid_signatures(app, mail) == len(app.settings.dkim_keys)
        sender = email.message_from_bytes(mail)["From"]
        assert str(make_header(decode_header(sender))).startswith(LONG_NAME.strip())
    checks.check_everybody(app, relay, names)


def test_resent_mail_verifies(
    app: Application, relay: RelayProcess, now: datetime, start_sender: Starter
) -> None:
    """Another process sends an uncertain email again with the same signature."""
    names = checks.queue(app, now, 3)
    relay.talk(keeps=True)
    relay.on("end", tell=True, takes=True, times=1, to="reader1@example.org")
    sender = start_sender(now, settings={"smtp_connections": 1})
    relay.reached()
    sender.kill()
    relay.go_on()
    checks.settle(app, now + SOON)
    checks.check_everybody(app, relay, names)
    first, second = (relay.mail(mail) for mail in relay.copies()["reader1"])
    assert first == second
    assert count_valid_signatures(app, second) == len(app.settings.dkim_keys)
