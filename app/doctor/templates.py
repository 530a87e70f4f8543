"""Check the templates: compose each kind of email, and open the main pages of the temporary service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from app.application import Application
from app.doctor.findings import Finding, error, ok
from app.doctor.oneclick import send_request
from app.links import Purpose
from app.mail import render, template_folders
from app.types import MailKind, MailRequest, OperatorReport, ReportSection

if TYPE_CHECKING:
    from fastapi import FastAPI

FIX = (
    "correct the template; or remove it if it is your own, and otherwise restore it with "
    "`git checkout templates`; then restart the service"
)
# Opening these pages changes nothing, and they need no delivery.
_LINKED_PAGES = (Purpose.SUBSCRIPTION, Purpose.PREFERENCES, Purpose.PAUSE, Purpose.UNSUBSCRIBE)
_REPORT = OperatorReport("A sample", (ReportSection("Needs attention", ("source A lab: it is paused",)),))


def check(
    app: Application, site: FastAPI, subscriber_id: int, origin: str, now: datetime
) -> Iterator[Finding]:
    """Report each template that fails with sample values. The test digest checks the others.

    Pages are requested from `site` at `origin`, the base URL without its path. Templates of all other pages
    are only compiled, which finds mistakes in the syntax but no misspelled names. Name the operator's own.
    """
    pages = site.state.templates
    attempts: list[Callable[[], Any]] = [partial(app.renderer.report, _REPORT)]
    for kind in MailKind:
        if kind is not MailKind.DIGEST:
            request = MailRequest(0, kind, f"{kind}-0", subscriber_id, "doctor@example.org", 0, now)
            attempts.append(partial(app.composer.draft, request))
    paths = ["/", "/manage"]
    for purpose in _LINKED_PAGES:
        link = app.signer.link(purpose, app.signer.token(purpose, subscriber_id, now))
        paths.append(link.removeprefix(app.settings.base_url))
    attempts += [partial(send_request, site, "GET", origin + path) for path in paths]
    problems = [_problem(attempt) for attempt in attempts]
    rendered = {name for _loader, name in pages.cache}
    compiled = [name for name in pages.list_templates(extensions=["html"]) if name not in rendered]
    problems += [_problem(partial(pages.get_template, name)) for name in compiled]
    for problem in dict.fromkeys(filter(None, problems)):
        yield error("templates", problem, FIX)
    if not any(problems):
        message = f"all {len(MailKind) + 1} kinds of email and the main pages can be rendered"
        own_folders = template_folders.search_path(app.settings, "web")[:-1]
        own = [f"web/{name}" for name in compiled if template_folders.find(own_folders, name)]
        advice = f"open the pages of your own templates that were only compiled: {', '.join(own)}"
        yield ok("templates", message, advice if own else "")


def _problem(attempt: Callable[[], object]) -> str:
    """Return the message of the error that an attempt raises, or ""."""
    try:
        attempt()
    except Exception as fault:
        return render.describe_error(fault)
    return ""
