"""Parse large forms in a thread, so that they do not delay other requests.

Starlette parses forms in the event loop, where a form of 1 MB of percent signs delays every response by half
a second or more. This module parses large forms in a thread, at most two forms at a time.
"""

import binascii
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import FormData

URLENCODED = "application/x-www-form-urlencoded"
SMALL = 16 * 1024  # bytes; parsing them takes the event loop a few milliseconds at most
MAX_FIELDS = 1000

_ESCAPES = re.compile(rb"(?:%[0-9A-Fa-f]{2}){1,4000}")
_PARSER_THREADS = anyio.CapacityLimiter(2)


class FormRequest(Request):
    """A request that parses a large urlencoded form in a thread."""

    def form(self, **limits: Any) -> Any:
        """Return an awaitable that gives the parsed form."""
        content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        return self._urlencoded() if content_type == URLENCODED else super().form(**limits)

    @property
    def parsed_form(self) -> FormData | None:
        """Return the form if it has been parsed, otherwise None."""
        return self._form

    async def _urlencoded(self) -> FormData:
        if self._form is None:
            body = await self.body()
            if len(body) <= SMALL:
                self._form = parse(body)
            else:
                self._form = await anyio.to_thread.run_sync(parse, body, limiter=_PARSER_THREADS)
        return self._form


class FormRoute(APIRoute):
    """A route that parses its forms with `FormRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def with_form(request: Request) -> Response:
            request.state.form_request = form_request = FormRequest(request.scope, request.receive)
            return await self.respond(form_request, handle)

        return with_form

    async def respond(
        self, request: FormRequest, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        """Return the response of the handler to a request."""
        return await handle(request)


def parsed(request: Request) -> FormData | None:
    """Return the form if the route has already parsed it, otherwise None.

    Error handlers get another request object, whose body has already been consumed.
    """
    form_request: FormRequest | None = getattr(request.state, "form_request", None)
    return form_request.parsed_form if form_request else None


def parse(body: bytes) -> FormData:
    """Return the fields of a urlencoded form. Raise HTTPException (400) if there are too many."""
    if body.count(b"&") >= MAX_FIELDS:
        raise HTTPException(400, f"A form can have at most {MAX_FIELDS} fields.")
    fields = (field.partition(b"=") for field in body.split(b"&") if field)
    return FormData([(_unquote(name), _unquote(value)) for name, _, value in fields])


def _unquote(text: bytes) -> str:
    """Decode plus signs and escapes as UTF-8.

    Each run of escapes is decoded at once. The standard library splits the text at each percent sign instead,
    which blocks all threads for a third of a second if the text is 1 MB of percent signs.
    """
    spaced = text.replace(b"+", b" ")
    decoded = _ESCAPES.sub(lambda run: binascii.unhexlify(run[0].replace(b"%", b"")), spaced)
    return decoded.decode("utf-8", "replace")
