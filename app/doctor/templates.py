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
from app.mail import render
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
    are only compiled, which finds mistakes in the syntax but no misspelled names.
    """
    pages = site.state.templates
    attempts: list[Callable[[], Any]] = [partial(app.renderer.report, _REPORT)]
    for kind in MailKind:
        if kind is not MailKind.DIGEST:
            request = MailRequest(0, kind, f"{kind}-0", subscriber_id, "doctor@example.org", 0, now)
            attempts.append(partial(app.composer.draft, request))
    attempts += [partial(pages.get_template, name) for name in pages.list_templates(extensions=["html"])]
    paths = ["/", "/manage"]
    for purpose in _LINKED_PAGES:
        link = app.signer.link(purpose, app.signer.token(purpose, subscriber_id, now))
        paths.append(link.removeprefix(app.settings.base_url))
    attempts += [partial(send_request, site, "GET", origin + path) for path in paths]
    problems = list(dict.fromkeys(filter(None, map(_problem, attempts))))
    for problem in problems:
        yield error("templates", problem, FIX)
    if not problems:
        yield ok("templates", f"all {len(MailKind) + 1} kinds of email and the main pages can be rendered")


def _problem(attempt: Callable[[], object]) -> str:
    """Return the message of the error that an attempt raises, or ""."""
    try:
        attempt()
    except Exception as fault:
        return render.describe_error(fault)
    return ""
