"""Test the demo: it reads its sample with the real parsers and sends over real SMTP."""

import io
import logging
import os
import re
import shlex
import smtplib
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest
import structlog
from fastapi.testclient import TestClient
from rich.console import Console
from sqlalchemy.engine import make_url
from sqlmodel import select
from typer.testing import CliRunner

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.cli import demo, sample
from app.cli.commands import cli
from app.cli.demo import inbox, sample_subscribers, summary, workspace
from app.cli.demo.smtp_server import DemoMailServer
from app.delivery import ledger
from app.digests import reconciliation
from app.doctor.smtp_sink import HOST
from app.papers.sources import files
from app.papers.sources.http_client import HttpTransport
from app.settings import load
from app.storage import api_keys, demo_clock, worker_registry
from app.storage.api_keys import Scope
from app.storage.database import ROOT
from app.storage.models import Delivery, DeliveryState, Subscriber
from app.types import IngestSummary, MailKind, PaperRecord, SourceKind
from tests.support import factories, sample_digest
from tests.support.mail_server import MailServer


@pytest.fixture(autouse=True)
def restore_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore logging and the clock after each test, because the demo sets them."""
    monkeypatch.setattr(clock, "_ahead", timedelta())
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level
    structlog.reset_defaults()


def records_by_kind() -> dict[SourceKind, list[PaperRecord]]:
    records: dict[SourceKind, list[PaperRecord]] = {}
    for file in sample.sample_files():
        read = files.parse_file(file.path.name, file.path.read_bytes(), file.at.date())
        records.setdefault(read.kind, []).extend(read.parsed.records)
    return records


def test_sample_has_ten_days_of_three_overlapping_sources() -> None:
    """It can show matching, trends, and a paper known from several sources."""
    found = records_by_kind()
    titles = {kind: {record.title for record in records} for kind, records in found.items()}
    days = {record.listed_on for record in found[SourceKind.HUGGINGFACE]}
    assert set(found) == {SourceKind.HUGGINGFACE, SourceKind.ARXIV_FEED, SourceKind.PAGE}
    assert len(days) == 10
    assert len(set().union(*titles.values())) >= 100
    assert len(titles[SourceKind.HUGGINGFACE] & titles[SourceKind.ARXIV_FEED]) >= 20
    assert len(titles[SourceKind.HUGGINGFACE] & titles[SourceKind.PAGE]) == 3


def test_sample_files_are_in_chronological_order() -> None:
    """Votes of the next morning follow those of the same morning."""
    files = sample.sample_files()
    assert [file.at for file in files] == sorted(file.at for file in files)
    names = [file.path.name for file in files]
    assert names.index("2026-03-18.json") < names.index("2026-03-18-next-morning.json")


def test_demo_runs_without_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reader gets the emails they demonstrate, and the ledger reconciles."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPERBOY_SMTP_HOST", "mail.invalid")  # no mail leaves the machine, whatever .env says
    output = io.StringIO()
    assert demo.run(once=True, console=Console(file=output, width=100)) == 0
    text = output.getvalue()
    assert "every due digest is in exactly one state" in " ".join(text.split())
    assert "the row has no title" in text
    assert ": 550 5.1.1 No such mailbox" in " ".join(text.split())
    assert all(person.email in text for person in sample_subscribers.SUBSCRIBERS)
    (command,) = [line for line in text.splitlines() if "paperboy explain" in line]
    folder, arguments = command.removeprefix("(cd ").removesuffix(")").split(" && ../../.venv/bin/paperboy ")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PAPERBOY_SMTP_HOST")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(clock, "_ahead", timedelta())  # as in a process of its own
        result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run(*shlex.split(arguments)).startswith("Sent on 2026-"), "the command that it ends with works"
    for name in list(os.environ):
        if name.startswith("PAPERBOY_"):
            monkeypatch.delenv(name)
    (tmp_path / "app").symlink_to(ROOT / "app")
    outputs = [run(*_arguments(line)) for line in _readme_commands()]
    assert all(outputs), "each command in the README works and says something"
    assert "2026-04-01" in run("subscribers", "why", "judy@example.org"), "it uses the demo's date"
    monkeypatch.setattr(clock, "_ahead", timedelta())
    service = main.build(load())
    tomorrow = datetime(2026, 4, 2, 12, tzinfo=UTC)
    counts = pipeline.plan_and_send(service, tomorrow)  # as the button of the demo
    assert counts["planned"] >= 1, "commands do not stop the demo's planning"
    service.db.dispose()
    workspace.clear(tmp_path / "database")  # a place to move the database to
    for path in (*Path().glob("paperboy.db*"), Path("journal")):
        path.rename(tmp_path / "database" / path.name)
    run("restore", str(*Path("var/backups").iterdir()))
    assert clock.utcnow().date() == date(2026, 4, 1), "the demo's clock outlasts its database"


def _readme_commands() -> list[str]:
    """Return the commands under "Use it" that need neither the internet nor a mail server."""
    (block,) = re.findall(r"## Use it.*?```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = re.findall(r"^paperboy (.+?)(?: +#.*)?$", block, re.MULTILINE)
    return [line for line in lines if line != "ingest" and "new-links" not in line]


def _arguments(line: str) -> list[str]:
    """Split a line as a shell does."""
    words = shlex.split(line)
    paths = [sorted(map(str, Path().glob(word))) if "*" in word else [word] for word in words]
    return [path for each in paths for path in each]


def test_demo_ignores_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has no credentials of another installation, and commands in its folder use its database."""
    real = tmp_path / "real.db"
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{real}")
    monkeypatch.setenv("PAPERBOY_BOUNCE_MAILBOX", "imaps://real:hunter2@mail.example.org/INBOX")
    monkeypatch.setenv("PAPERBOY_SMTP_USERNAME", "real")
    monkeypatch.setenv("PAPERBOY_SITE_NAME", "Real")
    folder = tmp_path / "it's a #1 demo"
    app = demo.build(folder, 2525, "http://127.0.0.1:8001")
    monkeypatch.chdir(folder)
    commands = load()
    assert commands.model_copy(update={"log_level": app.settings.log_level}) == app.settings
    assert (commands.bounce_mailbox, commands.smtp_username, commands.site_name) == ("", "", "Paperboy")
    assert not re.search("real|hunter2", Path(".env").read_text().replace(str(folder), ""))
    result = CliRunner().invoke(
        cli, ["subscribers", "add", "zoe@example.org", "--interest", "robots"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    with app.db.read() as session:
        assert subscribers.find(session, "zoe@example.org").id
    app.db.dispose()
    assert not real.exists()


def test_demo_with_own_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in the demo's folder use them, too, although that folder is another one."""
    (tmp_path / "wording").mkdir()
    monkeypatch.chdir(tmp_path)
    app = demo.build(tmp_path / "demo", 2525, "http://127.0.0.1:8001", "wording")
    app.db.dispose()
    monkeypatch.chdir(tmp_path / "demo")
    assert load().templates_dir == app.settings.templates_dir == str(tmp_path / "wording")


def test_second_demo_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would replace the database of the first. The message names its address."""
    monkeypatch.chdir(tmp_path)
    database = demo.FOLDER / "paperboy.db"
    with workspace.hold(demo.FOLDER, "http://127.0.0.1:8123"):
        demo.FOLDER.mkdir()
        database.touch()
        result = CliRunner().invoke(cli, ["demo", "--once"])
    assert result.exit_code == 1
    message = "paperboy: A demo is already running here, at http://127.0.0.1:8123: stop it first.\n"
    assert (result.stderr, database.exists()) == (message, True)
    with workspace.hold(demo.FOLDER, "http://127.0.0.1:8124"):
        pass  # it can run again after the first


def test_new_demo_replaces_only_its_own_files(tmp_path: Path) -> None:
    """Backups and other files that were stored in the folder stay."""
    files = ("paperboy.db", "paperboy.db-wal", "journal/a.journal", "var/backups/a.zip", "readers.csv")
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    workspace.clear(tmp_path)
    assert [name for name in files if (tmp_path / name).exists()] == ["var/backups/a.zip", "readers.csv"]


def test_live_demo_polls_the_real_sources(app: Application, smtp_server: DemoMailServer) -> None:
    """Papers of Hugging Face are sent within a day although arXiv is down."""
    answer = (sample.FOLDER / "huggingface" / "2026-03-31.json").read_bytes()

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.host != "huggingface.co":
            return httpx.Response(404)
        return httpx.Response(200, content=answer if request.url.params["date"] == "2026-03-31" else b"[]")

    wire = HttpTransport(httpx.MockTransport(respond), _no_sleep)
    settings = app.settings.model_copy(update={"smtp_host": HOST, "smtp_port": smtp_server.port})
    connected = replace(app, settings=settings, http=wire)
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    end, brought = demo.run_live(connected, now, Console(quiet=True))
    assert end - now == timedelta(days=1)
    assert sum(brought.values(), IngestSummary()).papers_new == 7
    assert "alice@example.org" in {mail.recipient for mail in smtp_server.mails}


async def _no_sleep(_seconds: float) -> None:
    """Replace sleeping in tests."""


@pytest.fixture
def good_report() -> summary.Report:
    """Return a report without problems."""
    result = reconciliation.Reconciliation(3, {DeliveryState.SENT: 2, DeliveryState.SKIPPED: 1})
    return summary.Report(summaries={}, papers=1, shared=0, errors=[], mailboxes=[], ledger=result, mails=2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mails": 0}, "no email arrived"),
        ({"mails": 1}, "the ledger has 2 sent digests, but 1 email arrived"),
        (
            {"ledger": reconciliation.Reconciliation(4, {DeliveryState.SENT: 2}, missing=2)},
            "2 digests due but missing",
        ),
        ({"errors": ["it broke"]}, "a run failed: it broke"),
        (
            {"mailboxes": [summary.MailboxSummary("alice@example.org", 2, 3, 1, "")]},
            "alice@example.org got a paper",
        ),
    ],
)
def test_report_lists_problems(good_report: summary.Report, change: dict[str, object], problem: str) -> None:
    """A demo with problems fails in CI."""
    assert good_report.problems() == []
    assert problem in "; ".join(replace(good_report, **change).problems())  # type: ignore[arg-type]


@pytest.fixture
def smtp_server() -> Iterator[DemoMailServer]:
    """Run the SMTP server of the demo."""
    with DemoMailServer(unknown=["trent@example.org"], greylisted=["heidi@example.org"]) as box:
        yield box


def build_mail(address: str) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "paperboy@example.org", address, "Two papers for you"
    mail["Date"] = "Tue, 31 Mar 2026 19:00:00 +0000"
    mail.set_content("In plain words.")
    mail.add_alternative("<p>In <b>bold</b> words.</p><script>alert(1)</script>", subtype="html")
    return mail


def send_mail(smtp_server: DemoMailServer, address: str) -> None:
    with smtplib.SMTP(HOST, smtp_server.port) as relay:
        relay.send_message(build_mail(address))


def test_smtp_server_stores_mails(smtp_server: DemoMailServer) -> None:
    """An email can be read as HTML, as text and by its headers."""
    send_mail(smtp_server, "alice@example.org")
    mail = smtp_server.mail(1)
    assert mail is not None
    assert (mail.recipient, mail.subject) == ("alice@example.org", "Two papers for you")
    assert "plain words" in mail.text
    assert "<b>bold</b>" in mail.html
    assert ("To", "alice@example.org") in mail.headers
    assert smtp_server.mail(0) is smtp_server.mail(2) is None


def test_smtp_server_greylists(smtp_server: DemoMailServer) -> None:
    """A greylisted email is accepted at the second attempt."""
    with pytest.raises(smtplib.SMTPRecipientsRefused, match="451"):
        send_mail(smtp_server, "heidi@example.org")
    send_mail(smtp_server, "heidi@example.org")
    assert len(smtp_server.mails) == 1


def test_smtp_server_refuses_unknown_recipients(smtp_server: DemoMailServer) -> None:
    """The reply has the status code."""
    with pytest.raises(smtplib.SMTPRecipientsRefused, match=r"550.*5\.1\.1"):
        send_mail(smtp_server, "trent@example.org")


@pytest.fixture
def browser(app: Application, smtp_server: DemoMailServer) -> TestClient:
    """Return a client of the web app with the demo inbox, which contains one email."""
    send_mail(smtp_server, "alice@example.org")
    site = main.create_app(app)
    inbox.install(site, smtp_server)
    return TestClient(site, base_url=app.settings.base_url)


def test_inbox_lists_every_mailbox(browser: TestClient) -> None:
    """Empty mailboxes are listed too, each with what it demonstrates."""
    text = browser.get("/demo/inbox").text
    assert all(person.email in text for person in sample_subscribers.SUBSCRIBERS)
    assert 'href="/demo/inbox/1"' in text
    assert "Two papers for you" in text
    assert "Tue\xa031\xa0Mar 2026" in text


def test_inbox_has_the_dates_of_the_reader(
    app: Application, browser: TestClient, smtp_server: DemoMailServer
) -> None:
    """As in the email: in Sydney, it is Wednesday when an email leaves on Tuesday by UTC."""
    with app.db.write() as session:
        now = clock.utcnow()
        factories.add_subscriber(session, "erin@example.org", ["robots"], now, zone="Australia/Sydney")
    send_mail(smtp_server, "erin@example.org")
    _, _, erin = browser.get("/demo/inbox").text.partition('id="erin@example.org"')
    assert ">Wed\xa01\xa0Apr 2026</time>" in erin.partition("</section>")[0]
    assert "Wednesday, 1\xa0April, 06:00 (Australia/Sydney)" in browser.get("/demo/inbox/2").text


def test_inbox_gives_the_newest_reason(app: Application, browser: TestClient) -> None:
    """It is that of the ledger now, also for people who were added while the demo runs."""
    now = clock.utcnow()
    with app.db.write() as session:
        for name in ("carol", "victor"):
            reader = factories.add_subscriber(session, f"{name}@example.org", ["zebrafish"], now)
            digest = {"edition": "2026-04-01", "due_at": now, "created_at": now}
            reason = {"state": DeliveryState.SKIPPED, "reason": "nothing fits"}
            session.add(Delivery(subscriber_id=reader, kind=MailKind.DIGEST, **digest, **reason))
    text = browser.get("/demo/inbox").text
    assert "victor@example.org" in text
    day = '<time datetime="2026-04-01">Wed 1 Apr 2026</time>'
    assert text.count(f"No digest on {day}: Nothing fits.") == 2


def test_inbox_says_why_a_digest_is_held(app: Application, browser: TestClient) -> None:
    """The ledger has no reason for a digest that waits. After its release, it waits to be sent."""
    now = clock.utcnow()
    with app.db.write() as session:
        victor = factories.add_subscriber(session, "victor@example.org", ["zebrafish"], now)
        ledger.pause(session, ledger.IMPORTED, now, ledger.FIRST_DIGESTS)
        held = ledger.Entry(victor, "2026-04-01", now, sample_digest.digest("2026-04-01"), held=True)
        ledger.add_entries(session, [held], now)
    day = 'No digest on <time datetime="2026-04-01">Wed 1 Apr 2026</time>'
    assert f"{day}: Held: subscribers were imported" in browser.get("/demo/inbox").text
    with app.db.write() as session:
        ledger.resume(session, now, ledger.FIRST_DIGESTS)
    assert f"{day}: It has not been sent yet." in browser.get("/demo/inbox").text


def test_next_day_button_keeps_operators_signed_in(app: Application, browser: TestClient) -> None:
    with app.db.write() as session:
        _, key = api_keys.create(session, "demo", [Scope.READ], clock.utcnow())
    browser.post("/admin/sign-in", data={"key": key})
    assert browser.get("/admin/runs").url.path == "/admin/runs"
    browser.post("/demo/later")
    assert browser.get("/admin/runs").url.path == "/admin/runs"


@pytest.mark.parametrize(
    ("view", "shows"),
    [("html", 'src="/demo/inbox/1/html"'), ("text", "In plain words."), ("source", "Subject")],
)
def test_mail_is_shown_as_html_text_and_headers(browser: TestClient, view: str, shows: str) -> None:
    assert shows in browser.get("/demo/inbox/1", params={"view": view}).text


def test_mail_html_is_sandboxed(browser: TestClient) -> None:
    """It can be framed only by our page and runs no script."""
    answer = browser.get("/demo/inbox/1/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "allow-scripts" not in policy
    assert "frame-ancestors 'self'" in policy
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"


def test_mail_can_be_downloaded(browser: TestClient, smtp_server: DemoMailServer) -> None:
    """The download has the bytes sent over SMTP."""
    answer = browser.get("/demo/inbox/1/mail.eml")
    assert answer.content == smtp_server.mails[0].raw
    assert answer.headers["content-type"] == "message/rfc822"


@pytest.mark.parametrize("path", ["/demo/inbox/2", "/demo/inbox/0/html", "/demo/inbox/9/mail.eml"])
def test_unknown_mail_is_not_found(browser: TestClient, path: str) -> None:
    assert browser.get(path).status_code == 404


def test_next_day_button_sends_digests(
    mail_server: MailServer, app: Application, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who signed up in the demo gets a digest."""
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_subscriber(session, "carol@example.org", ["zebrafish"], now + timedelta(hours=5))
        factories.add_paper(session, factories.add_source(session, now), "Zebrafish", now.date(), now)
    assert "Advance one day" in browser.post("/demo/later").text
    assert [mail.recipient for mail in mail_server.messages] == ["carol@example.org"]
    assert timedelta(days=1) <= clock.utcnow() - now < timedelta(days=1, minutes=5)


def test_messages_to_operators_fit_the_demo(
    app: Application, mail_server: MailServer, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Emails that are sent again leave when the date advances, even if nothing else is due on that day."""
    now = clock.utcnow()
    with app.db.write() as session:
        _, key = api_keys.create(session, "demo", [Scope.READ], now)
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Zebrafish", now.date(), now)
        factories.add_subscriber(session, "carol@example.org", ["zebrafish"], now)
        ledger.pause(session, "a trial", now)
    pipeline.plan_and_send(app, now)
    assert mail_server.messages == []
    with app.db.write() as session:
        ledger.resume(session, now)
        session.exec(select(Subscriber)).one().next_due_at = now + timedelta(days=5)
    browser.post("/admin/sign-in", data={"key": key})
    page = browser.get("/admin/editions?done=first").text
    assert "will be sent when you advance the demo’s date by a day in the mailboxes, and the others" in page
    assert 'href="/demo/inbox"' in page
    assert "polled only when you poll it" in browser.get("/admin/sources?done=added").text
    browser.post("/demo/later")
    assert [mail.recipient for mail in mail_server.messages] == ["carol@example.org"]


def test_every_page_links_the_inbox(mail_server: MailServer, browser: TestClient) -> None:
    """Pages that ask the visitor to check a mailbox have a button to it."""
    assert browser.get("/").text.count('href="/demo/inbox"') == 1
    form = {"email": "carol@example.org", "cadence": "daily", "hour": "8", "zone": "UTC"}
    for path in ("/subscribe", "/manage"):
        page = browser.post(path, data=form).text
        assert "Check your mailbox" in page
        assert '<a class="button" href="/demo/inbox">' in page


def test_service_has_no_inbox(app: Application) -> None:
    """Only the demo has it and links to it."""
    service = TestClient(main.create_app(app))
    assert service.get("/demo/inbox").status_code == 404
    assert "mailboxes" not in service.get("/").text


def test_occupied_port_is_replaced() -> None:
    """The demos of two clones can run at once."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert demo.free_port(port) != port


@pytest.mark.once
def test_only_the_demo_needs_no_process_that_runs_jobs(app: Application) -> None:
    """Operators of a real installation read nothing about the demo."""
    assert "demo" not in worker_registry.start_advice(app.db)
    demo_clock.travel(app.db, clock.utcnow())
    assert worker_registry.start_advice(app.db).startswith("the demo needs none")


@pytest.mark.once
def test_clock_of_the_demo_is_only_that_of_its_database(app: Application) -> None:
    """Another database in the same folder has this machine's clock."""
    later = clock.utcnow() + timedelta(days=100)
    demo_clock.travel(app.db, later)
    url = make_url(app.settings.database_url)
    for name, is_later in (
        (url.database, True),
        (str(Path(url.database or "").with_name("other.db")), False),
    ):
        clock.travel(clock.system_time())
        demo_clock.follow(url.set(database=name).render_as_string(hide_password=False))
        assert (clock.utcnow() > later - timedelta(minutes=5)) == is_later
