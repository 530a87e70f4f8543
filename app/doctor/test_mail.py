"""A digest is sent before the first real one: by the real code and settings, to a mail server of our own.

For one moment there is a whole second service, with a database, a secret and one invented reader of its own,
which reads papers of the demo's sample. So nothing of it can touch the service that is examined: what it
sends reaches this process alone, and its links open nothing elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from fastapi import FastAPI
from sqlmodel import select

from app import pipeline, subscribers
from app.application import Application
from app.doctor import message_checks, oneclick
from app.doctor.findings import Finding, error, well
from app.doctor.message_checks import OURS, Mail
from app.doctor.smtp_sink import HOST, Sink
from app.errors import InvalidSettings
from app.settings import Settings, SmtpSecurity
from app.storage import api_keys, database
from app.storage.models import Delivery, Subscriber
from app.subscribers import MAX_PAPERS, Preferences
from app.types import EmptyDigestPolicy, Interest

READER = "doctor@example.org"
DAY = timedelta(days=1)
INTERESTS = (
    "language models",
    "agents",
    "reasoning",
    "video generation",
    "reinforcement learning",
    "robotics",
)


@dataclass(frozen=True)
class TemporaryService:
    """How the service is made that sends the test digest. `sample` is what it reads, oldest first."""

    build: Callable[[Settings], Application]
    create_app: Callable[[Application], FastAPI]
    sample: Sequence[tuple[datetime, Path]]


def look(settings: Settings, service: TemporaryService, sink: Sink | None = None) -> Iterator[Finding]:
    """Compose, sign and send a digest of many papers, look at what arrives, and leave by its link."""
    try:
        yield from _rehearse(settings, service, sink or Sink())
    except InvalidSettings as fault:
        yield error("mail", f"no mail can be made: {fault}", "mend first what is said of the settings")


def _rehearse(settings: Settings, service: TemporaryService, sink: Sink) -> Iterator[Finding]:
    with sink as listening, _service(settings, service, listening.port) as app:
        reader_id = _send(app, service.sample)
        if not listening.taken:
            yield error("mail", f"no mail could be sent: {_why(app)}", OURS)
            return
        mail = Mail(listening.taken[0], app.settings, app.signer)
        yield well("mail", f"a digest of the bundled sample arrived here: “{mail.message['Subject']}”")
        yield from message_checks.check(mail)
        if mail.way_out.startswith(settings.base_url):
            yield from oneclick.check(app, service.create_app(app), reader_id, _behind_the_proxy(mail))


def _behind_the_proxy(mail: Mail) -> str:
    """The way out as the web app gets it: the proxy in front takes off what the base URL has of a path."""
    path = urlsplit(mail.settings.base_url).path
    return mail.way_out.replace(path, "", 1) if path else mail.way_out


@contextmanager
def _service(settings: Settings, service: TemporaryService, port: int) -> Iterator[Application]:
    with TemporaryDirectory(prefix="paperboy-doctor-") as folder:
        url = f"sqlite:///{folder}/paperboy.db"
        changed = {
            "database_url": url,
            "secret_keys": (api_keys.new_secret(),),
            "journal_dir": str(Path(folder) / "journal"),
            "smtp_host": HOST,
            "smtp_port": port,
            "smtp_security": SmtpSecurity.NONE,
            "smtp_username": "",
            "smtp_password": "",
            "bounce_mailbox": "",
            "bounce_folder": "",
            "summary_url": "",
            "otel_endpoint": "",
            "scheduler": False,
        }
        database.migrate(url)
        app = service.build(settings.model_copy(update=changed))
        try:
            yield app
        finally:
            app.db.dispose()


def _send(app: Application, sample: Sequence[tuple[datetime, Path]]) -> int:
    """Live through the one moment at which the reader is due; the reader's id."""
    now, _ = sample[-1]
    wants = Preferences(
        interests=tuple(map(Interest, INTERESTS)),
        max_papers=MAX_PAPERS,
        when_empty=EmptyDigestPolicy.TRENDING,
    )
    with app.db.write() as session:
        reader_id = subscribers.add(session, READER, wants, now - DAY)
        session.get_one(Subscriber, reader_id).next_due_at = now
    pipeline.read_files(app, [path for _, path in sample], now)
    pipeline.send_due(app, now)
    return reader_id


def _why(app: Application) -> str:
    """What the ledger says of the one mail."""
    with app.db.read() as session:
        told = session.exec(select(Delivery)).first()
    return f"{told.state}, {told.smtp_text or told.reason}" if told else "the sample made no digest"
