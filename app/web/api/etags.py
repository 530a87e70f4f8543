"""Add ETags: unchanged responses are not sent again, and clients do not overwrite each other's changes.

GET and PATCH return the ETag of a representation (RFC 9110). A change with `If-Match` is made only if the
representation is still the same. The caller compares the ETags in the transaction that makes the change.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Header
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import PreconditionFailed
from app.web.http_cache import matches

IfMatch = Annotated[
    str | None,
    Header(
        max_length=1000,
        pattern=r'^(\*|(W/)?"[!#-~]*"( *, *(W/)?"[!#-~]*")*)$',
        examples=['"5f2b8c3e"'],
        description="The ETag of the representation that this change is for. Status 412 if it is outdated.",
    ),
]
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the representation that the client has. Status 304 if it is current.",
    "schema": {"type": "string"},
}


class Versioned(BaseModel):
    """A representation with an ETag, which does not cover the fields in `UNVERSIONED`.

    These fields change without an edit of the resource. GET never returns 304 for a representation with such
    fields, because the client would miss the changes.
    """

    UNVERSIONED: ClassVar[frozenset[str]] = frozenset()


def etag_of(model: type[Versioned], content: Mapping[str, Any]) -> str:
    """Return the strong ETag of a representation, from its content as plain JSON values."""
    covered = {name: value for name, value in content.items() if name not in model.UNVERSIONED}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return f'"{blake2b(text.encode(), digest_size=16).hexdigest()}"'


def require_match(if_match: str | None, current: Versioned | None) -> None:
    """Raise PreconditionFailed if If-Match is set, but lacks the ETag of `current` (None if deleted)."""
    if if_match is None or (current is not None and if_match.strip() == "*"):
        return
    tag = etag_of(type(current), current.model_dump(mode="json")) if current is not None else None
    if tag not in [each.strip() for each in if_match.split(",")]:  # weak ETags never match
        raise PreconditionFailed


class EtagMiddleware:
    """Add ETags to responses with a `Versioned` representation, and respond to `If-None-Match` with 304."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "PATCH"):
            await self._app(scope, receive, send)
            return
        start: dict[str, Any] = {}
        body = bytearray()

        async def send_tagged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200 and _is_versioned(scope):
                start.update(message)
            elif not start:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    for part in _tagged(scope, start, bytes(body)):
                        await send(part)

        await self._app(scope, receive, send_tagged)


def _tagged(scope: Scope, start: Mapping[str, Any], body: bytes) -> tuple[Message, Message]:
    model = scope["route"].response_model
    tag, may_be_omitted = etag_of(model, json.loads(body)), not model.UNVERSIONED
    if (
        scope["method"] == "GET"
        and may_be_omitted
        and matches(tag, Headers(scope=scope).get("if-none-match", ""))
    ):
        headers = [(b"etag", tag.encode())]
        return {**start, "status": 304, "headers": headers}, {"type": "http.response.body", "body": b""}
    tagged = {**start, "headers": list(start["headers"])}
    MutableHeaders(scope=tagged)["ETag"] = tag
    return tagged, {"type": "http.response.body", "body": body}


def _is_versioned(scope: Scope) -> bool:
    model = getattr(scope.get("route"), "response_model", None)
    return isinstance(model, type) and issubclass(model, Versioned)


def install(api: FastAPI) -> None:
    """Add ETags to the responses of an API."""
    api.add_middleware(EtagMiddleware)


def _versioned_models(base: type[Versioned] = Versioned) -> Iterator[type[Versioned]]:
    for model in base.__subclasses__():
        yield model
        yield from _versioned_models(model)


def describe(document: dict[str, Any]) -> None:
    """Add the headers and status 304 of operations that return ETags to an OpenAPI document."""
    etag = {"ETag": {"description": "The version of the representation.", "schema": {"type": "string"}}}
    versioned = {f"#/components/schemas/{model.__name__}": model for model in _versioned_models()}
    for operations in document["paths"].values():
        for method, operation in operations.items():
            response = operation["responses"].get("200", {})
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            model = versioned.get(schema.get("$ref"))
            if method in ("get", "patch") and model:
                response["headers"] = etag
                if method == "get" and not model.UNVERSIONED:
                    operation.setdefault("parameters", []).append(_IF_NONE_MATCH)
                    operation["responses"]["304"] = {"description": "Not Modified", "headers": etag}
