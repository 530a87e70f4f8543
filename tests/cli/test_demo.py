"""The demo shows a true service: its sample is read by the real parsers, its mails go over real SMTP."""

from __future__ import annotations

import io
import logging
import shlex
import smtplib
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest
import structlog
from fastapi.testclient import TestClient
from rich.console import Console
from typer.testing import CliRunner

from app import clock, main
from app.application import Application
from app.cli import cli, demo, sample
from app.cli.demo import inbox, report, sample_subscribers
from app.cli.demo.smtp_server import HOST, DemoMailServer
from app.digests import reconciliation
from app.papers import sources
from app.papers.sources.http_client import HttpTransport
from app.storage.models import DeliveryState
from app.types import IngestSummary, PaperRecord, SourceKind
from tests.support import factories
from tests.support.mail_server import MailServer


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """The demo says how it logs; other tests have logs of their own."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


def in_the_sample() -> dict[SourceKind, list[PaperRecord]]:
    found: dict[SourceKind, list[PaperRecord]] = {}
    for file in sample.sample_files():
        read = sources.parse_file(file.path.name, file.path.read_bytes(), file.at.date())
        found.setdefault(read.kind, []).extend(read.parsed.records)
    return found


def test_the_sample_is_ten_days_of_three_sources_that_overlap() -> None:
    """Enough to show matching, trends, and one paper known from several places."""
    found = in_the_sample()
    titles = {kind: {record.title for record in records} for kind, records in found.items()}
    days = {record.listed_on for record in found[SourceKind.HUGGINGFACE]}
    assert set(found) == {SourceKind.HUGGINGFACE, SourceKind.ARXIV_FEED, SourceKind.PAGE}
    assert len(days) == 10
    assert len(set().union(*titles.values())) >= 100
    assert len(titles[SourceKind.HUGGINGFACE] & titles[SourceKind.ARXIV_FEED]) >= 20
    assert len(titles[SourceKind.HUGGINGFACE] & titles[SourceKind.PAGE]) == 3


def test_the_sample_is_read_in_the_order_of_time() -> None:
    """A day's votes of the next morning come after those of its morning."""
    files = sample.sample_files()
    assert [file.at for file in files] == sorted(file.at for file in files)
    names = [file.path.name for file in files]
    assert names.index("2026-03-18.json") < names.index("2026-03-18-next-morning.json")


def test_the_demo_runs_once_and_all_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader gets what they are there to show, and the ledger balances."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPERBOY_SMTP_HOST", "mail.invalid")  # whatever a .env says, nothing leaves
    told = io.StringIO()
    assert demo.run(once=True, console=Console(file=told, width=100)) == 0
    text = told.getvalue()
    assert "every due digest is in exactly one state" in " ".join(text.split())
    assert "the row has no title" in text
    assert all(person.email in text for person in sample_subscribers.SUBSCRIBERS)
    (command,) = [line for line in text.splitlines() if "paperboy explain" in line]
    database, _, *asked = shlex.split(command)
    monkeypatch.setenv(*database.split("=", 1))
    told = CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert told.stdout.startswith("Sent on 2026-"), "the command that it ends with is ready to be used"


def test_live_asks_the_real_sources(app: Application, smtp_server: DemoMailServer) -> None:
    """Hugging Face's answer of today becomes mail within a day; arXiv, which is down, stops nothing."""
    answer = (sample.FOLDER / "huggingface" / "2026-03-31.json").read_bytes()

    def world(request: httpx.Request) -> httpx.Response:
        if request.url.host != "huggingface.co":
            return httpx.Response(404)
        return httpx.Response(200, content=answer if request.url.params["date"] == "2026-03-31" else b"[]")

    wire = HttpTransport(httpx.MockTransport(world), _at_once)
    settings = app.settings.model_copy(update={"smtp_host": HOST, "smtp_port": smtp_server.port})
    connected = replace(app, settings=settings, http=wire)
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    end, brought = demo.run_live(connected, now, Console(quiet=True))
    assert end - now == timedelta(days=1)
    assert sum(brought.values(), IngestSummary()).papers_new == 7
    assert "alice@example.org" in {mail.recipient for mail in smtp_server.mails}


async def _at_once(_seconds: float) -> None:
    """Waiting takes no time in a test."""


@pytest.fixture
def well() -> report.Report:
    """An outcome with nothing wrong in it."""
    balance = reconciliation.Reconciliation(3, {DeliveryState.SENT: 2, DeliveryState.SKIPPED: 1})
    return report.Report(summaries={}, papers=1, shared=0, errors=[], mailboxes=[], balance=balance, mails=2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mails": 0}, "no mail arrived"),
        ({"mails": 1}, "the ledger has 2 sent digests, but 1 mails arrived"),
        (
            {"balance": reconciliation.Reconciliation(4, {DeliveryState.SENT: 2}, missing=2)},
            "2 digests due and missing",
        ),
        ({"errors": ["it broke"]}, "a run failed: it broke"),
        (
            {"mailboxes": [report.MailboxSummary("alice@example.org", 2, 3, 1, "")]},
            "alice@example.org got a paper",
        ),
    ],
)
def test_what_is_wrong_is_said(well: report.Report, change: dict[str, object], said: str) -> None:
    """A demo that went wrong fails, so that CI sees it."""
    assert well.problems() == []
    assert said in "; ".join(replace(well, **change).problems())  # type: ignore[arg-type]


@pytest.fixture
def smtp_server() -> Iterator[DemoMailServer]:
    """A smtp_server that listens."""
    with DemoMailServer(unknown=["trent@example.org"], greylisted=["heidi@example.org"]) as box:
        yield box


def mail_to(address: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "paperboy@example.org", address, "Two papers for you"
    mail["Date"] = "Tue, 31 Mar 2026 06:00:00 +0000"
    mail.set_content("In plain words.")
    mail.add_alternative("<p>In <b>bold</b> words.</p><script>alert(1)</script>", subtype="html")
    return mail


def send(smtp_server: DemoMailServer, address: str) -> None:
    with smtplib.SMTP(HOST, smtp_server.port) as relay:
        relay.send_message(mail_to(address))


def test_the_smtp_server_keeps_what_it_takes(smtp_server: DemoMailServer) -> None:
    """A mail can be read as HTML, as text and by its headers."""
    send(smtp_server, "alice@example.org")
    mail = smtp_server.mail(1)
    assert mail is not None
    assert (mail.recipient, mail.subject) == ("alice@example.org", "Two papers for you")
    assert "plain words" in mail.text
    assert "<b>bold</b>" in mail.html
    assert ("To", "alice@example.org") in mail.headers
    assert smtp_server.mail(0) is smtp_server.mail(2) is None


def test_the_smtp_server_puts_strangers_off_once(smtp_server: DemoMailServer) -> None:
    """A greylisted mail is taken when it comes again."""
    with pytest.raises(smtplib.SMTPRecipientsRefused, match="451"):
        send(smtp_server, "heidi@example.org")
    send(smtp_server, "heidi@example.org")
    assert len(smtp_server.mails) == 1


def test_the_smtp_server_refuses_whom_it_does_not_know(smtp_server: DemoMailServer) -> None:
    """The sender learns with which status."""
    with pytest.raises(smtplib.SMTPRecipientsRefused, match=r"550.*5\.1\.1"):
        send(smtp_server, "trent@example.org")


@pytest.fixture
def browser(app: Application, smtp_server: DemoMailServer) -> TestClient:
    """The web app with the inbox beside it, and one mail in it."""
    send(smtp_server, "alice@example.org")
    site = main.create_app(app)
    inbox.install(site, smtp_server, [report.MailboxSummary("frank@example.org", 0, 0, 0, "nothing fits")])
    return TestClient(site)


def test_the_inbox_lists_every_mailbox_with_its_mails(browser: TestClient) -> None:
    """Also those to which no mail came, with what they are there to show."""
    text = browser.get("/demo/inbox").text
    assert all(person.email in text for person in sample_subscribers.SUBSCRIBERS)
    assert 'href="/demo/inbox/1"' in text
    assert "Two papers for you" in text
    assert "Tue 31 Mar 2026" in text
    assert "nothing fits" in text


@pytest.mark.parametrize(
    ("view", "shows"),
    [("html", 'src="/demo/inbox/1/html"'), ("text", "In plain words."), ("source", "Subject")],
)
def test_a_mail_can_be_looked_at_in_three_ways(browser: TestClient, view: str, shows: str) -> None:
    """HTML in a frame, the text part, and the headers."""
    assert shows in browser.get("/demo/inbox/1", params={"view": view}).text


def test_a_mail_may_do_nothing_but_be_read(browser: TestClient) -> None:
    """Its HTML is framed by our page only, and runs no script."""
    answer = browser.get("/demo/inbox/1/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "allow-scripts" not in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"


def test_a_mail_can_be_taken_home(browser: TestClient, smtp_server: DemoMailServer) -> None:
    """The very bytes that travelled."""
    answer = browser.get("/demo/inbox/1/mail.eml")
    assert answer.content == smtp_server.mails[0].raw
    assert answer.headers["content-type"] == "message/rfc822"


@pytest.mark.parametrize("path", ["/demo/inbox/2", "/demo/inbox/0/html", "/demo/inbox/9/mail.eml"])
def test_a_mail_that_never_came_is_not_found(browser: TestClient, path: str) -> None:
    """An answer as for any other page that is not there."""
    assert browser.get(path).status_code == 404


def test_a_day_passes_at_the_press_of_a_button(
    mail_server: MailServer, app: Application, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever signed up in the demo gets what it is there to show."""
    monkeypatch.setattr(clock, "_ahead", timedelta())
    now = clock.utcnow()
    with app.db.write() as session:
        factories.reader(session, "carol@example.org", ["zebrafish"], now + timedelta(hours=5))
        factories.paper(session, factories.source(session, now), "Zebrafish", now.date(), now)
    assert "Advance one day" in browser.post("/demo/later").text
    assert [mail.recipient for mail in mail_server.messages] == ["carol@example.org"]
    assert timedelta(days=1) <= clock.utcnow() - now < timedelta(days=1, minutes=5)


def test_every_page_leads_to_the_mailboxes(mail_server: MailServer, browser: TestClient) -> None:
    """Whoever signed up looks for a mail; who is told to check a mailbox finds a button to it."""
    assert browser.get("/").text.count('href="/demo/inbox"') == 1
    form = {"email": "carol@example.org", "cadence": "daily", "hour": "8", "zone": "UTC"}
    for path in ("/subscribe", "/manage"):
        told = browser.post(path, data=form).text
        assert "Check your mailbox" in told
        assert '<a class="button" href="/demo/inbox">' in told


def test_the_inbox_is_no_part_of_the_service(app: Application) -> None:
    """Only the demo has it, and ways to it."""
    service = TestClient(main.create_app(app))
    assert service.get("/demo/inbox").status_code == 404
    assert "mailboxes" not in service.get("/").text


def test_a_port_that_is_taken_is_replaced() -> None:
    """A second demo beside the first one still comes up."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert demo.free_port(port) != port
