"""Answers that are sent again only when they have changed (RFC 9110, section 13)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from hashlib import blake2b

from fastapi import Request, Response


def answer(
    request: Request, body: bytes, media_type: str, modified: datetime, headers: Mapping[str, str]
) -> Response:
    """The body; or 304, where whoever asks has this very one."""
    modified = modified.astimezone(UTC).replace(microsecond=0)
    etag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
    headers = {**headers, "ETag": etag, "Last-Modified": format_datetime(modified, usegmt=True)}
    if _has_it(request, etag, modified):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _has_it(request: Request, etag: str, modified: datetime) -> bool:
    """Whether it is known by its tag; only who sends none is asked how old theirs is."""
    if (tags := request.headers.get("if-none-match")) is not None:
        return tags.strip() == "*" or etag in re.findall(r'"[^"]*"', tags)
    since = _date(request.headers.get("if-modified-since", ""))
    return since is not None and modified <= since


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
