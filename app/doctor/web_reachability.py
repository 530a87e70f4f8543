"""Check that the web app responds at the base URL. The check runs only with `paperboy doctor --online`."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime

from app.doctor.findings import Finding, error, ok, warning
from app.errors import SourceError
from app.papers.sources import http_client
from app.settings import Settings

TIMEOUT = 10.0  # seconds
_FIX = (
    "start `paperboy serve`, and let the proxy at PAPERBOY_BASE_URL forward all paths to it without a login"
)


def check(settings: Settings, now: datetime, transport: http_client.HttpTransport) -> Iterator[Finding]:
    """Request /healthz from this machine. Other machines may get a different response."""
    url = f"{settings.base_url}/healthz"
    if not url.startswith("https://"):
        fix = "set PAPERBOY_BASE_URL to the https:// address at which subscribers reach the web app"
        yield warning("online", f"{url} was not requested: it is not an https address", fix)
        return
    try:
        body = asyncio.run(_get(settings, url, now, transport))
    except TimeoutError:
        yield error("online", f"{url} does not respond within {TIMEOUT:g} seconds", _FIX)
    except SourceError as fault:
        yield error("online", f"{url} does not respond: {fault}", _FIX)
    else:
        try:
            is_paperboy = json.loads(body) == {"status": "ok"}
        except ValueError:
            is_paperboy = False
        if is_paperboy:
            yield ok("online", f"Paperboy responds at {url}")
        else:
            yield error("online", f"something other than Paperboy responds at {url}", _FIX)


async def _get(settings: Settings, url: str, now: datetime, transport: http_client.HttpTransport) -> bytes:
    async with asyncio.timeout(TIMEOUT), http_client.open_client(settings.base_url, now, transport) as http:
        return (await http.get(url)).body
