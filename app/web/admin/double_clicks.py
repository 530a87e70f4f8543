"""Carry out a form once, even if it is submitted twice, such as by a double click.

The second submission gets the first response. Browsers show only the last response, which would otherwise
say that there is nothing left to do, and a new key in the first response would be lost. The responses are
kept in memory, because they may contain keys, so another process of the service does not have them.
"""

import asyncio
import copy
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from app.web.request_bodies import URLENCODED, FormRequest, FormRoute

LIFETIME = timedelta(minutes=1)
# A new value each time a page is shown, so that pressing its button again is a new submission.
FIELD = b"form_id="


@dataclass(slots=True)
class _Submission:
    """The last form of a session, and its response, unless it is still being carried out."""

    digest: bytes
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    response: Response | None = None
    waiting: int = 0  # requests that wait for the response or are being carried out


class Submissions:
    """The last form of each session within LIFETIME.

    `is_signed_in` returns whether a request has an open session. Otherwise, it gets no stored response.
    """

    def __init__(self, is_signed_in: Callable[[Request], bool]) -> None:
        self._is_signed_in = is_signed_in
        self._last: dict[str, _Submission] = {}  # keyed by the cookie

    async def respond(
        self, request: Request, session: str, body: bytes, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Carry out a form, or return the response if it has just been carried out."""
        digest = hashlib.sha256(request.url.path.encode() + b"\n" + body).digest()
        submission = self._last.get(session)
        if submission is None or submission.digest != digest:
            submission = self._last[session] = _Submission(digest)
        submission.waiting += 1
        try:
            async with submission.lock:
                if submission.response is None:
                    return await self._carry_out(request, session, submission, handle)
                if await run_in_threadpool(self._is_signed_in, request):
                    return _copy(submission.response)
                return await handle(request)  # leads to the sign-in page
        finally:
            submission.waiting -= 1
            if submission.response is None and not submission.waiting:
                self._forget(session, submission)  # a failed form may be sent again

    async def _carry_out(
        self,
        request: Request,
        session: str,
        submission: _Submission,
        handle: Callable[[Request], Awaitable[Response]],
    ) -> Response:
        response = await handle(request)
        # Strangers cannot fill the memory. Their response only leads to the sign-in page.
        if response.status_code < 400 and hasattr(request.state, "operator"):
            submission.response = _copy(response)
            loop = asyncio.get_running_loop()
            loop.call_later(LIFETIME.total_seconds(), self._forget, session, submission)
        return response

    def _forget(self, session: str, submission: _Submission) -> None:
        if self._last.get(session) is submission:
            del self._last[session]


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
