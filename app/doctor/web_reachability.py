"""Whether the web app answers where the links in mails lead. Asks by network, and so only when told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime

from app.doctor.findings import Finding, error, warning, well
from app.errors import SourceError
from app.papers.sources import http_client
from app.settings import Settings

PATIENCE = 10.0  # seconds
_FIX = (
    "start `paperboy serve`, and let the proxy at PAPERBOY_BASE_URL pass everything on to it, without a login"
)


def look(settings: Settings, now: datetime, wire: http_client.HttpTransport) -> Iterator[Finding]:
    """GET /healthz, from here: whether others see the same is not known by that."""
    url = f"{settings.base_url}/healthz"
    if not url.startswith("https://"):
        fix = "set PAPERBOY_BASE_URL to the https:// address by which readers reach the web app"
        yield warning("online", f"{url} was not asked: it is no https address", fix)
        return
    try:
        body = asyncio.run(_get(settings, url, now, wire))
    except TimeoutError:
        yield error("online", f"{url} does not answer within {PATIENCE:g} seconds", _FIX)
    except SourceError as fault:
        yield error("online", f"{url} does not answer: {fault}", _FIX)
    else:
        yield _judge(url, body)


async def _get(settings: Settings, url: str, now: datetime, wire: http_client.HttpTransport) -> bytes:
    async with asyncio.timeout(PATIENCE), http_client.open_client(settings.base_url, now, wire) as http:
        return (await http.get(url)).body


def _judge(url: str, body: bytes) -> Finding:
    try:
        is_ours = json.loads(body) == {"status": "ok"}
    except ValueError:
        is_ours = False
    if is_ours:
        return well("online", f"{url} is answered by Paperboy")
    return error("online", f"{url} is answered by something that is not Paperboy", _FIX)
