"""Test that logs contain no secrets."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
import stamina
import structlog
from sqlmodel import select

from app import logs, pipeline
from app.application import Application
from app.bounces import Kind, Notice
from app.errors import SourceError
from app.links import LIFETIMES, LinkSigner, Purpose
from app.papers.sources import http_client
from app.papers.sources.http_client import HttpTransport
from app.settings import Settings
from app.storage import api_keys
from app.storage.models import Delivery
from tests.conftest import SECRET
from tests.support import factories
from tests.support.mail_server import MailServer


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Restore the logging configuration of other tests."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


def test_links_and_keys_are_redacted(
    settings: Settings, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tokens and keys are redacted in messages, fields, exceptions and access logs."""
    logs.configure(settings)
    token = LinkSigner([SECRET], "", LIFETIMES).token(Purpose.UNSUBSCRIBE, 7, now)
    key = api_keys.PREFIX + api_keys.new_secret()
    structlog.get_logger("app").info("called", path=f"/unsubscribe/{token}", headers={"Authorization": [key]})
    logging.getLogger("uvicorn.access").info(
        '%s - "%s %s HTTP/%s" %d', "127.0.0.1", "GET", f"/view/{token}?x=1", "1.1", 200
    )
    try:
        raise ValueError(f"no such token {token}")
    except ValueError:
        structlog.get_logger("app").exception("failed", key=key)
    output = capsys.readouterr().err
    assert token not in output
    assert key not in output
    assert token[:7] + "…" in output
    assert "ValueError" in output


@pytest.mark.parametrize(
    "message",
    [
        "/unsubscribe/x{secret}",
        "/unsubscribe/{secret}9_",
        "{secret}{secret}",
        "https://paperboy.test/view/{secret}%20",
        "/view/%20{secret}",
        "<{secret}@paperboy.test>",
        "bounce+{secret}@paperboy.test",
        "token={secret}&next=1",
    ],
)
@pytest.mark.parametrize("secret", ["token", "key", "return path"])
@pytest.mark.parametrize(
    "spelling", ["plain", "percent-encoded", "soft break", "folded", "in bytes", "an exception", "a name"]
)
def test_secrets_are_redacted_in_any_context(now: datetime, message: str, secret: str, spelling: str) -> None:
    """No 12 characters of one in a row remain in any encoding."""
    signer = LinkSigner([SECRET], "", LIFETIMES)
    secrets = {
        "token": signer.token(Purpose.UNSUBSCRIBE, 7, now),
        "key": api_keys.PREFIX + api_keys.new_secret(),
        "return path": signer.return_path(7, "x").removeprefix("bounce+").removesuffix("@x"),
    }
    bare = secrets[secret]
    spelled: dict[str, Any] = {
        "plain": bare,
        "percent-encoded": "".join(f"%{ord(char):02X}" for char in bare),
        "soft break": f"{bare[:20]}=\r\n{bare[20:]}",
        "folded": f"{bare[:20]}\r\n {bare[20:]}",
    }
    text = message.format(secret=spelled.get(spelling, bare))
    wrapped: dict[str, Any] = {
        "in bytes": text.encode(),
        "an exception": ValueError(text),
        "a name": {text: 1},
    }
    redacted = str(logs.conceal(None, "", {"event": "x", "said": wrapped.get(spelling, text)}))
    visible = unquote(re.sub(r"=?(\\r)?\\n ?", "", redacted))
    assert not any(bare[at : at + 12] in visible for at in range(len(bare) - 12))
    assert "…" in redacted


def test_other_text_is_not_redacted(now: datetime) -> None:
    """Names, paths, numbers and sentences are not redacted."""
    event = {
        "event": "training the model failed; the previous model remains in use",
        "path": "/api/v1/subscribers/17/deliveries?limit=100&state=committing",
        "at": now,
        "count": 17,
        "names": ["app.subscribers.preferences", "ix_subscriber_due"],
        "error": ValueError("broken"),
        "sentence": "Papers of the last seven days\nare redacted on the front page, most votes first.",
    }
    assert logs.conceal(None, "", dict(event)) == event


def test_json_logs(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """With `log_json`, each line is a JSON object, for our logs and those of libraries."""
    logs.configure(settings.model_copy(update={"log_json": True}))
    structlog.get_logger("app.storage.job_runs").info("run ended", job="refresh")
    twice = {"color_message": "Started \x1b[36m%s\x1b[0m"}
    logging.getLogger("uvicorn.error").warning("Started %s", "server", extra=twice)
    own, uvicorns = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (own["event"], own["job"], own["level"], own["logger"]) == (
        "run ended",
        "refresh",
        "info",
        "app.storage.job_runs",
    )
    assert own["timestamp"].endswith("Z")
    assert (uvicorns["event"], uvicorns["level"]) == ("Started server", "warning")
    assert "color_message" not in uvicorns


def test_log_level_is_kept(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """A command may set another level than the settings."""
    logs.configure(settings, level="WARNING")
    structlog.get_logger("app").info("quiet")
    structlog.get_logger("app").warning("loud")
    output = capsys.readouterr().err
    assert "quiet" not in output
    assert "loud" in output


def test_retries_name_the_host(settings: Settings, now: datetime, capsys: pytest.CaptureFixture[str]) -> None:
    """The URL is not logged, because it may contain a secret."""
    logs.configure(settings)
    wire = HttpTransport(httpx.MockTransport(lambda _: httpx.Response(503)))

    async def poll() -> None:
        async with http_client.open_client("ops@paperboy.test", now, wire) as client:
            await client.get("https://lab.example/feed/hidden-part")

    stamina.set_testing(True, attempts=2)
    try:
        with pytest.raises(SourceError, match=r"^lab\.example: HTTP 503$"):
            asyncio.run(poll())
    finally:
        stamina.set_testing(False)
    output = capsys.readouterr().err
    assert "lab.example: HTTP 503" in output
    assert "hidden-part" not in output


def test_mail_is_traced_by_ids_and_not_by_addresses(
    app: Application, mail_server: MailServer, now: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planning, sending and bounces log editions and deliveries. The relay's replies name the readers."""
    readers = [f"{name}@example.org" for name in ("alice", "bob", "carol")]
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents", now.date(), now, abstract="They plan.")
        for reader in readers:
            factories.add_subscriber(session, reader, ["language agents"], now)
    mail_server.reply("rcpt", f"550 5.1.1 <{readers[1]}> unknown", to=readers[1])
    mail_server.reply("data", f"451 4.3.0 <{readers[2]}> later", to=readers[2])
    logs.configure(app.settings.model_copy(update={"log_json": True}))
    assert pipeline.plan_and_send(app, now)["sent"] == 1
    with app.db.read() as session:
        mails = {row.subscriber_id: row for row in session.exec(select(Delivery))}
    returned_to = app.signer.return_path(mails[1].id or 0, app.settings.mail_domain)
    notice = Notice(
        Kind.BOUNCE, readers[0], diagnostic=f"552 <{readers[0]}> full", return_paths=(returned_to,)
    )
    pipeline.apply_bounces(app, [notice], now)
    structlog.get_logger("app").warning("odd", error=ValueError(f"<{readers[0]}>"), who=[readers[1]])
    output = capsys.readouterr().err
    assert not [reader for reader in readers if reader in output]
    lines = [json.loads(line) for line in output.splitlines()]
    by_event = {line["event"]: line for line in lines}
    edition, ids = mails[1].edition, sorted(row.id or 0 for row in mails.values())
    planned, recorded = by_event["digests planned"], by_event["emails recorded"]
    assert (planned["editions"], planned["deliveries"]) == ([edition], [ids[0], ids[-1]])
    assert (recorded["editions"], sum(recorded["states"].values())) == ([edition], 3)
    unsent = {line["delivery"]: line for line in lines if line["event"] == "email not sent"}
    assert {number: (line["edition"], line["state"]) for number, line in unsent.items()} == {
        mails[2].id: (edition, "failed"),
        mails[3].id: (edition, "deferred"),
    }
    bounce = by_event["bounce notice"]
    assert (bounce["delivery"], bounce["edition"]) == (mails[1].id, edition)
