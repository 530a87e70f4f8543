"""Answer a form that is submitted twice, such as by a double click, with the first response.

Browsers show only the last response. Without this, it would say that there is nothing left to do, and a new
key in the first response would be lost. The responses are kept in memory, because they may contain keys, so
another process of the service does not have them.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fastapi import Request, Response

from app import clock
from app.web.request_bodies import URLENCODED, FormRequest, FormRoute

LIFETIME = timedelta(minutes=1)
FIELD = b"form_id="  # it differs each time that a page is shown: pressing a button there again is new


@dataclass(slots=True)
class _Submission:
    """The last form of a session, and its response, unless it is still being carried out."""

    digest: bytes
    at: datetime
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    response: Response | None = None


class Submissions:
    """The last form of each session within LIFETIME."""

    def __init__(self) -> None:
        self._last: dict[str, _Submission] = {}  # keyed by the cookie

    async def respond(
        self, request: Request, session: str, body: bytes, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Carry out a form, or return the response if it has just been carried out."""
        now = clock.utcnow()
        self._last = {
            name: last
            for name, last in self._last.items()
            if last.response is None or now - last.at < LIFETIME
        }
        digest = hashlib.sha256(request.url.path.encode() + b"\n" + body).digest()
        submission = self._last.get(session)
        if submission is None or submission.digest != digest:
            submission = self._last[session] = _Submission(digest, now)
        async with submission.lock:
            if submission.response is not None:
                return _copy(submission.response)
            try:
                response = await handle(request)
                # Strangers cannot fill the memory. Their response only leads to the sign-in page.
                if response.status_code < 400 and hasattr(request.state, "operator"):
                    submission.response = _copy(response)
                return response
            finally:
                if submission.response is None and self._last.get(session) is submission:
                    del self._last[session]  # a failed form may be sent again


def _copy(response: Response) -> Response:
    """Return a response without its background task. Middleware does not change the headers of the other."""
    duplicate = copy.copy(response)
    duplicate.background, duplicate.raw_headers = None, list(response.raw_headers)
    return duplicate


class AdminRoute(FormRoute):
    """A route of the admin pages, which carries out a form only once."""

    async def respond(
        self, request: FormRequest, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Return the response of the handler, or that to the same form a moment ago."""
        content_type = request.headers.get("content-type", "")
        if request.method != "POST" or not content_type.startswith(URLENCODED):
            return await handle(request)
        body = await request.body()
        if FIELD not in body:
            return await handle(request)
        submissions: Submissions = request.app.state.submissions
        return await submissions.respond(request, request.headers.get("cookie", ""), body, handle)
