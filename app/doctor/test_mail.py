"""Send a test digest to our own mail server, and check the received message.

A second, temporary service sends the digest with the real code and settings. It has its own database, secret
and subscriber, and reads the bundled sample of papers. It cannot affect the service being checked: its email
is delivered only to this process, and its links do not work anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sqlmodel import select

from app import clock, pipeline, subscribers
from app.application import Application
from app.doctor import message_checks, oneclick, templates
from app.doctor.findings import Finding, error, ok
from app.doctor.message_checks import REPORT_BUG, Mail
from app.doctor.smtp_sink import HOST, Sink
from app.errors import CorruptModel, InvalidSettings
from app.settings import Settings, SmtpSecurity
from app.storage import api_keys, schema
from app.storage.models import Delivery, Subscriber
from app.subscribers import MAX_PAPERS, Preferences
from app.types import EmptyDigestPolicy, Interest

if TYPE_CHECKING:  # loading FastAPI would take a tenth of the start-up time of every command
    from fastapi import FastAPI

RECIPIENT = "doctor@example.org"
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
    """Factories for the service that sends the test digest, and its sample files, oldest first."""

    build: Callable[[Settings], Application]
    create_app: Callable[[Application], FastAPI]
    sample: Sequence[tuple[datetime, Path]]


def check(settings: Settings, service: TemporaryService, sink: Sink | None = None) -> Iterator[Finding]:
    """Send a digest of many papers, check it and the templates, and try both ways to unsubscribe."""
    try:
        with sink or Sink() as listening, _running(settings, service, listening.port) as app:
            subscriber_id = _send_digest(app, service.sample)
            site = service.create_app(app)
            # The proxy in front of the web app removes the base URL's path from requested URLs.
            origin = settings.base_url.removesuffix(urlsplit(settings.base_url).path)
            yield from templates.check(app, site, subscriber_id, origin, clock.utcnow())
            if not listening.received:
                with app.db.read() as session:
                    delivery = session.exec(select(Delivery)).first()
                reason = "no digest was composed"
                if delivery:
                    reason = f"{delivery.state}, {delivery.smtp_text or delivery.reason}"
                fix = templates.FIX if "templates/" in reason else REPORT_BUG
                yield error("mail", f"no mail could be sent: {reason}", fix)
                return
            mail = Mail(listening.received[0], app.settings, app.signer)
            yield ok("mail", f"the test digest was received: “{mail.message['Subject']}”")
            yield from message_checks.check(mail)
            if mail.unsubscribe_url.startswith(settings.base_url):
                url = origin + mail.unsubscribe_url.removeprefix(settings.base_url)
                yield from oneclick.check(app, site, subscriber_id, url)
            yield from oneclick.check_mailto(app, subscriber_id, mail.unsubscribe_address)
    except InvalidSettings as fault:
        yield error("mail", f"no mail can be composed: {fault}", "fix the settings that are reported above")
    except CorruptModel as fault:
        yield error("mail", "no digest can be composed without the bundled model", str(fault))


@contextmanager
def _running(settings: Settings, service: TemporaryService, port: int) -> Iterator[Application]:
    with TemporaryDirectory(prefix="paperboy-doctor-") as folder:
        url = f"sqlite:///{folder}/paperboy.db"
        notices = Path(folder) / "notices"  # a separate folder, because all its files are read as notices
        notices.mkdir()
        changes = {
            "database_url": url,
            "secret_keys": (api_keys.new_secret(),),
            "journal_dir": str(Path(folder) / "journal"),
            "search_dir": str(Path(folder) / "search"),
            "smtp_host": HOST,
            "smtp_port": port,
            "smtp_security": SmtpSecurity.NONE,
            "smtp_username": "",
            "smtp_password": "",
            "bounce_mailbox": "",
            "bounce_folder": str(notices) if settings.bounce_mailbox or settings.bounce_folder else "",
            "summary_url": "",
            "otel_endpoint": "",
            "scheduler": False,
        }
        schema.migrate(url)
        app = service.build(settings.model_copy(update=changes))
        try:
            yield app
        finally:
            app.db.dispose()


def _send_digest(app: Application, sample: Sequence[tuple[datetime, Path]]) -> int:
    """Read the sample and send one digest to a new subscriber. Return the subscriber's id."""
    now, _ = sample[-1]
    preferences = Preferences(
        interests=tuple(map(Interest, INTERESTS)),
        max_papers=MAX_PAPERS,
        when_empty=EmptyDigestPolicy.TRENDING,
    )
    with app.db.write() as session:
        subscriber_id = subscribers.add(session, RECIPIENT, preferences, now - DAY)
        session.get_one(Subscriber, subscriber_id).next_due_at = now
    pipeline.read_files(app, [path for _, path in sample], now)
    pipeline.plan_and_send(app, now)
    return subscriber_id
