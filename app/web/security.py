"""Response headers, size limits for request bodies, and the check of a form's origin.

Forms on public pages must be sent from this site (`same_site`). Pages behind signed links do not need this
check, because another site would have to know the link.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.settings import Settings
from app.storage.database import BUSY_TIMEOUT_MS, WEB_BUSY_TIMEOUT_MS, wait_for_locks
from app.web.site_state import application

# Form encoding can triple the size of pasted text. A file that is slightly too large must also fit, so that
# the page can show the error beside its field.
MAX_FORM_BYTES = 1024 * 1024
MAX_API_BYTES = 256 * 1024  # the body is read before the key is checked
MAX_HELD_BYTES = 64 * 1024 * 1024  # in all bodies, because attackers may send many large bodies slowly

PAGE_CSP = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# An email shown in the browser has inline styles. Scripts, forms and remote images are blocked.
MAIL_CSP = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; sandbox allow-popups allow-popups-to-escape-sandbox "
    "allow-top-navigation-by-user-activation"
)
# For a page that shows an email in a frame, where it cannot run scripts, submit forms or fetch anything.
FRAMING_PAGE = {"Content-Security-Policy": f"{PAGE_CSP}; frame-src 'self'"}
FRAMED_MAIL = {
    "Content-Security-Policy": MAIL_CSP.replace("frame-ancestors 'none'", "frame-ancestors 'self'"),
    "X-Frame-Options": "SAMEORIGIN",
}
# For pages without a secret in their URL: with no-referrer, browsers would not send the Origin of our forms.
PUBLIC_REFERRER = {"Referrer-Policy": "same-origin"}


NOT_STORED = {"Cache-Control": "no-store"}  # for responses to requests with a key
ADMIN_PAGE = {**NOT_STORED, **PUBLIC_REFERRER, "X-Robots-Tag": "noindex, nofollow"}


def headers(settings: Settings) -> dict[str, str]:
    """Return the default headers for every response."""
    common = {
        "Content-Security-Policy": PAGE_CSP,
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",  # signed links are secrets
        "Cross-Origin-Opener-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }
    if settings.base_url.startswith("https://"):
        common["Strict-Transport-Security"] = "max-age=31536000"
    return common


class SecurityMiddleware:
    """ASGI middleware that adds default headers and rejects bodies that are too large.

    It treats HEAD as GET; the server omits the body. Until the response is sent, the request waits only
    WEB_BUSY_TIMEOUT_MS for database locks.
    """

    def __init__(
        self, app: ASGIApp, common: Mapping[str, str], uploads: Mapping[str, int] | None = None
    ) -> None:
        self._app = app
        self._common = common
        # Size limits of the paths that authenticate first and write the body to a file.
        self._uploads = uploads or {}
        self._buffered = 0  # bytes of all bodies that are being received or processed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}

        private = scope["path"].startswith(("/api/", "/hooks/", "/metrics"))
        common = {**self._common, **NOT_STORED} if private else self._common

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = MutableHeaders(scope=message)
                for name, value in common.items():
                    present.setdefault(name, value)
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                wait_for_locks(BUSY_TIMEOUT_MS)  # background tasks may wait longer than visitors

        wait_for_locks(WEB_BUSY_TIMEOUT_MS)
        size, is_buffered = self._limit(scope["path"])
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            size_of_part = len(message.get("body", b""))
            received += size_of_part
            self._buffered += size_of_part * is_buffered
            if received > size:
                raise HTTPException(413, "The request is too large.")
            if self._buffered > MAX_HELD_BYTES:
                raise HTTPException(
                    503,
                    "The server is receiving too much data at once. Please try again in a few seconds.",
                    {"Retry-After": "5"},
                )
            return message

        try:
            await self._app(scope, receive_counted, send_with_headers)
        finally:
            self._buffered -= received * is_buffered

    def _limit(self, path: str) -> tuple[int, bool]:
        """Return the maximum size of a body in bytes, and whether the body is held in memory."""
        if path in self._uploads:
            return self._uploads[path], False
        return MAX_API_BYTES if path.startswith("/api/") else MAX_FORM_BYTES, True


def same_site(request: Request) -> None:
    """Raise HTTPException (403) if the form was sent from another site."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_ours = site in ("same-origin", "none")
    elif origin is not None:
        try:
            host = urlsplit(origin).netloc
        except ValueError:
            host = None
        is_ours = host in (
            request.headers.get("host"),
            urlsplit(application(request).settings.base_url).netloc,
        )
    else:
        is_ours = True  # not a browser, so no visitor's session can be misused
    if not is_ours:
        raise HTTPException(
            403, "This form was sent from another site. Open the page on this site and try again."
        )
