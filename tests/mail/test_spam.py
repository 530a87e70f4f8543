"""Score received, signed emails with SpamAssassin."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from app import main, pipeline
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
    """Return an application that signs its emails."""
    dkim.create(Algorithm.RSA, tmp_path / "key.pem")
    built = main.build(settings.model_copy(update={"dkim_keys": (f"mail:{tmp_path / 'key.pem'}",)}))
    yield built
    built.db.dispose()


def send_digests(app: Application, files: Sequence[Path], day: date) -> datetime:
    """Send ten readers their digests of a day, and return the time."""
    eight = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=8)
    with app.db.write() as session:
        for number, interests in enumerate(INTERESTS):
            usual = {"max_papers": 5 + 2 * number, "when_empty": EmptyDigestPolicy.TRENDING}
            factories.add_subscriber(session, f"reader{number}@example.org", interests, eight, **usual)
    pipeline.read_files(app, files, eight - timedelta(hours=3))
    pipeline.plan_and_send(app, eight)
    return eight + timedelta(seconds=5)


def check_scores(server: MailServer, at: datetime, folder: Path, most: float = 0) -> None:
    assert all(mail.data.startswith(b"DKIM-Signature:") for mail in server.messages)
    verdicts = spamassassin.score_mails(server.messages, at, folder)
    assert len(verdicts) == len(server.messages)
    assert [verdict for verdict in verdicts if verdict.score > most] == []


def test_sample_digests_are_not_spam(app: Application, mail_server: MailServer, tmp_path: Path) -> None:
    """Digests of the bundled papers score 0 or less."""
    *_, last = (each for each in sample.sample_files() if each.folder == "huggingface")
    arrived = send_digests(app, [last.path], last.at.date())
    assert len(mail_server.messages) == len(INTERESTS)
    check_scores(mail_server, arrived, tmp_path)


def test_confirmation_is_not_spam(
    app: Application, mail_server: MailServer, tmp_path: Path, now: datetime
) -> None:
    """It lacks list headers, which would subtract a point; its only points are for HTML."""
    with app.db.write() as session:
        preferences = Preferences(zone="UTC", interests=(Interest("robotics"),))
        factories.sign_up(session, SignUp("alice@example.org", preferences), "192.0.2.1", now)
    pipeline.plan_and_send(app, now)
    check_scores(mail_server, now, tmp_path, most=0.1)


@pytest.mark.realdata
def test_real_digests_are_not_spam(app: Application, mail_server: MailServer, tmp_path: Path) -> None:
    """They are built from a week of recorded days."""
    files = sorted((SHARED_DATA / "hf_daily").glob("*.json"))[-DAYS:]
    arrived = send_digests(app, files, date.fromisoformat(files[-1].stem))
    assert len(mail_server.messages) == 10
    check_scores(mail_server, arrived, tmp_path)
