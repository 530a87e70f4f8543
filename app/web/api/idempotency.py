"""The Idempotency-Key header, which prevents a repeated POST request from being carried out twice.

As in the IETF draft (draft-ietf-httpapi-idempotency-key-header), a different request with the same key is
refused with 422, and a repetition with 409 while the first request is running. See
`app.storage.idempotency_keys`.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.application import Application
from app.errors import Conflict, InvalidInput
from app.storage import idempotency_keys
from app.storage.api_keys import ApiKeyIdentity
from app.storage.idempotency_keys import Attempt, StoredResponse
from app.web.api import problems

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
# Marks an operation that refuses the header, both in the code and in the OpenAPI document.
REFUSED = {"x-idempotency-key": "refused"}
MAX_CHARS = 200
MAX_RESPONSE = 100_000  # bytes; only previews and backtests, which change nothing, have larger responses

_PATTERN = rf'"?([!#-~]{{1,{MAX_CHARS}}})"?'  # quoted, as a structured field requires, or unquoted
_PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A unique string, such as a UUID. If you send the request again with it within 24 hours, "
    "you get the same response, and nothing is done twice.",
    "schema": {"type": "string", "pattern": f"^{_PATTERN}$"},
}

log = structlog.get_logger(__name__)


class SecretResponse(BaseModel):
    """A response that is not stored, because it contains a secret."""


class Replay(Exception):
    """The request has already been carried out, and its response is stored."""

    def __init__(self, response: StoredResponse) -> None:
        super().__init__()
        self.response = response


def begin(request: Request, app: Application, caller: ApiKeyIdentity, now: datetime) -> None:
    """Claim the idempotency key of a request, if it has one.

    Raise Replay if the request has already been carried out. Raise InvalidInput if the key is malformed or
    belongs to another request, or if the operation accepts no key. Raise Conflict if the first attempt is
    still running, or if its response is not stored.
    """
    attempt = idempotency_keys.current.get()
    if attempt is None:
        return
    if _refuses(request.scope["route"].openapi_extra or {}):
        raise InvalidInput(
            f"this request does not accept {HEADER}: send it without the header. Repeating it is safe"
        )
    typed = re.fullmatch(_PATTERN, attempt.key)
    if typed is None:
        raise InvalidInput(f"{HEADER} must have 1 to {MAX_CHARS} printable ASCII characters, without spaces")
    attempt.key = typed[1]
    with app.db.write() as session:
        response = idempotency_keys.claim(session, attempt, caller.id, now)
    if response is None:
        return
    if response.body is None:
        reason = (
            "it contained a secret, which is shown once"
            if _is_secret(request.scope)
            else "it was lost or erased"
        )
        raise Conflict(f"this request was carried out before, but its response is not stored: {reason}")
    raise Replay(response)


def _refuses(operation: Mapping[str, Any]) -> bool:
    return operation.items() >= REFUSED.items()


def _is_secret(scope: Scope) -> bool:
    model = getattr(scope.get("route"), "response_model", None)
    return isinstance(model, type) and issubclass(model, SecretResponse)


class IdempotencyMiddleware:
    """Store the responses to requests with an idempotency key, or release the key if the request fails."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        hashed = hashlib.sha256(scope["path"].encode() + b"?" + scope["query_string"] + b"\n")
        attempt = Attempt(key.strip(), hashed.hexdigest())
        start: Message = {}
        body = bytearray()
        settled = False

        async def receive_hashed() -> Message:
            message = await receive()
            hashed.update(message.get("body", b""))
            attempt.fingerprint = hashed.hexdigest()
            return message

        async def send_stored(message: Message) -> None:
            nonlocal settled
            if message["type"] == "http.response.start":
                start.update(message)
                return
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                settled = True
                await run_in_threadpool(_settle, scope, attempt, start["status"], bytes(body))
                await send(start)
                await send({"type": "http.response.body", "body": bytes(body)})

        token = idempotency_keys.current.set(attempt)
        try:
            await self._app(scope, receive_hashed, send_stored)
        except Exception:  # Starlette responds with 500 outside this middleware
            if not settled:
                await run_in_threadpool(_settle, scope, attempt, 500, b"")
            raise
        finally:
            idempotency_keys.current.reset(token)


def _settle(scope: Scope, attempt: Attempt, status: int, body: bytes) -> None:
    """Store the response, or release the key if the request failed or the response is too long to store.

    If the database fails, log it. The key can be claimed again when its lease expires.
    """
    if not attempt.name:
        return
    app: Application = scope["app"].state.paperboy
    try:
        with app.db.write() as session:
            if status >= 400 or len(body) > MAX_RESPONSE:
                idempotency_keys.release(session, attempt)
            else:
                text = None if _is_secret(scope) else body.decode()
                idempotency_keys.store_response(session, attempt, StoredResponse(status, text))
    except SQLAlchemyError as error:
        log.warning("the response to a request with an idempotency key was not stored", error=str(error))


def install(api: FastAPI) -> None:
    """Install support for the header. POST operations accept it unless they are marked as refusing it."""
    api.add_middleware(IdempotencyMiddleware)
    api.add_exception_handler(Replay, _replay)


def _replay(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Replay)  # noqa: S101 - Starlette calls handlers by type
    response = error.response
    return Response(
        response.body or None,
        response.status or 200,
        {REPLAYED: "true"},
        "application/json" if response.body else None,
    )


def describe(document: dict[str, Any]) -> None:
    """Document the Idempotency-Key header and its errors on the POST operations of an OpenAPI document."""
    for operations in document["paths"].values():
        operation = operations.get("post")
        if operation and not _refuses(operation):
            operation.setdefault("parameters", []).append(_PARAMETER)
            for status, response in problems.responses(409).items():
                operation["responses"].setdefault(str(status), response)
