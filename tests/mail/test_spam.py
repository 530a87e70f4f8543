"""What a spam filter makes of the mails: the received bytes, signed, as they come from the relay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from app import main, pipeline, subscribers
from app.application import Application
from app.cli import sample
from app.mail import dkim
from app.mail.dkim import Algorithm
from app.settings import Settings
from app.subscribers import Preferences, SignUp
from app.types import EmptyDigestPolicy, Interest
from tests.conftest import SHARED_DATA
from tests.support import factories, spamassassin
from tests.support.mail_server import MailServer

pytestmark = pytest.mark.once

DAYS = 7
INTERESTS = (
    ["language agents", "tool use"],
    ["video generation"],
    ["quantization", '"mixture of experts"'],
    ["reasoning -robot"],
    ["robotics", "vision language action"],
    ["medical imaging", "protein"],
    ["speech recognition", "music"],
    ["world models"],
    ["retrieval augmented generation"],
    ["diffusion models", "image editing"],
)


@pytest.fixture
def app(settings: Settings, tmp_path: Path) -> Iterator[Application]:
    """It signs what it sends."""
    dkim.create(Algorithm.RSA, tmp_path / "key.pem")
    built = main.build(settings.model_copy(update={"dkim_keys": (f"mail:{tmp_path / 'key.pem'}",)}))
    yield built
    built.db.dispose()


def digests(app: Application, files: Sequence[Path], day: date) -> datetime:
    """Ten readers get theirs of that day, at eight; when that was."""
    eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
    with app.db.write() as session:
        for number, interests in enumerate(INTERESTS):
            usual = {"max_papers": 5 + 2 * number, "when_empty": EmptyDigestPolicy.TRENDING}
            factories.reader(session, f"reader{number}@example.org", interests, eight, **usual)
    pipeline.read_files(app, files, eight - timedelta(hours=3))
    pipeline.send_due(app, eight)
    return eight + timedelta(seconds=5)


def check(server: MailServer, at: datetime, folder: Path, most: float = 0) -> None:
    assert all(mail.data.startswith(b"DKIM-Signature:") for mail in server.messages)
    found = spamassassin.verdicts(server.messages, at, folder)
    assert len(found) == len(server.messages)
    assert [verdict for verdict in found if verdict.score > most] == []


def test_digests_of_the_sample_are_no_spam(app: Application, mail_server: MailServer, tmp_path: Path) -> None:
    """Every digest that the bundled papers make scores nothing, or less."""
    *_, last = (each for each in sample.sample_files() if each.folder == "huggingface")
    arrived = digests(app, [last.path], last.at.date())
    assert len(mail_server.messages) == len(INTERESTS)
    check(mail_server, arrived, tmp_path)


def test_a_confirmation_is_no_spam(
    app: Application, mail_server: MailServer, tmp_path: Path, now: datetime
) -> None:
    """It belongs to no list, which alone is why it gets no points off: what is left is that it has HTML."""
    with app.db.write() as session:
        wanted = Preferences(zone="UTC", interests=(Interest("robotics"),))
        subscribers.sign_up(session, SignUp("alice@example.org", wanted), "192.0.2.1", now)
    pipeline.send_due(app, now)
    check(mail_server, now, tmp_path, most=0.1)


@pytest.mark.realdata
def test_ten_real_digests_are_no_spam(app: Application, mail_server: MailServer, tmp_path: Path) -> None:
    """Made of a week of recorded days."""
    files = sorted((SHARED_DATA / "hf_daily").glob("*.json"))[-DAYS:]
    arrived = digests(app, files, date.fromisoformat(files[-1].stem))
    assert len(mail_server.messages) == 10
    check(mail_server, arrived, tmp_path)
