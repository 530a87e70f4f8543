"""The demo's inbox: pages that show each email as HTML, as text and as its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from sqlmodel import Session, select

from app import clock, pipeline
from app.application import Application
from app.cli.demo import replay, summary
from app.cli.demo.sample_subscribers import SUBSCRIBERS
from app.cli.demo.smtp_server import DemoMailServer, ReceivedMail
from app.errors import NotFound
from app.storage import demo_clock
from app.storage.models import AdminSession, Subscriber, SubscriberState
from app.web import security
from app.web.admin.timing import Timing
from app.web.templating import page

DAY = timedelta(days=1)
INBOX = "/demo/inbox"
TIMING = Timing(  # the demo has no schedule
    mails="when you advance the demo’s date by a day in the mailboxes",
    polls="only when you poll it, because the demo has no schedule",
    events="only outside the demo, because the demo has no schedule",
)


class View(StrEnum):
    """The format in which an email is shown."""

    HTML = "html"
    TEXT = "text"
    SOURCE = "source"

    @property
    def label(self) -> str:
        return {"html": "As HTML", "text": "As text", "source": "Headers"}[self.value]


@dataclass(frozen=True, slots=True)
class MailboxView:
    """An address, the feature that it demonstrates, its time zone, and its emails, newest first."""

    address: str
    about: str
    zone: str
    last_missing: summary.MissingDigest | None
    mails: Sequence[ReceivedMail]


def install(site: FastAPI, mail_server: DemoMailServer) -> None:
    """Add the inbox to the web app, and a link to it on every page."""
    app: Application = site.state.paperboy
    routes = APIRouter(prefix="/demo", include_in_schema=False)

    @routes.get("/inbox")
    def inbox(request: Request) -> HTMLResponse:
        with app.db.read() as session:
            views = _mailbox_views(session, mail_server.mails)
        return page(request, "demo/inbox.html", mailbox_views=views, now=clock.utcnow())

    @routes.post("/later", dependencies=[Depends(security.same_site)])
    def pass_a_day() -> RedirectResponse:
        """Advance the clock by a day and send all due emails, also to people who signed up in the demo."""
        start, end = clock.utcnow(), clock.utcnow() + DAY
        pipeline.plan_and_send(app, start)  # send the emails that an operator has released
        replay.deliver_between(app, start, end)
        demo_clock.travel(app.db, end)
        with app.db.write() as session:  # operators remain signed in
            for opened in session.exec(select(AdminSession)):
                opened.created_at, opened.used_at = opened.created_at + DAY, opened.used_at + DAY
        return RedirectResponse(INBOX, status_code=303)

    @routes.get("/inbox/{number}")
    def mail(request: Request, number: int, view: View = View.HTML) -> HTMLResponse:
        received = _find(mail_server, number)
        with app.db.read() as session:
            zone = _zones(session).get(received.recipient, "UTC")
        return page(
            request, "demo/mail.html", headers=security.FRAMING_PAGE, mail=received, zone=zone,
            view=view, views=View,
        )  # fmt: skip

    @routes.get("/inbox/{number}/html")
    def html(number: int) -> HTMLResponse:
        return HTMLResponse(_find(mail_server, number).html, headers=security.FRAMED_MAIL)

    @routes.get("/inbox/{number}/mail.eml")
    def eml(number: int) -> Response:
        return Response(_find(mail_server, number).raw, media_type="message/rfc822")

    site.include_router(routes)
    site.state.templates.globals["mailboxes"] = INBOX
    site.state.timing = TIMING


def _find(mail_server: DemoMailServer, number: int) -> ReceivedMail:
    mail = mail_server.mail(number)
    if mail is None:
        raise NotFound("There is no email with this number.")
    return mail


def _mailbox_views(session: Session, mails: Sequence[ReceivedMail]) -> list[MailboxView]:
    """Return the mailboxes: first those of people added in the running demo, then the sample subscribers'."""
    about = {subscriber.email: subscriber.about for subscriber in SUBSCRIBERS}
    active = session.exec(select(Subscriber.email).where(Subscriber.state == SubscriberState.ACTIVE))
    guests = sorted({*active, *(mail.recipient for mail in mails)} - about.keys())
    zones = _zones(session)
    return [
        MailboxView(
            address=address,
            about=about.get(address, ""),
            zone=zones.get(address, "UTC"),
            last_missing=summary.summarize_mailbox(session, address).last_missing,
            mails=[mail for mail in reversed(mails) if mail.recipient == address],
        )
        for address in [*guests, *about]
    ]


def _zones(session: Session) -> dict[str, str]:
    """Return the time zones of all subscribers, keyed by address."""
    return dict(session.exec(select(Subscriber.email, Subscriber.zone)).all())
