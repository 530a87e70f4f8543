"""The one template environment of the web pages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from starlette.types import Scope

from app.links import LIFETIMES_IN_WORDS
from app.papers import bibliography
from app.relevance import query_language
from app.settings import Settings
from app.storage.database import ROOT
from app.storage.models import Delivery, DeliveryState

STATIC = Path(__file__).parent / "static"
_INDENTED = re.compile(r"^[ \t]+", re.MULTILINE)
FOR_EVER = "public, max-age=31536000, immutable"


class Flush(Extension):
    """Leaves out what indents the templates: nobody reads it in a page, and it can be a tenth of one."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _INDENTED.sub("", source)


def environment(settings: Settings) -> Environment:
    """Templates that escape everything and refuse names that do not exist."""
    made = Environment(
        loader=FileSystemLoader(ROOT / "templates" / "web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Flush],
    )
    made.globals.update(
        site=settings,
        asset=_fingerprinted(),
        interest_of=query_language.query_for,
        most_papers=bibliography.MOST_PAPERS,
        most_file_bytes=bibliography.MOST_FILE_BYTES,
        works_for=LIFETIMES_IN_WORDS,
    )
    made.filters.update(local=local, local_day=local_day, outcome=outcome, in_words=query_language.describe)
    return made


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Fill in a template."""
    made: Environment = request.app.state.templates
    return HTMLResponse(made.get_template(template).render(values), status_code=status, headers=headers)


def local(at: datetime, zone: str) -> str:
    """Saturday, 21 November, 08:00, as the reader's clock has it."""
    here = at.astimezone(ZoneInfo(zone))
    return f"{here:%A}, {here.day}\N{NO-BREAK SPACE}{here:%B}, {here:%H:%M}"


def local_day(at: datetime, zone: str) -> str:
    """Sat 21 Nov 2026, as the reader's calendar has it."""
    here = at.astimezone(ZoneInfo(zone))
    return f"{here:%a}\N{NO-BREAK SPACE}{here.day}\N{NO-BREAK SPACE}{here:%b %Y}"


def outcome(delivery: Delivery) -> str:
    """What became of a digest, in words for its reader."""
    words = _OUTCOMES[delivery.state]
    # What a relay said is for the operator; why we kept silent is for the reader.
    return f"{words}: {delivery.reason}" if delivery.state is DeliveryState.SKIPPED else words


_OUTCOMES = {
    DeliveryState.PENDING: "about to be sent",
    DeliveryState.CLAIMED: "being sent",
    DeliveryState.COMMITTING: "being sent",
    DeliveryState.SENT: "sent",
    DeliveryState.DEFERRED: "your mail server asked us to wait",
    DeliveryState.FAILED: "could not be delivered",
    DeliveryState.SUPPRESSED: "not sent: mail to this address is blocked",
    DeliveryState.UNCERTAIN: "sent, but your mail server never said that it arrived",
    DeliveryState.SKIPPED: "skipped",
}


class Static(StaticFiles):
    """Files; one whose URL changes with its content is asked for once.

    While a new version is rolled out, a page of it may ask for its file here: what is no fingerprint of ours
    is not kept.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if query := scope["query_string"].decode("latin-1"):
            ours = _fingerprinted().get(path) == f"/static/{path}?{query}"
            answer.headers["Cache-Control"] = FOR_EVER if ours else "no-cache"
        return answer


@cache
def _fingerprinted() -> dict[str, str]:
    """File name → URL that changes with the content, so that it may be cached for ever."""
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
    return {
        name: f"/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for name, path in files.items()
    }
