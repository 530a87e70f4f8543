"""Jinja environment, filters and static files for the web pages."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup
from starlette.types import Scope

from app.digests.explanation_text import format_score
from app.mail import marked_words, section_headings, template_folders
from app.mail.marked_words import MarkedTexts
from app.papers import bibliography
from app.relevance import query_language, query_rewriting
from app.settings import Settings
from app.subscribers import event_labels
from app.text.domains import readable_address
from app.text.in_words import count_of, count_of_recent, format_counts, sentence, short_count
from app.types import DigestItem, MailKind

STATIC = Path(__file__).parent / "static"
_INDENTED = re.compile(r"^[ \t]+", re.MULTILINE)
IMMUTABLE = "public, max-age=31536000, immutable"


class StripIndentation(Extension):
    """Jinja extension that removes the indentation of templates, which can be a tenth of a page."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _INDENTED.sub("", source)


def environment(settings: Settings) -> Environment:
    """Return an environment that escapes all values and rejects undefined names."""
    templates = Environment(
        loader=FileSystemLoader(template_folders.search_path(settings, "web")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[StripIndentation],
    )
    templates.globals.update(
        site=settings,
        asset=_fingerprinted(),
        beyond_interests=section_headings.BEYOND_INTERESTS,
        count_of_recent=count_of_recent,
        filter_examples=[*query_language.FILTER_EXAMPLES.values()],
        query_for=query_rewriting.query_for,
        most_papers=bibliography.MAX_PAPERS,
        most_file_bytes=bibliography.MAX_FILE_BYTES,
    )
    templates.filters.update(
        count_of=count_of,
        short_count=short_count,
        format_counts=format_counts,
        format_score=format_score,
        sentence=sentence,
        local_time=local_time,
        local_day=local_day,
        name_mail=name_mail,
        readable_address=readable_address,
        name_event=event_labels.name_event,
        name_detail=event_labels.name_detail,
        describe_query=query_rewriting.describe,
        mark_title=mark_title,
        parse_day=parse_day,
    )
    return templates


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    templates: Environment = request.app.state.templates
    return HTMLResponse(templates.get_template(template).render(values), status_code=status, headers=headers)


def mark_title(item: DigestItem) -> MarkedTexts:
    """Mark the words of a title as in emails, but without style attributes, because the CSP forbids them.

    Pages don't show the summary. If the summary contains words to mark, the reason names all words instead.
    """
    return marked_words.mark(item, replace(item, summary=""), Markup("<mark>"), Markup("</mark>"))


def parse_day(text: str) -> date | None:
    """Return the date of an ISO day, or None if the text is empty."""
    return date.fromisoformat(text) if text else None


def local_time(at: datetime, zone: str) -> str:
    """Format a time in a zone, such as "Saturday, 21 November, 08:00"."""
    local = at.astimezone(ZoneInfo(zone))
    return f"{local:%A}, {local.day}\N{NO-BREAK SPACE}{local:%B}, {local:%H:%M}"


def local_day(at: datetime, zone: str) -> str:
    """Format the date of a time in a zone, such as "Sat 21 Nov 2026"."""
    local = at.astimezone(ZoneInfo(zone))
    return f"{local:%a}\N{NO-BREAK SPACE}{local.day}\N{NO-BREAK SPACE}{local:%b %Y}"


def name_mail(kind: MailKind) -> str:
    """Return the name of a kind of email, such as “confirmation of a sign-up”."""
    return _MAILS[kind]


_MAILS = {
    MailKind.DIGEST: "digest",
    MailKind.CONFIRM: "confirmation of a sign-up",
    MailKind.MANAGE: "link to the preferences",
    MailKind.EXPORT: "link to download the data",
    MailKind.ERASE: "link to erase the data",
    MailKind.NEW_LINKS: "new links",
    MailKind.ADDRESS: "change of address",
}


class Static(StaticFiles):
    """Static files. A response is cached forever if the URL has the file's fingerprint.

    During a rollout, a page of a newer version may request a file from this version. The fingerprint in the
    URL then differs from that of the file, so browsers must revalidate the response.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if query := scope["query_string"].decode("latin-1"):
            is_ours = _fingerprinted().get(path) == f"/static/{path}?{query}"
            response.headers["Cache-Control"] = IMMUTABLE if is_ours else "no-cache"
        return response


@cache
def _fingerprinted() -> dict[str, str]:
    """Map file names to URLs. The URLs change with the content, so responses may be cached forever."""
    files = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.is_file()}
    return {
        name: f"/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for name, path in files.items()
    }
