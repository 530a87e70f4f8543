"""The command line: a readable answer for people, one document for machines, and an honest exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from sqlmodel import col, select
from typer.testing import CliRunner

from app import clock, pipeline, subscribers
from app.application import Application
from app.cli import cli, preview
from app.cli.subscribers import COLUMNS, EXPORTED
from app.papers import source_registry
from app.papers.polling import PollResult
from app.relevance.matching import MatchDetails
from app.relevance.model_store import MIN_PAPERS
from app.settings import Settings
from app.storage import api_keys
from app.storage.models import ApiKey, AuditEntry, Delivery, Scope, Source, Subscriber, TrainedModel
from app.subscribers import Preferences, SignUp
from app.types import Digest, IngestSummary, Interest, Rejection, Section
from tests.conftest import SECRET
from tests.support import factories
from tests.support.mail_server import MailServer

Run = Callable[..., Result]

ROWS = [
    {
        "paper": {
            "id": f"2511.0000{number}",
            "title": title,
            "summary": f"{title}, at last.",
            "authors": [{"name": "Ada Lovelace"}],
            "publishedAt": "2026-11-19T00:00:00.000Z",
            "submittedOnDailyAt": "2026-11-20T00:00:00.000Z",
            "upvotes": number,
        }
    }
    for number, title in enumerate(("Language Agents that Plan", "Video Diffusion in Real Time"), start=1)
]


@pytest.fixture(autouse=True)
def environment(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mail_server: MailServer
) -> None:
    """What an operator has set; no `.env` has a say."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PAPERBOY_{name.upper()}", raising=False)
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("PAPERBOY_SECRET_KEYS", SECRET)
    monkeypatch.setenv("PAPERBOY_FROM_ADDRESS", "digest@paperboy.test")
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", str(mail_server.port))
    monkeypatch.setenv("PAPERBOY_SMTP_SECURITY", "none")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A day of Hugging Face, as it answers."""
    file = tmp_path / "2026-11-20.json"
    file.write_text(json.dumps(ROWS))
    return file


def says(result: Result) -> Any:
    """The JSON document that is all there is on standard output."""
    return json.loads(result.stdout)


# --- ingest


def test_reading_files_tells_what_came_of_them(run: Run, rows: Path) -> None:
    """Once everything is new, the second time nothing changes."""
    first = says(run("ingest", str(rows), "--json"))
    assert first == {
        "files": 1,
        "rows": 2,
        "papers_new": 2,
        "papers_merged": 0,
        "changed": 0,
        "unchanged": 0,
        "listings": 2,
        "rejected": 0,
        "failed": [],
        "rejections": [],
    }
    second = says(run("ingest", str(rows), "--json"))
    assert (second["papers_new"], second["unchanged"], second["listings"]) == (0, 2, 0)


def test_a_bad_row_is_shown_and_costs_nothing_else(run: Run, rows: Path) -> None:
    """With its file, its number and the reason."""
    rows.write_text(json.dumps([ROWS[0], "what?", ROWS[1]]))
    told = says(run("ingest", str(rows), "--json"))
    assert (told["rows"], told["papers_new"], told["rejected"]) == (3, 2, 1)
    (rejection,) = told["rejections"]
    assert (rejection["file"], rejection["row"]) == (str(rows), 2)
    assert rejection["reason"]
    assert str(rows) in run("ingest", str(rows)).stdout


@pytest.mark.parametrize("content", [b"<html>please log in</html>", b"\x00\xff", b"", None])
def test_a_file_that_cannot_be_read_fails_after_the_rest_was_done(
    content: bytes | None, run: Run, rows: Path, tmp_path: Path
) -> None:
    """Exit code 1, one clear line, and the other file is in the archive."""
    broken = tmp_path / "broken.json"
    if content is not None:
        broken.write_bytes(content)
    told = says(run("ingest", str(broken), str(rows), "--json", code=1))
    assert (told["files"], told["papers_new"], told["rejected"]) == (2, 2, 1)
    assert told["failed"] == [str(broken)]
    assert told["rejections"][0]["row"] is None


def test_papers_without_a_day_are_pointed_out(run: Run, tmp_path: Path) -> None:
    """They are in the archive, but no digest looks at a paper that was listed on no day."""
    undated = tmp_path / "papers.jsonl"
    undated.write_text(json.dumps({"id": "2611.00009", "title": "A Paper of No Day"}) + "\n")
    assert "No listing day is known" in run("ingest", str(undated)).stdout


def test_kind_and_day_can_be_told(run: Run, tmp_path: Path) -> None:
    """Where content and name do not say it."""
    file = tmp_path / "list.txt"
    file.write_text('{"title": "Language Agents that Plan", "abstract": "At last."}\n')
    told = says(run("ingest", str(file), "--as", "jsonl", "--day", "2026-11-18", "--json"))
    assert (told["papers_new"], told["listings"]) == (1, 1)
    assert "2026-11-18" in run("preview", "--interest", "agents", "--day", "2026-11-18", "--json").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "--as", "gopher", "x"),
        ("ingest", "--day", "tomorrow", "x"),
        ("ingest", "--day", "2026-11-20"),
        ("preview",),
        ("serve", "--port", "99999"),
        ("key", "create", "x", "--scope", "root"),
        ("key", "create", "x"),
        ("subscribers", "import", "nowhere.csv"),
        ("fly",),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], run: Run) -> None:
    """A script can tell it from a failure."""
    run(*arguments, code=2)


def test_polling_tells_which_sources_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, and what the others brought is told."""
    brought = PollResult(
        summary=IngestSummary(rows=3, papers_new=2, rejections=(Rejection("no title", 3, "", "hub"),)),
        polled=("hub", "arxiv"),
        failed={"arxiv": "it answered 503"},
    )
    monkeypatch.setattr(pipeline, "refresh", lambda _app, _now: brought)
    told = says(run("ingest", "--json", code=1))
    assert (told["sources"], told["papers_new"]) == (["hub", "arxiv"], 2)
    assert told["failed"] == {"arxiv": "it answered 503"}
    shown = run("ingest", code=1).stdout
    assert "it answered 503" in shown
    assert "no title" in shown


def test_asked_to_end_while_polling(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends what is under way in order: leases are given back."""

    def refresh(app: Application, _now: object) -> PollResult:
        os.kill(os.getpid(), signal.SIGTERM)
        assert app.stopping.wait(30)
        return PollResult()

    monkeypatch.setattr(pipeline, "refresh", refresh)
    assert "none is due" in run("ingest").stdout


def test_nothing_due_is_no_failure(run: Run, app: Application) -> None:
    """A cron job may ask as often as it likes."""
    now = clock.utcnow()
    with app.db.write() as session:
        source_registry.seed(session, (), now)
        for source in source_registry.all_sources(session):
            source_registry.pause(session, source)
    assert "none is due" in run("ingest").stdout


# --- preview and send


def test_a_preview_shows_the_digest_without_a_subscriber(run: Run, rows: Path, tmp_path: Path) -> None:
    """As a document, as a page, and for people."""
    run("ingest", str(rows))
    wanted = ("preview", "--interest", "language agents", "--max-trending", "0", "--day", "2026-11-20")
    told = says(run(*wanted, "--json"))
    assert told["skipped"] is None
    assert [pick["title"] for section in told["sections"] for pick in section["picks"]] == [
        "Language Agents that Plan"
    ]
    run(*wanted, "--html", str(tmp_path / "digest.html"))
    assert "Language Agents that Plan" in (tmp_path / "digest.html").read_text()
    assert "Language Agents that Plan" in run(*wanted).stdout


def test_a_preview_takes_what_a_reader_may_choose(run: Run, rows: Path) -> None:
    """As a new reader has it, where nothing is said."""
    run("ingest", str(rows))
    wanted = ("preview", "--interest", "language agents", "--day", "2026-11-20")
    assert "Trending beyond your interests\n" in run(*wanted).stdout
    assert "Trending" not in run(*wanted, "--max-trending", "0").stdout
    assert "Language Agents" not in run(*wanted, "--mute", "author:nobody", "--mute", "agents").stdout
    assert "at least 9 papers" in says(run(*wanted, "--min-papers", "9", "--json"))["skipped"]
    assert "1 of 2 papers" in run(*wanted, "--max-papers", "1").stdout
    assert "cannot be muted" in run(*wanted, "--mute", "the", code=1).stderr


def test_a_section_under_no_interest_is_called_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Not everything there trends beyond the interests."""
    sections = (Section("", (), "Close to what you liked"), Section("", (), "Trending now"), Section("", ()))
    preview.print_digest(Digest("2026-11-20", sections))
    headings = ["Close to what you liked", "Trending now", "Trending beyond your interests"]
    assert [line for line in capsys.readouterr().out.splitlines() if line][:3] == headings


def test_a_preview_without_new_papers_says_why(app: Application, run: Run) -> None:
    """That is an answer, not a failure."""
    with app.db.write() as session:
        factories.archive(session, 1, clock.utcnow())
    told = says(run("preview", "--interest", "agents", "--json"))
    assert told["skipped"]
    assert told["sections"] == []


@pytest.mark.parametrize("command", [("preview", "--interest", "agents"), ("backtest", "agents")])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_an_empty_archive_foretells_nothing(
    run: Run, command: tuple[str, ...], as_json: tuple[str, ...]
) -> None:
    """Said once, with what to run: nothing was ingested, so no interest can be judged."""
    failed = run(*command, *as_json, code=1)
    assert failed.stderr == "paperboy: no paper has been ingested yet: run `paperboy ingest` first\n"
    assert failed.stdout == ""


@pytest.mark.usefixtures("alice_is_due")
def test_a_look_back_from_an_earlier_moment(run: Run) -> None:
    """An archive of long ago can be looked at, too; and an interest may begin with a minus."""
    days = says(run("backtest", "agents", "--days", "2", "--at", "2026-04-02", "--json"))
    assert [day["edition"] for day in days] == ["2026-03-31", "2026-04-01"]
    assert "between 1991-08-14" in run("backtest", "agents", "--at", "0001-01-01", code=1).stderr
    assert 'backtest -- "-' in " ".join(run("backtest", "--help").stdout.split())


def test_a_port_that_is_taken_is_one_line(run: Run) -> None:
    """Which one, and how to choose another, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = run("serve", "--port", str(port), code=1)
    assert failed.stderr.startswith(f"paperboy: port {port} of 127.0.0.1 is in use")
    assert "--port" in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["?!", "x" * 10_000])
def test_an_interest_that_cannot_be_searched_for_is_one_line(text: str, run: Run) -> None:
    """No traceback: exit code 1 and what to change."""
    failed = run("preview", "--interest", text, code=1)
    assert failed.stderr.startswith("paperboy: ")
    assert failed.stderr.count("\n") == 1
    assert failed.stdout == ""


@pytest.fixture
def alice_is_due(app: Application, run: Run, rows: Path) -> None:
    """Papers of today, and a reader who waits for them."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.source(session, now)
        factories.paper(session, source, "Language Agents that Plan", now.date(), now, abstract="At last.")
        factories.reader(session, "alice@example.org", ["language agents"], now, hour=now.hour)


def test_why_a_paper_would_be_sent(run: Run, alice_is_due: None) -> None:
    """The sentence first, then the numbers; one document for machines, and one line for what is missing."""
    told = run("explain", "alice@example.org", "1").stdout
    assert told.startswith("Would be sent in the next digest")
    assert "language agents" in told
    assert "at least 0.33 is needed" in told
    assert re.search(r"relevance +weight +weighted\n", told)
    assert "Weighted = 1 − (1 − relevance)^weight." in told
    assert all(
        name.replace("_", " ") in told
        for name in MatchDetails.__dataclass_fields__
        if name != "rejection_reason"
    )
    assert not re.search(r"similarity|left out|none|0\.000", told), "what says nothing is left out"
    assert "next digest" in told
    explained = says(run("explain", "alice@example.org", "1", "--json"))
    assert explained["rank"]["outcome"] == "picked"
    earlier = says(run("explain", "1", "1", "--at", "2026-01-01", "--json"))
    assert earlier["ineligible_reason"].startswith("no source lists it before")
    told = run("explain", "1", "1", "--at", "2026-01-01").stdout
    assert "next digest" not in told
    assert "The paper, at 2026-01-01 00:00 UTC" in told
    assert "settings and interests are today's" in " ".join(run("explain", "--help").stdout.split())
    assert "no paper 99 in the archive" in run("explain", "1", "99", code=1).stderr
    assert "between 1991-08-14" in run("explain", "1", "1", "--at", "0001-01-01", code=1).stderr


def test_what_was_sent_is_explained_from_the_ledger(run: Run, alice_is_due: None) -> None:
    """With the delivery, and what was said then."""
    run("send")
    told = run("explain", "1", "1").stdout
    assert told.startswith("Sent on ")
    assert "score then" in told
    ledger, numbers = told.split("The paper, now", 1)
    assert "In the ledger" in ledger
    assert "relevance" in numbers
    assert "no candidate" not in told
    assert "no digest" not in told


def test_what_interests_would_have_brought(run: Run, alice_is_due: None) -> None:
    """A line a paper, a line for a day without any; the same for machines."""
    hour = clock.utcnow().hour
    told = run("backtest", "language agents", "video", "--days", "2").stdout
    assert told.count("nothing: ") == (1 if hour >= 8 else 2)
    days = says(run("backtest", "language agents", "--days", "2", "--json"))
    assert [bool(day["digest"].get("sections")) for day in days] == [False, hour >= 8]
    assert "from 1 to 60" in run("backtest", "agents", "--days", "0", code=1).stderr


@pytest.mark.usefixtures("alice_is_due")
def test_sending_sends_and_a_dry_run_does_not(run: Run, mail_server: MailServer) -> None:
    """Who is due, and what they would get; then they get it, once."""
    (due,) = says(run("send", "--dry-run", "--json"))
    assert due["email"] == "alice@example.org"
    assert "alice@example.org" in run("send", "--dry-run").stdout
    assert mail_server.messages == []
    assert says(run("send", "--json"))["sent"] == 1
    (mail,) = mail_server.messages
    assert mail.recipient == "alice@example.org"
    assert "No digest is due" in run("send").stdout
    assert len(mail_server.messages) == 1


@pytest.mark.usefixtures("alice_is_due")
def test_what_is_paused_is_told_and_goes_on_when_resumed(
    run: Run, app: Application, mail_server: MailServer
) -> None:
    """Whoever wonders why nothing leaves reads the reason, and how to end it."""
    assert "Sending is paused." in run("sending", "pause", "--reason", "the [key] is wrong").stdout
    told = run("send")
    assert "No digest is due" not in told.output
    assert "the [key] is wrong" in told.stderr
    assert "paperboy sending resume" in told.stderr
    status = says(run("sending", "status", "--json"))
    assert [status["balance"]["due"], status["balance"]["pending"]] == [1, 1]
    assert [pause["reason"] for pause in status["pauses"]] == ["the [key] is wrong"]
    assert mail_server.messages == []
    run("sending", "resume")
    run("sending", "resume", code=1)
    assert says(run("send", "--json"))["sent"] == 1
    with app.db.read() as session:
        assert [row.action for row in session.exec(select(AuditEntry))] == ["sending.pause", "sending.resume"]


def test_mails_that_wait_are_told(run: Run, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A confirmation that finds no relay is no digest: it is seen all the same, and when it is tried."""
    assert says(run("sending", "status", "--json"))["others"] == []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PAPERBOY_SMTP_PORT", str(closed.getsockname()[1]))
        with app.db.write() as session:
            wanted = SignUp("alice@example.org", Preferences(interests=(Interest("agents"),)))
            subscribers.sign_up(session, wanted, "192.0.2.1", clock.utcnow())
        assert "1 mail waits, to be tried at 20" in run("send").stdout
        told = run("send").stdout
    assert "No digest is due" not in told
    assert "1 mail waits, to be tried at 20" in told
    assert "Confirmations: 1 mail waits, to be tried at 20" in run("sending", "status").stdout
    status = says(run("sending", "status", "--json"))
    assert status["balance"]["due"] == 0
    (waiting,) = status["others"]
    assert (waiting["kind"], waiting["mails"]) == ("confirm", 1)


@pytest.mark.usefixtures("alice_is_due")
def test_an_edition_is_cancelled(run: Run, app: Application, mail_server: MailServer) -> None:
    """What had not left ends as skipped; an edition that never was is told apart."""
    run("sending", "pause", "--reason", "a wrong digest")
    run("send")
    with app.db.read() as session:
        edition = session.exec(select(Delivery.edition)).one()
    assert "1 mail of" in run("sending", "cancel", edition).stdout
    assert says(run("sending", "status", "--edition", edition, "--json"))["balance"]["skipped"] == 1
    assert "was ever due" in run("sending", "cancel", "1999-01-01", code=1).stderr
    run("sending", "resume")
    run("send")
    assert mail_server.messages == []


def test_only_what_is_of_unknown_fate_is_released(run: Run) -> None:
    """The number is the delivery's; there is none yet."""
    assert "no delivery 7" in run("sending", "resend", "7", code=1).stderr


@pytest.mark.usefixtures("alice_is_due")
def test_asked_to_end_while_sending(run: Run, mail_server: MailServer) -> None:
    """SIGTERM lets the mail in flight get its answer; what was done with signals before holds afterwards."""
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    mail_server.reply("end", "250 queued", first=lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        assert says(run("send", "--json"))["sent"] == 1
        assert asked == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("alice_is_due")
def test_a_mail_that_failed_is_exit_code_1(run: Run, mail_server: MailServer) -> None:
    """The counts say how many."""
    mail_server.reply("rcpt", "550 5.1.1 no such user")
    assert says(run("send", "--json", code=1))["failed"] == 1


# --- model


def test_a_model_is_learned_and_listed(run: Run, app: Application) -> None:
    """A young archive says why not; a corrupt model is shown, and the one before it is in use."""
    assert "too few papers" in run("model", "learn").stdout
    assert "The bundled model is in use" in run("model", "list").stdout
    now = clock.utcnow()
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, now)
    assert says(run("model", "learn", "--json")) == {"model_id": 1, "papers": MIN_PAPERS, "why_not": ""}
    with app.db.write() as session:
        factories.archive(session, 1, now, first=MIN_PAPERS)
    assert f"Model 2 was trained on {MIN_PAPERS + 1} papers" in run("model", "learn").stdout
    with app.db.write() as session:
        session.get_one(TrainedModel, 2).data = b"torn"
    listed = {
        each["id"]: (not each["fault"], each["in_use"]) for each in says(run("model", "list", "--json"))
    }
    assert listed == {2: (False, False), 1: (True, True)}
    shown = run("model", "list").stdout
    assert "refused: The stored bytes do not match their SHA-256 checksum." in shown
    assert "in use" in shown


# --- subscribers


def test_a_reader_is_added_by_hand(run: Run, app: Application) -> None:
    """Active at once, because consent was given elsewhere; the audit says who did it."""
    told = says(
        run("subscribers", "add", "Bob@example.org", "--interest", "robots", "--zone", "Asia/Tokyo", "--json")
    )
    assert told["email"] == "bob@example.org"
    with app.db.read() as session:
        bob = session.exec(select(Subscriber)).one()
        assert (bob.state, bob.zone, bob.hour) == ("active", "Asia/Tokyo", 8)
        assert [row.action for row in session.exec(select(AuditEntry))] == ["subscriber.add"]
    assert (
        "Mars"
        in run("subscribers", "add", "c@example.org", "--interest", "x", "--zone", "Mars/X", code=1).stderr
    )
    assert "known already" in run("subscribers", "add", "bob@example.org", "--interest", "x", code=1).stderr


def test_importing_skips_bad_rows_and_shows_them(run: Run, app: Application, tmp_path: Path) -> None:
    """As spreadsheets write it: a mark at the beginning, semicolons, and CRLF."""
    file = tmp_path / "readers.csv"
    lines = [
        "email,interests,hour,zone,cadence,max_trending,muted",
        'alice@example.org,"language agents; ""world models""",7,Europe/Berlin,weekly,0,"games; cat:cs.CR"',
        "not an address,robots,,,,,",
        "bob@example.org,robots,seven,,,,",
        "carol@example.org,?!,,,,,",
        "alice@example.org,again,,,,,",
        "dave@example.org,robots,,,,,",
    ]
    file.write_bytes(("\ufeff" + "\r\n".join(lines)).encode())
    told = says(run("subscribers", "import", str(file), "--json", code=1))
    assert (told["added"], told["rejected"]) == (2, 4)
    assert [(each["row"], bool(each["reason"])) for each in told["rejections"]] == [
        (3, True), (4, True), (5, True), (6, True),
    ]  # fmt: skip
    with app.db.read() as session:
        found = session.exec(select(Subscriber).order_by(col(Subscriber.id))).all()
    assert [(each.email, each.hour, each.cadence, each.max_trending, each.muted) for each in found] == [
        ("alice@example.org", 7, "weekly", 0, ["games", "cat:cs.CR"]),
        ("dave@example.org", 8, "daily", 3, []),
    ]
    assert "hour cannot be “seven”" in run("subscribers", "import", str(file), code=1).stdout


def test_semicolons_separate_columns_where_the_first_line_says_so(run: Run, tmp_path: Path) -> None:
    """As spreadsheets of half of Europe write it."""
    file = tmp_path / "readers.csv"
    file.write_text('email;interests;hour\nalice@example.org;"agents; robots";7\n')
    assert says(run("subscribers", "import", str(file), "--json"))["added"] == 1
    assert says(run("subscribers", "export", "--json"))[0]["interests"] == ["agents", "robots"]


@pytest.mark.parametrize("content", ["", "name,age\nalice,7\n", "email,interests\n"])
def test_a_file_without_readers_is_refused(content: str, run: Run, tmp_path: Path) -> None:
    """Importing nothing must not look like success."""
    file = tmp_path / "readers.csv"
    file.write_text(content)
    assert "first line" in run("subscribers", "import", str(file), code=1).stderr


@pytest.mark.parametrize(
    "content", [b"email,interests\nb\xe9b@example.org,agents\n", b'email,interests\n"a,b\n']
)
def test_a_file_that_is_no_csv_is_one_line(content: bytes, run: Run, tmp_path: Path) -> None:
    """In another encoding, or with a quotation mark that never ends."""
    file = tmp_path / "readers.csv"
    file.write_bytes(content)
    failed = run("subscribers", "import", str(file), code=1)
    assert "cannot be read as CSV in UTF-8" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_an_export_can_be_imported_again(run: Run, app: Application, tmp_path: Path) -> None:
    """Every reader, in a form that a spreadsheet does not run as formulas."""
    with app.db.write() as session:
        wanted = ["-negative thoughts", '"agents"']
        factories.reader(session, "=cmd@example.org", wanted, clock.utcnow(), muted=["games", "cat:cs.CR"])
        factories.reader(session, "gone@example.org", [], clock.utcnow(), state="erased")
    text = run("subscribers", "export").stdout
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["email"] == "'=cmd@example.org"
    assert row["interests"].startswith("'-negative")
    assert (row["cadence"], row["muted"]) == ("daily", "games; cat:cs.CR")
    (told,) = says(run("subscribers", "export", "--json"))
    assert (told["email"], told["interests"]) == ("=cmd@example.org", ["-negative thoughts", '"agents"'])
    run("subscribers", "export", "--json", "--csv", code=2)


def test_what_was_learned_from_a_reader_is_shown_and_forgotten(run: Run, app: Application) -> None:
    """By their address or their number; who is not there is said in a line."""
    now = clock.utcnow()
    with app.db.write() as session:
        alice = factories.reader(session, "alice@example.org", ["robots"], now)
        paper = factories.paper(session, factories.source(session, now), "[red]Plans[/red]", now.date(), now)
        subscribers.set_feedback(session, alice, paper, True, now)
        subscribers.ignore_author(session, alice, "Ada Lovelace")
    shown = says(run("subscribers", "show", str(alice), "--json"))
    assert (shown["email"], shown["interests"]) == ("alice@example.org", ["robots"])
    assert shown["ignored_authors"] == ["Ada Lovelace"]
    assert [(each["title"], each["liked"]) for each in shown["feedback"]] == [("[red]Plans[/red]", True)]
    told = run("subscribers", "show", "Alice@example.org").stdout
    assert re.search(r"more like this +\[red\]Plans\[/red\]", told)
    for _ in range(2):
        assert "alice@example.org" in run("subscribers", "delete-feedback", "alice@example.org").stdout
    assert says(run("subscribers", "show", str(alice), "--json"))["feedback"] == []
    for name in ("4711", "nobody@example.org", "nobody"):
        for command in ("show", "delete-feedback"):
            assert run("subscribers", command, name, code=1).stderr


# --- keys and sources


def test_a_key_is_shown_once(run: Run, app: Application) -> None:
    """It works, it is listed without itself, and it ends when it is revoked."""
    told = says(run("key", "create", "grafana", "--scope", "read", "--scope", "send", "--json"))
    with app.db.read() as session:
        holder = api_keys.authenticate(session, told["key"], clock.utcnow())
    assert holder is not None
    assert holder.scopes == {Scope.READ, Scope.SEND}
    listed = run("key", "list")
    assert "grafana" in listed.stdout
    assert told["key"] not in listed.stdout
    assert "key_hash" not in run("key", "list", "--json").stdout
    assert "already" in run("key", "create", "grafana", "--scope", "read", code=1).stderr
    run("key", "revoke", "grafana")
    with app.db.read() as session:
        assert api_keys.authenticate(session, told["key"], clock.utcnow()) is None
        assert session.exec(select(ApiKey)).one().revoked_at
    run("key", "revoke", "grafana", code=1)


def test_only_the_key_is_on_standard_output(run: Run) -> None:
    """So that it can be piped into a secret store."""
    made = run("key", "create", "grafana", "--scope", "read")
    assert re.fullmatch(r"pb_[\w-]{43}\n", made.stdout)
    assert "not shown again" in made.stderr


def test_a_secret_needs_no_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what one makes before there are any."""
    monkeypatch.delenv("PAPERBOY_SECRET_KEYS")
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", "nonsense")
    made = run("key", "secret").stdout.strip()
    good = Settings(_env_file=None, database_url="sqlite://", secret_keys=(made,))
    assert good.secret_keys == (made,)


def test_without_a_secret_what_signs_links_does_not_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what needs none does."""
    monkeypatch.delenv("PAPERBOY_SECRET_KEYS")
    assert "paperboy key secret" in run("send", code=1).stderr
    run("sources", "list")


def test_sources_are_added_paused_and_resumed(run: Run, app: Application) -> None:
    """By their names."""
    run("sources", "add", "A lab's blog", "--kind", "feed", "--url", "https://lab.example/feed.xml")
    run("sources", "add", "stat", "--kind", "arxiv", "--category", "stat.ML", "--category", "stat.ME")
    run("sources", "pause", "stat")
    listed = {each["name"]: each for each in says(run("sources", "list", "--json"))}
    assert listed["stat"]["paused"]
    assert listed["stat"]["config"] == {"categories": ["stat.ML", "stat.ME"]}
    assert "paused" in run("sources", "list").stdout
    run("sources", "resume", "stat")
    with app.db.read() as session:
        assert not session.exec(select(Source).where(Source.name == "stat")).one().paused
    assert "no source named" in run("sources", "pause", "nothing", code=1).stderr
    run("sources", "add", "x", "--kind", "feed", "--url", "file:///etc/passwd", code=1)


# --- the service


def test_the_doctor_says_what_to_mend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 only where something does not work."""
    told = says(run("doctor", "--json"))
    levels = {finding["check"]: finding["level"] for finding in told["findings"]}
    assert (levels["database"], levels["relay"], levels["base_url"]) == ("ok", "ok", "warning")
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", "1")
    shown = run("doctor", code=1).stdout
    assert "PAPERBOY_SMTP_HOST" in shown
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", "many")
    assert "PAPERBOY_SMTP_PORT" in run("doctor", code=1).stdout


def test_a_database_that_is_away_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback of the driver's, and no password."""
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", "postgresql+psycopg://me:hunter2@127.0.0.1:1/none")
    failed = run("sources", "list", code=1)
    assert failed.stderr.startswith("paperboy: the database cannot be used")
    assert failed.stderr.count("\n") == 1
    assert "hunter2" not in failed.stderr


def test_the_first_command_makes_the_database(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing has to be prepared."""
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{tmp_path}/new/paperboy.db")
    assert says(run("sources", "list", "--json")) == []
    assert "is at revision" in run("migrate").stdout


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "[red]markup[/]", "[/nonsense]"])
def test_foreign_text_does_not_steer_the_terminal(
    hostile: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title or an error comes from whoever wrote the upstream's answer."""
    failed = PollResult(polled=("hub",), failed={"hub": hostile})
    monkeypatch.setattr(pipeline, "refresh", lambda _app, _now: failed)
    shown = run("ingest", code=1).stdout
    assert "\x1b" not in shown
    assert hostile.replace("\x1b", " ") in shown


def test_every_command_is_explained(run: Run) -> None:
    """`--help` says what it does, and which exit codes there are."""
    assert "Exit codes" in run("--help").stdout
    for command in ("serve", "worker", "ingest", "preview", "send", "doctor", "demo", "key", "subscribers"):
        assert len(run(command, "--help").stdout) > 200


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a command in a process of its own; whatever still runs is ended afterwards."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from app.cli import main; main()", *arguments]
        process = subprocess.Popen(  # noqa: S603 - it is our own command
            command,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen[str], words: str) -> str:
    """Read the log until these words are in a line of it."""
    assert process.stderr
    seen = ""
    for line in process.stderr:
        seen += line
        if words in line:
            return line
    raise AssertionError(f"it ended without saying “{words}”:\n{seen}")


def test_serving_answers_and_ends_in_order(serving: Callable[..., subprocess.Popen[str]]) -> None:
    """On a port that was free; with the schedule; and a polite signal is enough to end it."""
    process = serving("serve", "--port", "0")
    line = wait_for(process, "running on")
    url = re.search(r"http://[\d.:]+", line)
    assert url, line
    assert httpx.get(f"{url[0]}/readyz").json() == {"status": "ok", "database": "ok"}
    assert httpx.get(f"{url[0]}/api/v1/runs").status_code == 401
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=60)
    assert "scheduler stopped" in logged
    assert process.returncode in (0, -signal.SIGTERM)


def test_a_worker_runs_the_schedule_alone(serving: Callable[..., subprocess.Popen[str]]) -> None:
    """Until a signal asks it to end."""
    process = serving("worker")
    wait_for(process, "scheduler started")
    process.send_signal(signal.SIGTERM)
    _, logged = process.communicate(timeout=60)
    assert "scheduler stopped" in logged
    assert process.returncode == 0


def test_a_command_works_as_a_program(serving: Callable[..., subprocess.Popen[str]]) -> None:
    """The real console script's way in, with its exit code."""
    process = serving("key", "secret")
    made, _ = process.communicate(timeout=60)
    assert len(made.strip()) == 43
    failing = serving("key", "revoke", "nobody")
    _, told = failing.communicate(timeout=60)
    assert (failing.returncode, told.count("\n")) == (1, 1)


def test_the_columns_of_an_export_are_those_of_an_import() -> None:
    """What can be read can be written."""
    assert set(COLUMNS) <= set(EXPORTED)
