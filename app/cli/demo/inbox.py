"""The demo's inbox: each mail as its reader would see it, as text, and as it travelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app import clock
from app.application import Application
from app.cli.demo import replay
from app.cli.demo.report import Mailbox
from app.cli.demo.sample_subscribers import PEOPLE
from app.cli.demo.smtp_server import Postbox, ReceivedMail
from app.errors import NotFound
from app.web import security
from app.web.templating import page

A_DAY = timedelta(days=1)
INBOX = "/demo/inbox"
# The page frames the mail, which may do nothing but be read: no script, no form, no fetch, no name of ours.
_PAGE = {"Content-Security-Policy": security.PAGE_CSP + "; frame-src 'self'"}
_MAIL = {
    "Content-Security-Policy": security.MAIL_CSP.replace("frame-ancestors 'none'", "frame-ancestors 'self'"),
    "X-Frame-Options": "SAMEORIGIN",
}


class View(StrEnum):
    """How a mail is shown."""

    HTML = "html"
    TEXT = "text"
    SOURCE = "source"

    @property
    def label(self) -> str:
        return {"html": "As its reader sees it", "text": "As text", "source": "Headers"}[self.value]


@dataclass(frozen=True, slots=True)
class Shelf:
    """One address, what it is there to show, and its mails, newest first."""

    address: str
    about: str
    silence: str
    letters: Sequence[ReceivedMail]


def install(site: FastAPI, postbox: Postbox, mailboxes: Sequence[Mailbox]) -> None:
    """Put the inbox beside the service, and a way to it on every page."""
    site.include_router(_router(site.state.paperboy, postbox, mailboxes))
    site.state.templates.globals["mailboxes"] = INBOX


def _router(app: Application, postbox: Postbox, mailboxes: Sequence[Mailbox]) -> APIRouter:
    """The pages over what is in the postbox at the moment, and a button for what would come."""
    routes = APIRouter(prefix="/demo", include_in_schema=False)

    @routes.get("/inbox")
    def inbox(request: Request) -> HTMLResponse:
        shelves = _shelves(postbox.letters, mailboxes)
        return page(request, "demo/inbox.html", shelves=shelves, now=clock.utcnow())

    @routes.post("/later", dependencies=[Depends(security.same_site)])
    def let_a_day_pass() -> RedirectResponse:
        """Whoever signed up and confirmed meanwhile gets their digest, too."""
        start, end = clock.utcnow(), clock.utcnow() + A_DAY
        replay.deliver_between(app, start, end)
        clock.travel(end)
        return RedirectResponse(INBOX, status_code=303)

    @routes.get("/inbox/{number}")
    def letter(request: Request, number: int, view: View = View.HTML) -> HTMLResponse:
        return page(
            request, "demo/letter.html", headers=_PAGE, letter=_find(postbox, number), view=view, views=View
        )

    @routes.get("/inbox/{number}/html")
    def html(number: int) -> HTMLResponse:
        return HTMLResponse(_find(postbox, number).html, headers=_MAIL)

    @routes.get("/inbox/{number}/mail.eml")
    def eml(number: int) -> Response:
        return Response(_find(postbox, number).raw, media_type="message/rfc822")

    return routes


def _find(postbox: Postbox, number: int) -> ReceivedMail:
    found = postbox.letter(number)
    if found is None:
        raise NotFound("There is no mail with this number.")
    return found


def _shelves(letters: Sequence[ReceivedMail], mailboxes: Sequence[Mailbox]) -> list[Shelf]:
    """Whoever signed up during the demo first, then the readers it came with."""
    about = {person.email: person.about for person in PEOPLE}
    silences = {box.email: box.silence for box in mailboxes}
    guests = sorted({letter.recipient for letter in letters} - about.keys())
    return [
        Shelf(
            address=address,
            about=about.get(address, ""),
            silence=silences.get(address, ""),
            letters=[letter for letter in reversed(letters) if letter.recipient == address],
        )
        for address in [*guests, *about]
    ]
