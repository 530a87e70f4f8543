"""Test the commands: readable output, one JSON document with `--json`, and exit codes."""

import csv
import io
import itertools
import json
import os
import re
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import structlog
import time_machine
import typer
from alembic import command as alembic_command
from click.testing import Result
from sqlmodel import col, delete, select
from typer.testing import CliRunner

from app import clock, doctor, pipeline, subscribers
from app.application import Application
from app.cli import backup, preview, serve, worker
from app.cli.commands import cli
from app.cli.output import graceful_shutdown, parse_time, table
from app.delivery import ledger
from app.jobs import schedule
from app.maintenance import after_restore
from app.papers import listing_days, source_registry
from app.papers.polling import PollResult
from app.relevance.matching import MatchDetails
from app.settings import Settings
from app.storage import api_keys, schema
from app.storage.api_keys import Scope
from app.storage.database import Database
from app.storage.models import (
    ApiKey,
    AuditEntry,
    Delivery,
    DeliveryState,
    Event,
    InterestRow,
    Source,
    Subscriber,
    TrainedModel,
    WorkerRow,
)
from app.subscribers import Preferences, SignUp, csv_transfer
from app.subscribers.csv_format import COLUMNS, EXPORTED
from app.types import Digest, IngestSummary, Interest, Rejection, Section
from tests.conftest import MIN_PAPERS, SECRET
from tests.storage.test_migrations import config_of
from tests.support import factories, sample_digest
from tests.support.fork_server import ForkServer
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
    """Set the operator's environment, without any `.env` file."""
    for name in [name for name in os.environ if name.startswith("PAPERBOY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("PAPERBOY_SECRET_KEYS", SECRET)
    monkeypatch.setenv("PAPERBOY_FROM_ADDRESS", "digest@paperboy.test")
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", str(mail_server.port))
    monkeypatch.setenv("PAPERBOY_SMTP_SECURITY", "none")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run() -> Run:
    """Return a function that runs a command in this process."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.fixture
def papers_file(tmp_path: Path) -> Path:
    """Write a day of Hugging Face's API as a file."""
    file = tmp_path / "2026-11-20.json"
    file.write_text(json.dumps(ROWS))
    return file


def parse_output(result: Result) -> Any:
    """Parse standard output as one JSON document."""
    return json.loads(result.stdout)


def usage_error(result: Result) -> str:
    """Return the text in the box that is printed about wrong usage, as one line."""
    return " ".join(result.stderr.replace("│", " ").split())


# --- ingest


def test_ingest_reports_counts(run: Run, papers_file: Path) -> None:
    """Reading the same file again changes nothing."""
    first = parse_output(run("ingest", str(papers_file), "--json"))
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
    second = parse_output(run("ingest", str(papers_file), "--json"))
    assert (second["papers_new"], second["unchanged"], second["listings"]) == (0, 2, 0)


def test_ingest_reports_rejected_rows(run: Run, papers_file: Path) -> None:
    """A rejected row has its file, number and reason; other rows are stored."""
    papers_file.write_text(json.dumps([ROWS[0], "what?", ROWS[1]]))
    report = parse_output(run("ingest", str(papers_file), "--json"))
    assert (report["rows"], report["papers_new"], report["rejected"]) == (3, 2, 1)
    (rejection,) = report["rejections"]
    assert (rejection["file"], rejection["row"]) == (str(papers_file), 2)
    assert rejection["reason"]
    assert str(papers_file) in run("ingest", str(papers_file)).stdout


@pytest.mark.parametrize("content", [b"<html>please log in</html>", b"\x00\xff", b"", None])
def test_ingest_continues_after_an_unreadable_file(
    content: bytes | None, run: Run, papers_file: Path, tmp_path: Path
) -> None:
    """The exit code is 1, the error is one line, and the other file is stored."""
    invalid = tmp_path / "broken.json"
    if content is not None:
        invalid.write_bytes(content)
    report = parse_output(run("ingest", str(invalid), str(papers_file), "--json", code=1))
    assert (report["files"], report["papers_new"], report["rejected"]) == (2, 2, 1)
    assert report["failed"] == [str(invalid)]
    assert report["rejections"][0]["row"] is None


def test_ingest_names_truncated_files(run: Run, papers_file: Path) -> None:
    """Their papers are stored as far as possible, so they have not failed."""
    papers_file.write_text(json.dumps([*ROWS, ROWS[0]])[:-30])
    report = parse_output(run("ingest", str(papers_file), "--json"))
    assert (report["papers_new"], report["failed"]) == (2, [])
    result = run("ingest", str(papers_file))
    assert "the response was cut off" in result.stdout
    assert f"Not read completely: {papers_file}. The papers that could be read were stored." in result.stderr


def test_ingest_warns_about_papers_without_a_date(run: Run, tmp_path: Path) -> None:
    """They are stored, but digests need a listing date."""
    undated = tmp_path / "papers.jsonl"
    undated.write_text(json.dumps({"id": "2611.00009", "title": "A Paper of No Day"}) + "\n")
    assert "their listing day is unknown" in run("ingest", str(undated)).stdout


def test_ingest_accepts_kind_and_day(run: Run, tmp_path: Path) -> None:
    """The options are needed if neither content nor name tell them."""
    file = tmp_path / "list.txt"
    file.write_text('{"title": "Language Agents that Plan", "abstract": "At last."}\n')
    report = parse_output(run("ingest", str(file), "--as", "jsonl", "--day", "2026-11-18", "--json"))
    assert (report["papers_new"], report["listings"]) == (1, 1)
    assert "2026-11-18" in run("preview", "--interest", "agents", "--day", "2026-11-18", "--json").stdout


def test_ingest_keeps_the_days_in_a_file(run: Run, app: Application, papers_file: Path) -> None:
    """The option is only for papers without a day, as its help says."""
    run("ingest", str(papers_file), "--day", "2026-11-18")
    with app.db.read() as session:
        assert [day.isoformat() for day, _ in listing_days.latest(session, limit=5)] == ["2026-11-20"]
    described = " ".join(run("ingest", "--help").stdout.replace("│", " ").split())
    assert "of papers for which a file gives none" in described


@pytest.mark.parametrize(
    "arguments",
    [
        ("ingest", "--as", "gopher", "x"),
        ("ingest", "--day", "tomorrow", "x"),
        ("ingest", "--day", "2026-11-20"),
        ("ingest", "--day", "2100-01-01", __file__),
        ("preview",),
        ("serve", "--port", "99999"),
        ("key", "create", "x", "--scope", "root"),
        ("key", "create", "x"),
        ("subscribers", "import", "nowhere.csv"),
        ("fly",),
    ],
)
def test_wrong_usage_has_exit_code_2(arguments: tuple[str, ...], run: Run) -> None:
    """Scripts can distinguish it from a failure."""
    run(*arguments, code=2)


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "--day"),
        ("ingest", "x", "--day"),
        ("preview", "--interest", "agents", "--day"),
        ("subscribers", "pause", "alice@example.org", "--until"),
        ("sources", "add", "All", "--kind", "arxiv_oai", "--from"),
        ("sources", "add", "All", "--kind", "arxiv_oai", "--until"),
    ],
)
@pytest.mark.parametrize(
    "day", ["tomorrow", "20.11.2026", "2026-13-01", "2026-1-2", "2026-W47-5", "20261120", ""]
)
def test_wrong_day_says_what_is_expected(arguments: tuple[str, ...], day: str, run: Run) -> None:
    """Each option that is a day says the same, apart from the time zone."""
    zone = "PAPERBOY_DEFAULT_ZONE" if "report" in arguments else "UTC"
    message = (
        f"“{day}” is not a day. Write YYYY-MM-DD, such as 2026-11-20, or today or yesterday (in {zone})."
    )
    assert message in usage_error(run(*arguments, day, code=2))


def test_days_of_reports_by_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are relative to today in the default time zone."""
    monkeypatch.setenv("PAPERBOY_DEFAULT_ZONE", "America/Los_Angeles")
    with time_machine.travel("2026-11-20T03:00:00Z", tick=False):
        for day, number in (("today", 19), ("yesterday", 18), ("2026-11-20", 20)):
            assert f"Digests of 2026-11-{number}" in run("report", "--day", day).stdout
        assert "to 2026-11-20, which is today in UTC" in run("report", "--day", "2026-11-21", code=1).stderr


def test_days_and_times_by_name(run: Run) -> None:
    """A day may be a date, or relative to today in UTC. A time may lack the hour."""
    with time_machine.travel("2026-11-20T23:30:00Z", tick=False):
        for day, number in (("today", 20), ("yesterday", 19), ("2026-11-18", 18)):
            assert f"Digests of 2026-11-{number}" in run("report", "--day", day).stdout
    for command in (("explain", "alice@example.org", "1"), ("backtest", "agents")):
        printed = usage_error(run(*command, "--at", "noon", code=2))
        assert "“noon” is not a time. Write YYYY-MM-DD or YYYY-MM-DDTHH:MM, such as" in printed
        assert "2026-11-20T08:00:30+01:00" in printed
        usage_error(run(*command, "--at", "0001-01-01T00:00+01:00", code=2))
    for moment in ("2026-11-20", "2026-11-20T08:00"):
        assert "No paper has been ingested" in run("backtest", "agents", "--at", moment, code=1).stderr


@pytest.mark.parametrize(
    "moment",
    [
        "2026-11-20T08:00:30", "2026-11-20 08:00:30", "2026-11-20T08:00:30Z", "2026-11-20T08:00:30.000000Z",
        "2026-11-20T09:00:30+01:00",
    ],
)  # fmt: skip
def test_times_with_seconds_and_zones(moment: str) -> None:
    """So the times of the API can be used as they are."""
    assert parse_time(moment) == datetime(2026, 11, 20, 8, 0, 30, tzinfo=UTC)
    assert parse_time(moment).tzinfo is UTC


def test_polling_reports_failed_sources(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1, and the results of the other sources are reported."""
    brought = PollResult(
        summary=IngestSummary(rows=3, papers_new=2, rejections=(Rejection("no title", 3, "", "hub"),)),
        polled=("hub", "arxiv"),
        failed={"arxiv": "it answered 503"},
    )
    monkeypatch.setattr(pipeline, "refresh", lambda *_, **__: brought)
    report = parse_output(run("ingest", "--json", code=1))
    assert (report["sources"], report["papers_new"]) == (["hub", "arxiv"], 2)
    assert report["failed"] == {"arxiv": "it answered 503"}
    output = run("ingest", code=1).stdout
    assert "it answered 503" in output
    assert "no title" in output


def test_sigterm_while_polling(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling ends in order and releases its leases."""

    def refresh(app: Application, _now: object, **_options: object) -> PollResult:
        os.kill(os.getpid(), signal.SIGTERM)
        assert app.stopping.wait(30)
        return PollResult()

    monkeypatch.setattr(pipeline, "refresh", refresh)
    assert "none was due" in run("ingest").stdout


def test_one_source_is_polled_now(run: Run, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this one, even if it is paused or not due. The audit log says who polled it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/feed.xml"
        monkeypatch.setenv("PAPERBOY_ALLOW_PRIVATE_SOURCES", "127.0.0.1")
        run("sources", "add", "The lab", "--kind", "feed", "--url", url)
        run("sources", "pause", "The lab")
        report = parse_output(run("ingest", "--source", "The lab", "--json", code=1))
    assert (report["sources"], [*report["failed"]]) == (["The lab"], ["The lab"])
    (entry,) = parse_output(run("changes", "--action", "source.refresh", "--json"))
    assert (entry["actor"], entry["subject"]) == ("cli", "The lab")
    assert "no source named" in run("ingest", "--source", "nothing", code=1).stderr
    run("ingest", "papers.json", "--source", "The lab", code=2)


def test_polling_without_due_sources_succeeds(run: Run, app: Application) -> None:
    """A cron job may run it at any time."""
    now = clock.utcnow()
    with app.db.write() as session:
        source_registry.seed(session, (), now)
        for source in source_registry.all_sources(session):
            source_registry.pause(session, source)
    assert "none was due" in run("ingest").stdout


# --- preview and send


def test_preview_formats(run: Run, papers_file: Path, tmp_path: Path) -> None:
    """It is shown as JSON, as HTML and as text."""
    run("ingest", str(papers_file))
    arguments = ("preview", "--interest", "language agents", "--max-trending", "0", "--day", "2026-11-20")
    document = parse_output(run(*arguments, "--json"))
    assert document["skipped"] is None
    assert [pick["title"] for section in document["sections"] for pick in section["picks"]] == [
        "Language Agents that Plan"
    ]
    run(*arguments, "--html", str(tmp_path / "digest.html"))
    assert "Language Agents that Plan" in (tmp_path / "digest.html").read_text()
    assert "Language Agents that Plan" in run(*arguments).stdout


def test_preview_asks_whether_a_misspelt_interest_means_another(run: Run, papers_file: Path) -> None:
    """Meanwhile, it is searched for as that one."""
    run("ingest", str(papers_file))
    arguments = ("preview", "--interest", "langauge agents", "--max-trending", "0", "--day", "2026-11-20")
    shown = run(*arguments).stdout
    assert "langauge agents: Did you mean “language agents”? We search for both." in shown
    assert "Language Agents that Plan" in shown
    [hint] = parse_output(run(*arguments, "--json"))["hints"]
    assert hint["did_you_mean"] == "language agents"


def test_preview_accepts_the_preferences_of_a_subscriber(run: Run, papers_file: Path) -> None:
    """The defaults are those of a new subscriber."""
    run("ingest", str(papers_file))
    arguments = ("preview", "--interest", "language agents", "--day", "2026-11-20")
    with_trending = run(*arguments).stdout
    assert "Trending beyond your interests\n" in with_trending
    assert "2 papers (1 matching, 1 trending), edition 2026-11-20." in with_trending
    assert "Trending" not in run(*arguments, "--max-trending", "0").stdout
    assert "Language Agents" not in run(*arguments, "--mute", "author:nobody", "--mute", "agents").stdout
    few = parse_output(run(*arguments, "--min-papers", "9", "--json"))
    assert ("than the minimum of 9" in few["skipped"], few["considered"]) == (True, 2)
    assert "1 of 2 recent papers, edition 2026-11-20." in run(*arguments, "--max-papers", "1").stdout
    assert "cannot be muted" in run(*arguments, "--mute", "the", code=1).stderr


def test_sections_without_an_interest_have_their_own_heading(capsys: pytest.CaptureFixture[str]) -> None:
    sections = (Section("", (), "Close to what you liked"), Section("", (), "Trending now"), Section("", ()))
    preview.print_digest(Digest("2026-11-20", sections))
    headings = ["Close to what you liked", "Trending now", "Trending beyond your interests"]
    assert [line for line in capsys.readouterr().out.splitlines() if line][:3] == headings


def test_preview_without_papers_gives_the_reason(app: Application, run: Run) -> None:
    """The exit code is 0."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, 1, clock.utcnow())
    document = parse_output(run("preview", "--interest", "agents", "--json"))
    assert document["skipped"]
    assert document["sections"] == []


@pytest.mark.parametrize("command", [("preview", "--interest", "agents"), ("backtest", "agents")])
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_preview_of_an_empty_archive(run: Run, command: tuple[str, ...], as_json: tuple[str, ...]) -> None:
    """One message names the command that ingests papers."""
    failed = run(*command, *as_json, code=1)
    assert failed.stderr == "paperboy: No paper has been ingested yet: run `paperboy ingest` first.\n"
    assert failed.stdout == ""


@pytest.mark.usefixtures("alice_is_due")
def test_backtest_at_an_earlier_time(run: Run) -> None:
    """The help explains interests that begin with a minus sign."""
    days = parse_output(run("backtest", "agents", "--days", "2", "--at", "2026-04-02", "--json"))
    assert [day["edition"] for day in days] == ["2026-03-31", "2026-04-01"]
    assert "between 1991-08-14" in run("backtest", "agents", "--at", "0001-01-01", code=1).stderr
    assert 'backtest -- "-' in " ".join(run("backtest", "--help").stdout.split())


def test_occupied_port_is_a_one_line_error(run: Run) -> None:
    """It names the port and the option, before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        failed = run("serve", "--port", str(port), code=1)
    assert failed.stderr.startswith(f"paperboy: Port {port} of 127.0.0.1 is in use")
    assert "--port" in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("base_url", "port", "proxies", "warns"),
    [
        ("http://127.0.0.1:8078", 8000, "", True),
        ("http://localhost", 8000, "", True),
        (f"http://{socket.gethostname()}:8078", 8000, "", True),
        ("http://[::1]:8078", 8078, "", False),
        ("https://papers.example.org", 8000, "", False),
        ("http://localhost", 8000, "127.0.0.1", False),  # a proxy listens on port 80
        ("http://127.0.0.1:8078", 0, "", False),
    ],
)
def test_links_to_another_port(
    settings: Settings, base_url: str, port: int, proxies: str, warns: bool
) -> None:
    """Nothing listens on the port in emails and in the first log line. The warning names both ports."""
    changed = {"base_url": base_url, "trusted_proxies": tuple(proxies.split())}
    with structlog.testing.capture_logs() as logs:
        serve.warn_about_port(settings.model_copy(update=changed), port)
    assert [(line["log_level"], line["base_url"], line["port"]) for line in logs] == (
        [("warning", base_url, port)] if warns else []
    )


@pytest.mark.parametrize("text", ["?!", "x" * 10_000])
def test_invalid_interest_is_a_one_line_error(text: str, run: Run) -> None:
    """The exit code is 1, without a traceback."""
    failed = run("preview", "--interest", text, code=1)
    assert failed.stderr.startswith("paperboy: ")
    assert failed.stderr.count("\n") == 1
    assert failed.stdout == ""


@pytest.fixture
def alice_is_due(app: Application, run: Run, papers_file: Path) -> None:
    """Add papers of today and a reader who is due."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(
            session, source, "Language Agents that Plan", now.date(), now, abstract="At last."
        )
        factories.add_subscriber(session, "alice@example.org", ["language agents"], now, hour=now.hour)


def test_explain(run: Run, alice_is_due: None) -> None:
    """It prints the verdict and the scores, as text or JSON. Unknown ids are one-line errors."""
    output = run("explain", "alice@example.org", "1").stdout
    assert output.startswith("Would be sent in the next digest")
    assert "language agents" in output
    assert "at least 0.33 is needed" in output
    assert re.search(r"relevance +weight +weighted +strength\n", output)
    assert "= strength × (1 + 0.2 × trend) × freshness" in output
    assert "Weighted = 1 − (1 − relevance)^weight." in output
    assert all(
        name.replace("_", " ") in output
        for name in MatchDetails.__dataclass_fields__
        if name != "rejection_reason"
    )
    interests = output[output.index("Interests, now") :]
    assert max(map(len, interests.splitlines())) <= 120, "it is read in a terminal, too"
    assert not re.search(r"similarity|left out|none|0\.000", output), "what parse_output nothing is left out"
    assert "next digest" in output
    explained = parse_output(run("explain", "alice@example.org", "1", "--json"))
    assert explained["rank"]["outcome"] == "picked"
    earlier = parse_output(run("explain", "1", "1", "--at", "2026-01-01", "--json"))
    assert earlier["ineligible_reason"].startswith("no source lists it before")
    output = run("explain", "1", "1", "--at", "2026-01-01").stdout
    assert "next digest" not in output
    assert "The paper, at 2026-01-01 00:00 UTC" in output
    assert "preferences and interests are the current ones" in " ".join(
        run("explain", "--help").stdout.split()
    )
    assert "no paper 99 in the archive" in run("explain", "1", "99", code=1).stderr
    run("subscribers", "set", "1", "--interest", "diffusion")
    verdict, note, blank, *_ = run("explain", "1", "1", "--at", "2026-01-01").stdout.splitlines()
    assert verdict.startswith("Not sent: ")
    assert "have changed since 2026-01-01 00:00 UTC (interests; first at" in note
    assert blank == ""
    assert "between 1991-08-14" in run("explain", "1", "1", "--at", "0001-01-01", code=1).stderr


def test_explain_a_sent_paper(run: Run, alice_is_due: None) -> None:
    """It shows the delivery with its score, and the current scores."""
    run("send")
    output = run("explain", "1", "1").stdout
    assert output.startswith("Sent on ")
    assert "score then" in output
    ledger, numbers = output.split("The paper, now", 1)
    assert "In the ledger" in ledger
    assert "relevance" in numbers
    assert "not a candidate" not in output
    assert "no digest" not in output
    assert "The relevance above" in output
    with time_machine.travel(clock.utcnow() + timedelta(days=40)):
        output = run("explain", "1", "1").stdout
    assert "Weighted = " in output
    assert "The relevance above" not in output, "no relevance is shown"


def test_send_one_to_me_first(run: Run, alice_is_due: None, mail_server: MailServer) -> None:
    """The subscriber gets nothing, and is still due."""
    mine = ("send-test", "alice@example.org", "--to", "me@example.org")
    assert "Sent the digest of alice@example.org to me@example.org." in run("subscribers", *mine).stdout
    assert [mail.recipient for mail in mail_server.messages] == ["me@example.org"]
    assert parse_output(run("deliveries", "--json")) == []
    mail_server.reply("rcpt", "550 5.7.1 No relaying", times=1)
    assert "The relay did not accept the email: 550" in run("subscribers", *mine, code=1).stderr
    run("subscribers", "set", "alice@example.org", "--interest", "zebrafish", "--max-trending", "0")
    assert "There would be no digest: " in run("subscribers", *mine, code=1).stderr


def test_send_the_last_digest_to_the_operators(
    run: Run, alice_is_due: None, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is due on the day on which a digest was sent, but a new wording can be looked at."""
    assert "give your address with --to" in run("subscribers", "send-test", "1", code=2).stderr
    monkeypatch.setenv("PAPERBOY_ADMIN_ADDRESSES", "ada@example.org,bob@example.org")
    run("send")
    output = run("subscribers", "send-test", "alice@example.org").stdout
    assert "Sent the digest of alice@example.org to ada@example.org." in output
    assert re.search(r"It is the last one, \d{4}-\d\d-\d\d. There would be none now: \w", output)
    sent, test = mail_server.messages
    assert (sent.recipient, test.recipient) == ("alice@example.org", "ada@example.org")
    assert "that Plan" in test.parsed().get_body(("plain",)).get_content()


def test_cancelled_digest_is_not_sent_as_a_test(
    app: Application, run: Run, alice_is_due: None, mail_server: MailServer
) -> None:
    """It may have been cancelled because of its papers."""
    run("sending", "pause", "--reason", "look at it")
    run("send")
    with app.db.write() as session:
        assert ledger.cancel(session, session.exec(select(Delivery.edition)).one()) == 1
    run("subscribers", "set", "1", "--interest", "zebrafish", "--max-trending", "0")
    error = run("subscribers", "send-test", "1", "--to", "me@example.org", code=1).stderr
    assert "There would be no digest: " in error
    assert mail_server.messages == []


def test_backtest(run: Run, alice_is_due: None) -> None:
    """It prints a line for each paper and for each day without papers, or JSON."""
    hour = clock.utcnow().hour
    output = run("backtest", "language agents", "video", "--days", "2").stdout
    assert output.count("nothing: ") == (1 if hour >= 8 else 2)
    days = parse_output(run("backtest", "language agents", "--days", "2", "--json"))
    assert [bool(day["digest"].get("sections")) for day in days] == [False, hour >= 8]
    assert "from 1 to 60" in run("backtest", "agents", "--days", "0", code=1).stderr


@pytest.mark.usefixtures("alice_is_due")
def test_send_and_dry_run(run: Run, mail_server: MailServer) -> None:
    """The dry run lists due readers and their digests; sending sends each once."""
    (due,) = parse_output(run("send", "--dry-run", "--json"))
    assert due["email"] == "alice@example.org"
    assert "alice@example.org" in run("send", "--dry-run").stdout
    assert mail_server.messages == []
    assert parse_output(run("send", "--json"))["sent"] == 1
    (mail,) = mail_server.messages
    assert mail.recipient == "alice@example.org"
    assert "No digest is due" in run("send").stdout
    assert len(mail_server.messages) == 1
    (rate,) = parse_output(run("sending", "rates", "--json"))
    assert [rate["receiver"], rate["sent"], rate["complaint_percent"]] == ["others", 1, 0]
    assert "others" in run("sending", "rates", "--days", "1").stdout


@pytest.mark.usefixtures("alice_is_due")
def test_report_of_a_day(run: Run, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Today's report has the digest that was just sent; yesterday's, the default, has not."""
    run("send")
    today = clock.utcnow().date()
    subject = parse_output(run("report", "--day", str(today), "--json"))["subject"]
    assert f"{today}: 1 digest sent" in subject
    assert f"{today - timedelta(days=1)}: 0 digests sent" in run("report").stdout
    assert "which is today" in run("report", "--day", "2100-01-01", code=1).stderr
    monkeypatch.setenv("PAPERBOY_ADMIN_ADDRESSES", "desk@example.org")
    assert parse_output(run("report", "--send", "--json")) == {"sent": 1, "operators": 1}


@pytest.mark.usefixtures("alice_is_due")
def test_send_while_paused(run: Run, app: Application, mail_server: MailServer) -> None:
    """The output has the reason and the command to resume."""
    assert "Sending is paused." in run("sending", "pause", "--reason", "the [key] is wrong").stdout
    result = run("send")
    assert "No digest is due" not in result.output
    assert "the [key] is wrong" in result.stderr
    assert "paperboy sending resume" in result.stderr
    status = parse_output(run("sending", "status", "--json"))
    assert [status["reconciliation"]["due"], status["reconciliation"]["pending"]] == [1, 1]
    assert [pause["reason"] for pause in status["pauses"]] == ["the [key] is wrong"]
    assert mail_server.messages == []
    with app.db.write() as session:
        session.exec(select(Delivery)).one().state = DeliveryState.UNCERTAIN
    assert "uncertain: it may have arrived" in run("sending", "status").stdout
    with app.db.write() as session:
        session.exec(select(Delivery)).one().state = DeliveryState.PENDING
    run("sending", "resume")
    run("sending", "resume", code=1)
    assert parse_output(run("send", "--json"))["sent"] == 1
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [entry.action for entry in entries] == ["sending.pause", "sending.resume"]


def test_status_of_a_warm_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output has the limit of today."""
    assert parse_output(run("sending", "status", "--json"))["warm_up"] is None
    monkeypatch.setenv("PAPERBOY_WARM_UP_START", clock.utcnow().date().isoformat())
    assert "each receiver gets at most 50 emails today" in " ".join(run("sending", "status").stdout.split())
    assert parse_output(run("sending", "status", "--json"))["warm_up"]["limit"] == 50


def test_send_reports_deferred_mails(run: Run, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deferred confirmation is reported with its next attempt."""
    assert parse_output(run("sending", "status", "--json"))["others"] == []
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PAPERBOY_SMTP_PORT", str(closed.getsockname()[1]))
        with app.db.write() as session:
            request = SignUp("alice@example.org", Preferences(interests=(Interest("agents"),)))
            factories.sign_up(session, request, "192.0.2.1", clock.utcnow())
        assert "1 email is waiting; the next attempt is at 20" in run("send").stdout
        output = run("send").stdout
    assert "No digest is due" not in output
    assert "1 email is waiting; the next attempt is at 20" in output
    assert "Confirmations: 1 email is waiting; the next attempt is at 20" in run("sending", "status").stdout
    run("sending", "pause", "--reason", "the relay moves")
    paused = "Confirmations: 1 email is waiting; none is attempted while sending is paused"
    assert paused in " ".join(run("sending", "status").stdout.split())
    resumed = (
        "A running service sends emails within a minute after they are due, and deferred ones at their next "
        "attempt."
    )
    output = run("sending", "resume").stdout
    assert resumed in output
    assert "The reason for the pause was: the relay moves." in output
    with app.db.write() as session:
        session.exec(select(Delivery)).one().next_attempt_at = clock.utcnow()
    assert "1 email is waiting; the next attempt is due" in run("sending", "status").stdout
    status = parse_output(run("sending", "status", "--json"))
    assert status["reconciliation"]["due"] == 0
    (waiting,) = status["others"]
    assert (waiting["kind"], waiting["mails"]) == ("confirm", 1)


def test_changes_by_operators(run: Run) -> None:
    """The newest first, by key or command, with their details."""
    run("sending", "pause", "--reason", "a wrong digest")
    run("sending", "resume")
    newest, oldest = parse_output(run("changes", "--actor", "cli", "--json"))
    assert (newest["action"], oldest["action"]) == ("sending.resume", "sending.pause")
    assert oldest["detail"] == {"reason": "a wrong digest"}
    assert parse_output(run("changes", "--actor", "somebody else", "--json")) == []
    (line,) = run("changes", "--action", "sending.pause").stdout.splitlines()[1:]
    assert re.search(r"cli +paused sending +all emails +reason: a wrong digest", line)
    assert len(run("changes", "--limit", "1").stdout.splitlines()) == 2


@pytest.mark.usefixtures("alice_is_due")
def test_who_complained(run: Run, app: Application) -> None:
    """Complaints come first. The addresses of erased subscribers are gone."""
    with app.db.write() as session:
        number = session.exec(select(Subscriber.id)).one()
        for kind, detail in (("complaint", "abuse"), ("bounce", "550 no such user")):
            session.add(Event(at=clock.utcnow(), kind=kind, subscriber_id=number, detail=detail))
    notices = parse_output(run("sending", "notices", "--json"))
    assert [(each["kind"], each["detail"]) for each in notices] == [
        ("complaint", "abuse"),
        ("bounce", "550 no such user"),
    ]
    assert re.search(r"complained +1 +alice@example.org +abuse", run("sending", "notices").stdout)


@pytest.mark.usefixtures("alice_is_due")
def test_sample_of_an_edition(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digests that wait for approval are shown with their papers."""
    monkeypatch.setenv("PAPERBOY_APPROVE_EDITIONS", "true")
    run("send")
    (pause,) = parse_output(run("sending", "status", "--json"))["pauses"]
    (drawn,) = parse_output(run("sending", "sample", pause["edition"], "--json"))
    assert drawn["email"] == "alice@example.org"
    assert drawn["sections"][0]["picks"][0]["title"] == "Language Agents that Plan"
    assert "Language Agents that Plan" in run("sending", "sample", pause["edition"]).stdout
    assert parse_output(run("sending", "sample", "1999-01-01", "--json")) == []
    assert parse_output(run("sending", "sample", "--first-digests", "--json")) == []
    assert "or --first-digests" in run("sending", "sample", code=1).stderr


def test_empty_sample_says_why(run: Run, app: Application, alice_is_due: None) -> None:
    """Nothing waits any more, nothing is planned yet, nothing was due, or there is no such edition."""
    today = clock.utcnow().date()
    coming = str(today + timedelta(days=1))
    assert f"No digest of the edition {coming} has been planned yet." in sample_error(run, coming)
    absent = "Any digests of the edition 1999-01-01 were deleted after 400 days."
    assert absent in sample_error(run, "1999-01-01")
    past = str(today - timedelta(days=3))
    assert f"No digest was planned for the edition {past}." in sample_error(run, past)
    assert "No first digest is held." in sample_error(run, "--first-digests")
    run("send")
    edition = parse_output(run("deliveries", "--json"))[0]["edition"]
    assert f"No digest of the edition {edition} is still waiting: 1 sent." in sample_error(run, edition)
    with app.db.write() as session:
        row = session.exec(select(Delivery)).one()
        row.state, row.next_attempt_at = DeliveryState.PENDING, None
    assert "Only held first digests are waiting (1)" in sample_error(run, edition)


def sample_error(run: Run, argument: str) -> str:
    """Return what `sending sample` prints if it has nothing to show."""
    result = run("sending", "sample", argument)
    assert result.stdout == ""
    return result.stderr


def test_sample_of_held_first_digests(run: Run, app: Application) -> None:
    """They are shown with their subscribers, and no more once they are released."""
    now = clock.utcnow()
    digest = sample_digest.digest("2026-11-19")
    with app.db.write() as session:
        alice = factories.add_subscriber(session, "alice@example.org", ["robots"], now)
        ledger.pause(session, ledger.IMPORTED, now, ledger.FIRST_DIGESTS)
        held = ledger.Entry(alice, "2026-11-19", now, digest, give_up_at=now + timedelta(days=1), held=True)
        (number,) = ledger.add_entries(session, [held], now)
    (drawn,) = parse_output(run("sending", "sample", "--first-digests", "--json"))
    assert (drawn["delivery_id"], drawn["email"]) == (number, "alice@example.org")
    assert drawn["sections"][0]["picks"][0]["title"] == digest.picks[0].title
    assert "alice@example.org" in run("sending", "sample", "--first-digests").stdout
    for command in (("subscribers", "why", "1"), ("deliveries",)):
        assert ledger.IMPORTED in " ".join(run(*command).stdout.split())
        listed = parse_output(run(*command, "--json"))
        [mail] = listed["mails"] if isinstance(listed, dict) else listed
        assert mail["reason"] == ledger.IMPORTED
    run("sending", "resume", "--first-digests")
    assert parse_output(run("deliveries", "--json"))[0]["reason"] == ""
    assert parse_output(run("sending", "sample", "--first-digests", "--json")) == []


def test_resume_of_an_edition_or_of_first_digests(run: Run, app: Application) -> None:
    """Both at once are refused, and nothing is resumed."""
    now = clock.utcnow()
    with app.db.write() as session:
        for scope in (ledger.FIRST_DIGESTS, "2026-11-20"):
            ledger.pause(session, "to be seen first", now, scope)
    both = run("sending", "resume", "--first-digests", "--edition", "2026-11-20", code=1)
    assert "Give either --edition or --first-digests" in both.stderr
    with app.db.read() as session:
        assert len(ledger.pauses(session)) == 2


@pytest.mark.usefixtures("alice_is_due")
def test_cancel_an_edition(run: Run, app: Application, mail_server: MailServer) -> None:
    """Unsent digests are skipped; an unknown edition is an error."""
    run("sending", "pause", "--reason", "a wrong digest")
    run("send")
    with app.db.read() as session:
        edition = session.exec(select(Delivery.edition)).one()
    assert "1 email of" in run("sending", "cancel", edition).stdout
    status = parse_output(run("sending", "status", "--edition", edition, "--json"))
    assert status["reconciliation"]["skipped"] == 1
    assert "were deleted after 400 days" in run("sending", "cancel", "1999-01-01", code=1).stderr
    tomorrow = str(clock.utcnow().date() + timedelta(days=1))
    coming = run("sending", "cancel", tomorrow, code=1).stderr
    assert f"No digest of the edition {tomorrow} has been planned yet." in coming
    run("sending", "resume")
    run("send")
    assert mail_server.messages == []


def test_resend_of_an_unknown_delivery_is_an_error(run: Run) -> None:
    assert "no delivery 7" in run("sending", "resend", "7", code=1).stderr


@pytest.mark.usefixtures("alice_is_due")
def test_sigterm_while_sending(run: Run, mail_server: MailServer) -> None:
    """The email in flight gets its reply, and the previous signal handlers are restored."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: signals.append(number))
    mail_server.reply("end", "250 queued", first=lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        assert parse_output(run("send", "--json"))["sent"] == 1
        assert signals == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_worker_stops_on_a_signal_that_another_thread_receives(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may deliver a signal to any thread, but its handler runs in the main thread."""
    monkeypatch.setattr(schedule, "JOBS", ())
    is_waiting, has_stopped, is_late = (threading.Event() for _ in range(3))

    def sleep(seconds: float) -> None:
        is_waiting.set()
        time.sleep(seconds)

    def send_signal() -> None:
        waits = is_waiting.wait(60)
        if signal.getsignal(signal.SIGTERM) == before:  # it would end the tests
            return
        signal.pthread_kill(threading.get_ident() if waits else main_thread, signal.SIGTERM)
        if not has_stopped.wait(30):
            is_late.set()
            signal.pthread_kill(main_thread, signal.SIGTERM)

    before, main_thread = signal.getsignal(signal.SIGTERM), threading.get_ident()
    monkeypatch.setattr(worker, "time", SimpleNamespace(sleep=sleep))
    sender = threading.Thread(target=send_signal)
    sender.start()
    run("worker")
    has_stopped.set()
    sender.join()
    assert is_waiting.is_set()
    assert not is_late.is_set()


@pytest.mark.once
@pytest.mark.parametrize(("is_ignored", "stops"), [(False, True), (True, False)])
def test_terminal_closes(app: Application, is_ignored: bool, stops: bool) -> None:
    """The shell and the kernel each send SIGHUP. A command that was started with nohup ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        with graceful_shutdown(app):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGHUP)
            assert app.stopping.is_set() == stops
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("alice_is_due")
def test_send_with_failed_mails_has_exit_code_1(run: Run, mail_server: MailServer) -> None:
    """The counts include the failures."""
    mail_server.reply("rcpt", "550 5.1.1 no such user")
    assert parse_output(run("send", "--json", code=1))["failed"] == 1


# --- model


@pytest.mark.usefixtures("trained_early")
def test_train_and_list_models(run: Run, app: Application) -> None:
    """With too few papers the reason is shown; a corrupt model is listed and the one before it used."""
    assert "too few papers" in run("model", "train").stdout
    assert "The bundled model is in use" in run("model", "list").stdout
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_unlisted_papers(session, MIN_PAPERS, now)
    assert parse_output(run("model", "train", "--json")) == {
        "model_id": 1,
        "papers": MIN_PAPERS,
        "why_not": "",
    }
    with app.db.write() as session:
        factories.add_unlisted_papers(session, 1, now, first=MIN_PAPERS)
    assert f"Model 2 was trained on {MIN_PAPERS + 1} papers" in run("model", "train").stdout
    with app.db.write() as session:
        session.get_one(TrainedModel, 2).data = b"torn"
    listed = {
        each["id"]: (not each["fault"], each["in_use"])
        for each in parse_output(run("model", "list", "--json"))
    }
    assert listed == {2: (False, False), 1: (True, True)}
    output = run("model", "list").stdout
    assert "refused: The stored bytes do not match their SHA-256 checksum." in output
    assert "in use" in output


# --- subscribers


def test_add_subscriber(run: Run, app: Application) -> None:
    """The subscriber is active immediately, because consent was given elsewhere. It is in the audit log."""
    document = parse_output(
        run("subscribers", "add", "Bob@example.org", "--interest", "robots", "--zone", "Asia/Tokyo", "--json")
    )
    assert document["email"] == "bob@example.org"
    with app.db.read() as session:
        bob = session.exec(select(Subscriber)).one()
        assert (bob.state, bob.zone, bob.hour) == ("active", "Asia/Tokyo", 8)
        assert [row.action for row in session.exec(select(AuditEntry))] == ["subscriber.add"]
    run("subscribers", "set", "1", "--zone", "berlin", "--cadence", "Weekly", "--weekday", "Friday")
    with app.db.read() as session:
        bob = session.exec(select(Subscriber)).one()
        assert (bob.zone, bob.cadence, bob.weekday) == ("Europe/Berlin", "weekly", 4)
    assert "not a weekday" in run("subscribers", "set", "1", "--weekday", "someday", code=2).stderr
    assert (
        "Mars"
        in run("subscribers", "add", "c@example.org", "--interest", "x", "--zone", "Mars/X", code=1).stderr
    )
    assert (
        "already registered" in run("subscribers", "add", "bob@example.org", "--interest", "x", code=1).stderr
    )


def test_defaults_of_new_subscribers(
    run: Run, app: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands and imports use them for what they leave out. Existing subscribers keep their preferences."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    monkeypatch.setenv("PAPERBOY_DEFAULT_MAX_PAPERS", "5")
    monkeypatch.setenv("PAPERBOY_DEFAULT_CADENCE", "weekly")
    run("subscribers", "add", "bob@example.org", "--interest", "robots")
    chosen = ("--cadence", "daily", "--max-papers", "7")
    run("subscribers", "add", "carol@example.org", "--interest", "robots", *chosen)
    file = tmp_path / "readers.csv"
    file.write_text("email,interests,cadence\ndave@example.org,robots,\nerin@example.org,robots,daily\n")
    run("subscribers", "import", str(file))
    with app.db.read() as session:
        rows = session.exec(select(Subscriber).order_by(col(Subscriber.email)))
        assert [(row.cadence, row.max_papers) for row in rows] == [
            ("daily", 10), ("weekly", 5), ("daily", 7), ("weekly", 5), ("daily", 5),
        ]  # fmt: skip


def test_import_reports_and_skips_bad_rows(run: Run, app: Application, tmp_path: Path) -> None:
    """The file has a BOM, semicolons and CRLF, as written by spreadsheets."""
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
    report = parse_output(run("subscribers", "import", str(file), "--json", code=1))
    assert (report["added"], report["rejected"]) == (2, 4)
    assert [(each["row"], each["email"], bool(each["reason"])) for each in report["rejections"]] == [
        (3, "not an address", True), (4, "bob@example.org", True),
        (5, "carol@example.org", True), (6, "alice@example.org", True),
    ]  # fmt: skip
    with app.db.read() as session:
        imported = session.exec(select(Subscriber).order_by(col(Subscriber.id))).all()
    assert [(each.email, each.hour, each.cadence, each.max_trending, each.muted) for each in imported] == [
        ("alice@example.org", 7, "weekly", 0, ["games", "cat:cs.CR"]),
        ("dave@example.org", 8, "daily", 3, []),
    ]
    assert (
        "hour must be a full hour, such as 8 or 08:00, not “seven”"
        in run("subscribers", "import", str(file), code=1).stdout
    )
    file.write_text("email,interests,cadence\nerin@example.org,robots,hourly\n")
    assert (
        "cadence must be daily or weekdays or weekly"
        in run("subscribers", "import", str(file), code=1).stdout
    )


def test_stopped_import_says_how_to_continue(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends an import between two batches."""
    file = tmp_path / "readers.csv"
    file.write_text("email,interests\n" + "".join(f"r{number}@example.org,robots\n" for number in range(5)))
    monkeypatch.setattr(csv_transfer, "IMPORT_BATCH", 2)
    store = csv_transfer.bulk.add_many

    def interrupt(*values: Any) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return store(*values)

    with monkeypatch.context() as patch:
        patch.setattr(csv_transfer.bulk, "add_many", interrupt)
        stopped = run("subscribers", "import", str(file), code=1)
    assert "Subscribers added: 2." in stopped.stdout
    assert "Stopped after 2 of 5 rows." in stopped.stderr
    report = parse_output(run("subscribers", "import", str(file), "--json", code=1))
    assert (report["added"], report["rejected"], report["complete"]) == (3, 2, True)


def test_version(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no valid settings."""
    monkeypatch.setenv("PAPERBOY_BASE_URL", "not a URL")
    version = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    assert run("--version").stdout == f"paperboy {version}\n"


def test_import_detects_semicolons(run: Run, tmp_path: Path) -> None:
    """The header line decides."""
    file = tmp_path / "readers.csv"
    file.write_text('email;interests;hour\nalice@example.org;"agents; robots";7\n')
    assert parse_output(run("subscribers", "import", str(file), "--json"))["added"] == 1
    assert parse_output(run("subscribers", "export", "--json"))[0]["interests"] == ["agents", "robots"]


def test_import_ignores_the_case_of_column_names(run: Run, tmp_path: Path) -> None:
    """Spreadsheets and directories capitalise them. The names of other columns are reported as written."""
    file = tmp_path / "readers.csv"
    file.write_text("Email, Interests,MAX_PAPERS,Department\nalice@example.org,agents,3,Library\n")
    document = parse_output(run("subscribers", "import", str(file), "--json"))
    assert document["added"] == 1
    assert document["ignored_columns"] == ["Department"]
    (alice,) = parse_output(run("subscribers", "export", "--json"))
    assert (alice["email"], alice["interests"], alice["max_papers"]) == ("alice@example.org", ["agents"], 3)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "is empty"),
        ("name,age\nalice,7\n", "has no column “email”"),
        ("email,name\na@example.org,Ada\n", "has no column “interests”"),
        ("email,interests\n", "has no subscribers"),
    ],
)
def test_import_of_an_empty_file_is_refused(content: str, fault: str, run: Run, tmp_path: Path) -> None:
    """It must not look like a success."""
    file = tmp_path / "readers.csv"
    file.write_text(content)
    error = run("subscribers", "import", str(file), code=1).stderr
    assert fault in " ".join(error.split())


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"email,interests\nb\xe9b@example.org,agents\n", "is not text in UTF-8"),
        (b'email,interests\n"a,b\n', "cannot be read as CSV"),
    ],
)
def test_import_of_an_invalid_csv_is_a_one_line_error(
    content: bytes, fault: str, run: Run, tmp_path: Path
) -> None:
    """Test another encoding and an unclosed quotation mark."""
    file = tmp_path / "readers.csv"
    file.write_bytes(content)
    failed = run("subscribers", "import", str(file), code=1)
    assert fault in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_export_of_subscribers(run: Run, app: Application, tmp_path: Path) -> None:
    """Cells are escaped, so that a spreadsheet does not run them as formulas."""
    with app.db.write() as session:
        interests = ["-negative thoughts", '"agents"']
        factories.add_subscriber(
            session, "=cmd@example.org", interests, clock.utcnow(), muted=["games", "cat:cs.CR"]
        )
        factories.add_subscriber(session, "gone@example.org", [], clock.utcnow(), state="erased")
    text = run("subscribers", "export").stdout
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["email"] == "'=cmd@example.org"
    assert row["interests"].startswith("'-negative")
    assert (row["cadence"], row["muted"]) == ("daily", "games; cat:cs.CR")
    (document,) = parse_output(run("subscribers", "export", "--json"))
    assert (document["email"], document["interests"]) == (
        "=cmd@example.org",
        ["-negative thoughts", '"agents"'],
    )


def test_exported_subscribers_can_be_imported(run: Run, app: Application, tmp_path: Path) -> None:
    """Weights, quotas, pauses and consent survive. Nobody who left becomes active again."""
    now = clock.utcnow()
    with app.db.write() as session:
        alice = subscribers.add(
            session,
            "alice@example.org",
            Preferences(
                interests=(Interest("-games agents", 2.0, 3), Interest('"world models"')),
                hour=7,
                paper_updates=False,
            ),
            now,
        )
        subscribers.pause(session, alice, None, now)
        for name in ("bob", "carol"):
            subscribers.add(session, f"{name}@example.org", Preferences(interests=(Interest("robots"),)), now)
        subscribers.unsubscribe(session, subscribers.find(session, "bob@example.org").id or 0, now)
    file = tmp_path / "all.csv"
    file.write_text(run("subscribers", "export").stdout)
    assert [row["paper_updates"] for row in csv.DictReader(io.StringIO(file.read_text()))] == [
        "no",
        "yes",
        "yes",
    ]
    before = {row["email"]: row for row in parse_output(run("subscribers", "export", "--json"))}
    with app.db.write() as session:
        for rows in (Event, InterestRow, Subscriber):
            session.execute(delete(rows))
    report = parse_output(run("subscribers", "import", str(file), "--json", code=1))
    assert (report["added"], report["ignored_columns"]) == (2, [])
    assert [(each["row"], each["reason"]) for each in report["rejections"]] == [
        (3, "the state is unsubscribed: only active and paused subscribers are imported")
    ]
    after = {row["email"]: row for row in parse_output(run("subscribers", "export", "--json"))}
    changing = {"id", "created_at", "confirmed_at"}
    for email in ("alice@example.org", "carol@example.org"):
        assert {name: value for name, value in after[email].items() if name not in changing} == {
            name: value for name, value in before[email].items() if name not in changing
        }


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a@example.org,robots,1; 2,,", "2 weights for 1 interest: give at most one for each"),
        ("a@example.org,robots,heavy,,", "weights must be numbers"),
        ("a@example.org,robots,9,,", "weight"),
        ("a@example.org,robots,nan,,", "weights must be numbers"),
        ("a@example.org,robots,,gone,", "state must be"),
        ("a@example.org,robots,,,next year", "consent_at must be a time"),
        ("a@example.org,robots,,,2999-01-01", "in the future"),
        (
            "a@example.org,robots,,,0001-01-01T00:00:00",
            "before 1990: if you do not know the time, empty the cell",
        ),
        ("a@example.org,robots,,,,surplus", "more cells"),
    ],
)
def test_import_rejects_rows(row: str, reason: str, run: Run, tmp_path: Path) -> None:
    """Nothing of a rejected row is stored."""
    file = tmp_path / "readers.csv"
    file.write_text(f"email,interests,weights,state,consent_at\n{row}\n")
    (rejection,) = parse_output(run("subscribers", "import", str(file), "--json", code=1))["rejections"]
    assert reason in rejection["reason"]
    assert parse_output(run("subscribers", "export", "--json")) == []


@pytest.mark.usefixtures("alice_is_due")
def test_import_holds_the_first_digests(run: Run, tmp_path: Path, mail_server: MailServer) -> None:
    """An operator first sees what would be sent. Later, only the first digests of new subscribers wait."""
    file = tmp_path / "readers.csv"

    def imported(name: str, *options: str) -> bool:
        file.write_text(f"email,interests\n{name}@example.org,language agents\n")
        return bool(parse_output(run("subscribers", "import", str(file), "--json", *options))["held"])

    assert not imported("a", "--no-hold")
    would_get = run("send", "--dry-run", "--all").stdout
    assert re.search(r"a@example.org +Language Agents that Plan", would_get)
    assert "only with --dry-run" in run("send", "--all", code=2).stderr
    assert imported("b")
    assert "subscribers were imported" in run("send").stderr
    assert mail_server.messages == []
    run("sending", "resume")
    run("send")
    assert mail_server.messages
    assert imported("c")
    message = "First digests are held, but none is waiting yet."
    assert message in sample_error(run, "--first-digests")
    status = run("sending", "status").stderr
    assert "Sending of first digests has been paused" in status
    assert "paperboy sending resume --first-digests" in status
    run("sending", "resume", "--first-digests")
    assert not imported("d", "--no-hold")
    assert imported("e", "--hold")
    assert "Sending has been paused" in run("sending", "status").stderr


def test_resend_needs_a_delivery_or_an_edition(run: Run) -> None:
    for arguments in ((), ("1", "--edition", "2026-11-20")):
        assert "a delivery or --edition" in run("sending", "resend", *arguments, code=1).stderr
    assert "again: 0" in run("sending", "resend", "--edition", "2026-11-20").stdout


def test_failed_digests_that_cannot_be_sent_again(run: Run) -> None:
    """The command says why."""
    output = run("sending", "retry", "2026-11-20").stdout
    assert "again: 0.\nA failed digest cannot be sent again if it may have arrived" in output


def test_coming_edition_is_held(run: Run) -> None:
    assert "is over: choose a later one" in run("sending", "hold", "2020-01-01", code=1).stderr
    assert "check the year" in run("sending", "hold", "2199-01-01", code=1).stderr
    coming = (clock.utcnow() + timedelta(days=3)).date().isoformat()
    assert "will wait for approval" in run("sending", "hold", coming).stdout
    run("sending", "pause", "--reason", "the relay moves")
    resumed = run("sending", "resume", "--edition", coming).stdout
    assert "is resumed. Its emails wait until all sending is resumed, too." in resumed


@pytest.mark.once
@pytest.mark.parametrize("edition", ["2026-11-2", "2026", "2026-11-20x", "20.11.2026", "2026-13-01"])
@pytest.mark.parametrize(
    "command",
    [
        "arrived --edition", "cancel", "hold", "pause --reason test --edition", "resend --edition",
        "resume --edition", "retry", "sample", "status --edition",
    ],
)  # fmt: skip
def test_mistyped_edition_is_refused(run: Run, command: str, edition: str) -> None:
    """Otherwise, operators would believe that the intended edition is paused, released or empty."""
    error = run("sending", *command.split(), edition, code=2).stderr
    assert f"“{edition}” is not an edition: enter a date, such as 2026-11-20" in " ".join(
        re.sub("[│]", " ", error).split()
    )


@pytest.mark.once
def test_any_existing_pause_can_be_ended(run: Run, app: Application) -> None:
    """0.1.0 also stored pauses of mistyped editions. An empty option does not end the pause of all."""
    with app.db.write() as session:
        ledger.pause(session, "a test", clock.utcnow())
        ledger.pause(session, "a typing mistake", clock.utcnow(), "29.11.2026")
    output = run("sending", "resume", "--edition", "29.11.2026").stdout
    assert "The edition 29.11.2026 is resumed." in output
    run("sending", "resume", "--edition", "29.11.2026", code=2)
    run("sending", "resume", "--edition", "", code=2)
    with app.db.read() as session:
        assert ledger.is_paused(session)


def test_only_planned_and_upcoming_editions_can_be_paused(run: Run, app: Application) -> None:
    """A mistyped edition is reported, because the intended one would be sent. A reason is required."""
    now = clock.utcnow()
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "reader@example.org", ["robots"], now)
        session.add(Delivery(subscriber_id=reader, edition="2026-11-02", due_at=now, created_at=now))

    def pause(edition: str, code: int = 0) -> Result:
        return run("sending", "pause", "--reason", "a wrong paper", "--edition", edition, code=code)

    assert "2026-11-01 is over" in pause("2026-11-01", code=1).stderr
    assert "check the year" in pause("2199-11-02", code=1).stderr
    assert "The edition 2026-11-02 is paused." in pause("2026-11-02").stdout
    coming = (now + timedelta(days=3)).date().isoformat()
    assert f"The edition {coming} is paused." in pause(coming).stdout
    assert "a reason of 3 to 500 characters" in run("sending", "pause", "--reason", " ", code=1).stderr


def test_recording_an_arrival_needs_a_delivery_or_an_edition(run: Run) -> None:
    assert "a delivery or --edition" in run("sending", "arrived", code=1).stderr
    assert "no delivery 7" in run("sending", "arrived", "7", code=1).stderr
    assert "0 emails recorded" in run("sending", "arrived", "--edition", "2026-11-20").stdout


def test_uncertain_mails_that_arrived_are_recorded_as_sent(run: Run, app: Application) -> None:
    """By their number, and all of an edition. Each command is in the audit log."""
    now = clock.utcnow()
    uncertain, sent = DeliveryState.UNCERTAIN, DeliveryState.SENT
    with app.db.write() as session:
        for number, edition in enumerate(("2026-11-19", "2026-11-19", "2026-11-20", "2026-11-21"), start=1):
            reader = factories.add_subscriber(session, f"reader{number}@example.org", ["robots"], now)
            row = Delivery(id=number, subscriber_id=reader, edition=edition, state=uncertain)
            row.due_at = row.created_at = now
            session.add(row)

    def states() -> list[DeliveryState]:
        with app.db.read() as session:
            return list(session.exec(select(Delivery.state).order_by(col(Delivery.id))))

    assert "1 email recorded" in run("sending", "arrived", "3").stdout
    assert states() == [uncertain, uncertain, sent, uncertain]
    assert "is sent: only uncertain" in run("sending", "arrived", "3", code=1).stderr
    assert "2 emails recorded" in run("sending", "arrived", "--edition", "2026-11-19").stdout
    assert states() == [sent, sent, sent, uncertain]
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    assert [(entry.action, entry.subject, entry.detail) for entry in entries] == [
        ("delivery.confirm_arrival", "3", {}),
        ("edition.confirm_uncertain", "2026-11-19", {"confirmed": 2}),
    ]


def test_import_names_unknown_columns(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "readers.csv"
    file.write_text("email,interests,colour,id\na@example.org,robots,red,7\n")
    printed = run("subscribers", "import", str(file)).stderr
    assert "Unknown columns were ignored: colour. If one of them says who left the other service" in printed


def test_all_muted_queries_are_removed(run: Run) -> None:
    run("subscribers", "add", "alice@example.org", "--interest", "robots", "--mute", "games")
    run("subscribers", "set", "1", "--mute", "")
    assert parse_output(run("subscribers", "show", "1", "--json"))["muted"] == []


def test_json_has_one_format_of_times_and_one_order(run: Run, app: Application) -> None:
    """Some times had no “T”, which many programs cannot read. Keys are in the order of the columns."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    shown = run("subscribers", "show", "1", "--json").stdout
    times = re.findall(r'"(\d{4}-\d\d-\d\d[T ][^"]*)"', shown)
    assert len(times) > 2
    assert [time for time in times if not re.fullmatch(r"[\d-]{10}T[\d:.]+Z", time)] == []
    with app.db.read() as session:
        row = session.get_one(Subscriber, 1)
    assert list(row.model_dump()) == [*Subscriber.model_fields]


def test_change_a_subscriber(run: Run, app: Application) -> None:
    """What is not given stays. Each change is in the audit log."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots", "--mute", "games")
    assert "next digest" in run("subscribers", "set", "1", "--hour", "9", "--interest", "agents").stdout
    assert re.search("preferences changed +time of day, interests", run("subscribers", "why", "1").stdout)
    shown = parse_output(run("subscribers", "show", "1", "--json"))
    assert (shown["hour"], shown["interests"], shown["muted"]) == (9, ["agents"], ["games"])
    assert "at least one option" in run("subscribers", "set", "1", code=1).stderr
    assert (
        "Invalid value for '--hour': must be" in run("subscribers", "set", "1", "--hour", "24", code=2).stderr
    )
    assert "not a known time zone" in run("subscribers", "set", "1", "--zone", "Mars", code=1).stderr
    assert "enter your email address" in run("subscribers", "set", "1", "--email", "", code=1).stderr
    day = f"{clock.utcnow() + timedelta(days=9):%Y-%m-%d}"
    assert f"paused until {day}" in run("subscribers", "pause", "1", "--until", day).stdout
    assert "paused until they resume" in run("subscribers", "pause", "1").stdout
    assert "is active" in run("subscribers", "resume", "1").stdout
    assert "is unsubscribed" in run("subscribers", "unsubscribe", "alice@example.org").stdout
    question = run("subscribers", "erase", "1", code=1).stdout
    assert question.startswith("Erase alice@example.org?")
    assert "nobody can sign up with it." in question
    assert "Erased subscriber 1" in run("subscribers", "erase", "1", "--yes").stdout
    with app.db.read() as session:
        actions = session.exec(select(AuditEntry.action).order_by(col(AuditEntry.id))).all()
    assert actions == [
        f"subscriber.{action}"
        for action in ("add", "change", "pause", "pause", "resume", "unsubscribe", "erase")
    ]


def test_kept_interest_keeps_its_weight_and_quota(run: Run, app: Application) -> None:
    """No option sets them, so the command must not reset them either, if only capitals or quotes differ."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    robots, video = Interest("Robots", weight=2.0, quota=3), Interest('"video generation"', weight=0.5)
    acronym, word = Interest("RAG", weight=3.0), Interest("rag", weight=0.5)
    stored = (robots, video, acronym, word)
    with app.db.write() as session:
        before = subscribers.preferences_of(session, subscribers.get(session, 1))
        subscribers.change(session, 1, replace(before, interests=stored), clock.utcnow())
    texts = ("agents", " robots ", "“video  generation”", "RAG", "rag")
    run("subscribers", "set", "1", *(part for text in texts for part in ("--interest", text)))
    with app.db.read() as session:
        after = subscribers.preferences_of(session, subscribers.get(session, 1))
    assert after.interests == (Interest("agents"), replace(robots, text="robots"), video, acronym, word)


def test_interest_in_other_case_keeps_its_weight_and_quota(run: Run, app: Application) -> None:
    """Acronyms in capitals and in lower case are two interests, so both can be stored."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    agents, acronym, word = Interest("LLM agents", 3.0, quota=2), Interest("RAG", 2.0), Interest("rag", 0.5)

    def change(stored: tuple[Interest, ...], *texts: str) -> tuple[Interest, ...]:
        with app.db.write() as session:
            before = subscribers.preferences_of(session, subscribers.get(session, 1))
            subscribers.change(session, 1, replace(before, interests=stored), clock.utcnow())
        run("subscribers", "set", "1", *(part for text in texts for part in ("--interest", text)))
        with app.db.read() as session:
            return subscribers.preferences_of(session, subscribers.get(session, 1)).interests

    assert change((agents,), "llm agents") == (replace(agents, text="llm agents"),)
    assert change((word,), "RAG", "rag") == (Interest("RAG"), word), "the other one stays"
    assert change((acronym, word), "rag") == (word,)
    two = Interest("agents with RAG or LLM", 3.0), Interest("agents with RAG or llm", 2.0)
    text = "agents with rag or LLM"
    assert change(two, text) == (Interest(text),), "either could have been meant"


def test_change_of_a_former_subscriber(run: Run) -> None:
    """They get no digests. Only they can subscribe again."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    run("subscribers", "unsubscribe", "1")
    assert "Their state is unsubscribed." in run("subscribers", "set", "1", "--hour", "9").stdout
    refused = run("subscribers", "add", "alice@example.org", "--interest", "robots", code=1).stderr
    assert "only its owner can subscribe again" in " ".join(refused.split())


def test_change_an_address(run: Run, app: Application, mail_server: MailServer) -> None:
    """The email to the old address is sent at once. A confirmed address needs no mail."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    requested = run("subscribers", "set", "1", "--email", "alice@new.example").stdout
    assert "takes effect once it has been confirmed from both mailboxes" in requested
    assert [mail.recipient for mail in mail_server.messages] == ["alice@example.org"]
    moved = run("subscribers", "set", "1", "--email", "alice@new.example", "--email-confirmed").stdout
    assert "Changed alice@new.example." in moved
    assert "already" in run("subscribers", "set", "1", "--email", "alice@new.example", code=1).stderr
    with app.db.read() as session:
        details = [(entry.action, entry.detail) for entry in session.exec(select(AuditEntry))]
    assert sorted(action for action, _ in details)[1:] == [
        "subscriber.replace_address",
        "subscriber.request_address",
    ]
    assert "@" not in str(details)


@pytest.mark.usefixtures("alice_is_due")
def test_history_of_a_subscriber(run: Run, mail_server: MailServer) -> None:
    """It shows what they would get, what they got, and a suppression. So does `explain` without a paper."""
    assert re.search(r"now +Language Agents that Plan", run("subscribers", "why", "alice@example.org").stdout)
    run("send")
    run("suppressions", "add", "alice@example.org", "--reason", "asked by phone")
    shown = run("subscribers", "why", "alice@example.org").stdout
    assert re.search(r"sent +Language Agents that Plan", shown)
    assert "asked by phone" in shown
    assert "only hashes" not in run("suppressions", "list").stderr
    run("suppressions", "add", "stranger@example.org", "--reason", "asked by phone")
    assert "stores only hashes" in run("suppressions", "list").stderr
    (first,) = re.findall(r"^now +(.*)", shown, re.MULTILINE)
    assert first.startswith("nothing is sent: the address is suppressed")
    assert shown.index("nothing is sent") < shown.index("next digest") < shown.index("otherwise")
    assert run("explain", "alice@example.org").stdout == shown
    assert re.search(r"suppressed +since .*: asked by phone", run("subscribers", "show", "1").stdout)
    assert parse_output(run("subscribers", "show", "1", "--json"))["suppressed"] == "asked by phone"
    document = parse_output(run("subscribers", "why", "1", "--json"))
    assert (document["suppressed"], document["mails"][0]["state"]) == ("asked by phone", "sent")
    assert document["now"]["skipped"]
    assert document["obstacle"].startswith("the address is suppressed")
    run("suppressions", "lift", "alice@example.org", "--reason", "asked again")
    run("subscribers", "unsubscribe", "alice@example.org")
    ended = run("subscribers", "why", "alice@example.org").stdout
    assert "nothing is sent: the subscription is unsubscribed" in ended
    assert "no subscriber" in run("subscribers", "why", "bob@example.org", code=1).stderr


@pytest.mark.usefixtures("alice_is_due")
def test_list_deliveries_and_runs(run: Run) -> None:
    run("send")
    (mail,) = parse_output(run("deliveries", "--state", "sent", "--subscriber", "1", "--json"))
    assert mail["subject"].startswith("Language Agents")
    assert parse_output(run("deliveries", "--state", "failed", "--json")) == []
    assert re.search(rf"{mail['edition']} +sent", run("deliveries", "--edition", mail["edition"]).stdout)
    (sending,) = parse_output(run("runs", "--job", "send", "--json"))
    assert sending["counts"]["sent"] == 1
    assert "1 sent" in run("runs", str(sending["id"])).stdout
    assert parse_output(run("runs", "--failed", "--json")) == []
    assert "no run 4711" in run("runs", "4711", code=1).stderr


def test_show_and_delete_feedback(run: Run, app: Application) -> None:
    """Readers are given by address or id; unknown ones are one-line errors."""
    now = clock.utcnow()
    with app.db.write() as session:
        alice = factories.add_subscriber(session, "alice@example.org", ["robots"], now)
        paper = factories.add_paper(
            session, factories.add_source(session, now), "[red]Plans[/red]", now.date(), now
        )
        subscribers.set_feedback(session, alice, paper, True, now)
        subscribers.ignore_author(session, alice, "Ada Lovelace")
    document = parse_output(run("subscribers", "show", str(alice), "--json"))
    assert (document["email"], document["interests"]) == ("alice@example.org", ["robots"])
    assert document["ignored_authors"] == ["Ada Lovelace"]
    assert [(each["title"], each["liked"]) for each in document["feedback"]] == [("[red]Plans[/red]", True)]
    output = run("subscribers", "show", "Alice@example.org").stdout
    assert re.search(r"more like this +\[red\]Plans\[/red\]", output)
    assert "daily at 8:00, UTC" in output
    assert "consent_version" not in output
    for _ in range(2):
        assert "alice@example.org" in run("subscribers", "delete-feedback", "alice@example.org").stdout
    assert parse_output(run("subscribers", "show", str(alice), "--json"))["feedback"] == []
    for name in ("4711", "nobody@example.org", "nobody"):
        for command in ("show", "delete-feedback"):
            assert run("subscribers", command, name, code=1).stderr


def test_list_subscribers_page_by_page(run: Run, app: Application) -> None:
    """Subscribers are listed by number, all or in one state."""
    now = clock.utcnow()
    with app.db.write() as session:
        alice, bob, _ = (
            factories.add_subscriber(session, f"{name}@example.org", ["robots"], now, state=state)
            for name, state in (("alice", "active"), ("bob", "paused"), ("carol", "active"))
        )
    first = parse_output(run("subscribers", "list", "--limit", "2", "--json"))
    assert [each["id"] for each in first["subscribers"]] == [alice, bob]
    rest = parse_output(run("subscribers", "list", "--after", str(first["next_after"]), "--json"))
    assert ([each["email"] for each in rest["subscribers"]], rest["next_after"]) == (
        ["carol@example.org"],
        None,
    )
    active = run("subscribers", "list", "--state", "active", "--limit", "1").stdout
    assert "alice@example.org" in active
    assert "--after" in active
    last = run("subscribers", "list", "--state", "active", "--after", str(alice)).stdout
    assert "carol@example.org" in last
    assert "bob@example.org" not in last
    assert "--after" not in last


def test_new_links(
    run: Run, app: Application, mail_server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no mail can be sent, the old links still work, and the error says why. A refusal is retried."""
    for name in ("alice", "bob"):
        run("subscribers", "add", f"{name}@example.org", "--interest", "robots")
    assert "The new ones were sent" in run("subscribers", "new-links", "alice@example.org").stdout
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", "1")
    failed = run("subscribers", "new-links", "bob@example.org", code=1).stderr
    assert "Nothing was changed, because no mail can be sent now: 127.0.0.1:1 cannot be used" in failed
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", str(mail_server.port))
    run("sending", "pause", "--reason", "the relay moves")
    failed = run("subscribers", "new-links", "bob@example.org", code=1).stderr
    assert "all sending is paused: the relay moves" in failed
    run("sending", "resume")
    run("suppressions", "add", "bob@example.org", "--reason", "complained")
    failed = run("subscribers", "new-links", "bob@example.org", code=1).stderr
    assert "this address is suppressed" in failed
    run("suppressions", "lift", "bob@example.org", "--reason", "mistaken")
    with app.db.read() as session:
        assert subscribers.find(session, "bob@example.org").link_epoch == 0
    mail_server.reply("rcpt", "451 4.3.0 Later", to="bob@example.org")
    failed = run("subscribers", "new-links", "bob@example.org", code=1).stdout
    assert "The next attempt is at 20" in failed


def test_new_links_when_the_relay_refuses_us(run: Run, mail_server: MailServer) -> None:
    """A refusal that pauses all sending is quoted with its code, and no next attempt is promised."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    mail_server.reply("rcpt", "554 5.7.23 Client host rejected: SPF fail")
    failed = run("subscribers", "new-links", "alice@example.org", code=1)
    assert "was not sent (554 5.7.23 Client host rejected: SPF fail). It is held until" in failed.stdout
    assert "next attempt" not in failed.stdout
    assert "Sending has been paused since" in failed.stderr


# --- keys and sources


def test_api_key_is_shown_only_when_created(run: Run, app: Application) -> None:
    """The key works, is listed without its secret, and stops working when revoked."""
    document = parse_output(run("key", "create", "grafana", "--scope", "read", "--scope", "send", "--json"))
    with app.db.read() as session:
        holder = api_keys.authenticate(session, document["key"], clock.utcnow())
    assert holder is not None
    assert holder.scopes == {Scope.READ, Scope.SEND}
    listed = run("key", "list")
    assert "grafana" in listed.stdout
    assert document["key"] not in listed.stdout
    assert "key_hash" not in run("key", "list", "--json").stdout
    assert "already" in run("key", "create", "grafana", "--scope", "read", code=1).stderr
    run("key", "revoke", "grafana")
    with app.db.read() as session:
        assert api_keys.authenticate(session, document["key"], clock.utcnow()) is None
        assert session.exec(select(ApiKey)).one().revoked_at
    run("key", "revoke", "grafana", code=1)


def test_key_create_prints_only_the_key_to_stdout(run: Run) -> None:
    """It can be piped into a secret store."""
    result = run("key", "create", "grafana", "--scope", "read")
    assert re.fullmatch(r"pb_[\w-]{43}\n", result.stdout)
    assert "will not be shown again" in result.stderr


def test_settings_name_unknown_variables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name has no effect, so it would be missing from the list without a reason."""
    monkeypatch.setenv("PAPERBOY_SMPT_HOST", "relay")
    printed = run("settings", "--changed")
    assert "setting PAPERBOY_SMPT_HOST: it is set in the environment, but Paperboy has no" in printed.stderr
    assert "did you mean PAPERBOY_SMTP_HOST?" in printed.stderr
    assert "SMPT" not in printed.stdout


def test_key_secret_needs_no_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is run before settings exist."""
    monkeypatch.delenv("PAPERBOY_SECRET_KEYS")
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", "nonsense")
    secret = run("key", "secret").stdout.strip()
    good = Settings(_env_file=None, database_url="sqlite:///unused.db", secret_keys=(secret,))
    assert good.secret_keys == (secret,)


def test_commands_that_sign_links_require_a_secret(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other commands work without one."""
    monkeypatch.delenv("PAPERBOY_SECRET_KEYS")
    assert "run `make .env`" in run("send", code=1).stderr
    run("sources", "list")


def test_source_commands(run: Run, app: Application) -> None:
    """Sources are given by name."""
    run("sources", "add", "A lab's blog", "--kind", "feed", "--url", "https://lab.example/feed.xml")
    run("sources", "add", "stat", "--kind", "arxiv", "--category", "stat.ML", "--category", "stat.ME")
    run("sources", "pause", "stat")
    listed = {each["name"]: each for each in parse_output(run("sources", "list", "--json"))}
    assert listed["stat"]["paused"]
    assert listed["stat"]["config"] == {"categories": ["stat.ML", "stat.ME"]}
    assert "paused" in run("sources", "list").stdout
    run("sources", "resume", "stat")
    with app.db.read() as session:
        assert not session.exec(select(Source).where(Source.name == "stat")).one().paused
    assert "no source named" in run("sources", "pause", "nothing", code=1).stderr
    with app.db.write() as session:
        source_registry.find(session, "stat").last_error = "the poll was interrupted"
    assert "the poll was interrupted" in " ".join(run("sources", "list").stdout.split())
    run("sources", "edit", "stat", "--name", "statistics", "--category", "stat.ME")
    assert "at least one option" in run("sources", "edit", "statistics", code=1).stderr
    with app.db.read() as session:
        assert source_registry.find(session, "statistics").config == {"categories": ["stat.ME"]}
    run("sources", "remove", "statistics")
    assert "statistics" not in run("sources", "list").stdout
    assert "no source named" in run("sources", "remove", "statistics", code=1).stderr
    run("sources", "add", "x", "--kind", "feed", "--url", "file:///etc/passwd", code=1)
    run("sources", "add", "x", "--kind", "jsonl", code=2)
    assert "jsonl" not in run("sources", "add", "--help").stdout


@pytest.mark.parametrize("name", ["The Lab", "the lab", " THE LAB ", "2"])
def test_source_is_found_by_any_spelling(name: str, run: Run) -> None:
    """By its name in any letter case, or its number. Otherwise, those that exist are named."""
    for number, each in enumerate(("The other", "The Lab", "Twice", "twice", "1")):
        run("sources", "add", each, "--kind", "feed", "--url", f"https://lab.example/{number}.xml")
    assert "The source “The Lab” is paused." in run("sources", "pause", name).stdout
    (entry,) = parse_output(run("changes", "--action", "source.pause", "--json"))
    assert entry["subject"] == "The Lab"
    assert re.search(r"2 +The Lab", run("sources", "list").stdout)
    assert "The source “twice” is paused." in run("sources", "pause", "twice").stdout
    assert "The source “1” is paused." in run("sources", "pause", "1").stdout
    refused = run("ingest", "--source", "The library", code=1).stderr
    listed = "the sources are “1” (5), “The Lab” (2), “The other” (1)"
    assert f"There is no source named “The library”: {listed}" in refused
    refused = run("ingest", "--source", "TWICE", code=1).stderr
    assert "“TWICE” may be “Twice” (3) or “twice” (4): use the same letter case, or the ID." in refused


def test_errors_of_sources(run: Run) -> None:
    """They name the options that a kind has. `try` takes a kind as `add` does, and its help has examples."""
    refused = run("sources", "add", "x", "--kind", "arxiv_oai", "--url", "https://a.test/", code=1).stderr
    assert "has no option “url”: it accepts set, from, until." in refused
    both = ("--category", "cs.CL", "--query", "ti:agents")
    refused = run("sources", "add", "x", "--kind", "arxiv", *both, code=1).stderr
    assert "“categories” cannot be combined with “query”" in refused
    assert "needs 1 to 50 arXiv categories" in run("sources", "try", "--kind", "arxiv_feed", code=1).stderr
    assert "sources try --kind arxiv_feed --category cs.CL" in run("sources", "try", "--help").stdout
    failed = run("sources", "try", "--url", "https://paperboy.invalid/feed.xml", code=1)
    unknown = failed.stderr
    assert failed.stdout == "", "there is no empty table before the error"
    assert unknown.splitlines()[-1].startswith("paperboy: ")
    assert re.search("paperboy.invalid: (DNS does not find this|the) name", unknown)
    assert "Errno" not in unknown


def test_error_about_a_file_names_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "none" / "key.pem"
    assert run("key", "dkim", str(file), code=1).stderr == f"paperboy: {file}: No such file or directory.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sources", "pause", "nothing"), "paperboy: There is no source named “nothing”: there are none.\n"),
        (("subscribers", "show", "4711"), "paperboy: There is no such subscriber.\n"),
        (("runs", "4711"), "paperboy: There is no run 4711.\n"),
        (("webhooks", "remove", "1"), "paperboy: There is no webhook 1.\n"),
    ],
)
def test_errors_are_sentences(run: Run, arguments: tuple[str, ...], message: str) -> None:
    assert run(*arguments, code=1).stderr == message


@pytest.mark.parametrize("command", [("runs",), ("sending", "resend"), ("webhooks", "messages")])
def test_numbers_that_no_column_can_contain(run: Run, command: tuple[str, ...]) -> None:
    """The error is one line."""
    assert re.fullmatch("paperboy: .+\n", run(*command, "9" * 20, code=1).stderr)


def test_old_key_works_for_at_most_a_year(run: Run) -> None:
    run("key", "create", "reader", "--scope", "read")
    assert "must be at most 8760" in usage_error(
        run("key", "rotate", "reader", "--hours", "100000000", code=2)
    )


def test_why_without_emails(run: Run) -> None:
    """Empty tables are left out, without a message that there is nothing to list."""
    run("subscribers", "add", "alice@example.org", "--interest", "robots")
    shown = run("subscribers", "why", "alice@example.org")
    assert ("Events, newest first" in shown.stdout, "Emails, newest first" in shown.stdout) == (True, False)
    assert shown.stderr == ""


def test_help_says_that_all_is_the_default(run: Run) -> None:
    """It does not show how the default is stored."""
    printed = run("sending", "pause", "--help").stdout
    assert "Default: all." in " ".join(printed.replace("│", " ").split())
    assert "[default:" not in printed


def test_workers_are_alive_or_lost(run: Run, app: Application) -> None:
    now = clock.utcnow()
    with app.db.write() as session:
        session.add(WorkerRow(name="host 1", started_at=now, seen_at=now))
        session.add(WorkerRow(name="host 2", started_at=now, seen_at=now - timedelta(hours=1)))
    listed = run("workers").stdout
    assert re.search(r"last heartbeat +state", listed)
    assert re.search(r"host 1 .* alive", listed)
    assert re.search(r"host 2 .* lost", listed)


def test_no_process_runs_jobs(run: Run) -> None:
    assert "start `paperboy serve` with PAPERBOY_SCHEDULER=true" in run("workers").stderr


def test_sign_up_that_is_not_confirmed(run: Run, app: Application) -> None:
    """What was asked for is shown, not the defaults."""
    wanted = Preferences(interests=(Interest("robots"),), hour=17, zone="Asia/Tokyo")
    with app.db.write() as session:
        factories.sign_up(session, SignUp("dave@example.org", wanted), "", clock.utcnow())
    shown = run("subscribers", "show", "dave@example.org").stdout
    assert "robots" in shown
    assert "17:00, Asia/Tokyo" in shown
    assert parse_output(run("subscribers", "show", "dave@example.org", "--json"))["interests"] == ["robots"]


def test_old_archive_suggests_an_earlier_day(run: Run, papers_file: Path) -> None:
    """There is nothing to preview today, but there was."""
    run("ingest", str(papers_file))
    with time_machine.travel(clock.utcnow() + timedelta(days=40)):
        for arguments in (("preview", "--interest", "language agents"), ("backtest", "language agents")):
            hint = run(*arguments).stderr
            assert "The newest papers are from 2026-11-20. To use them, add --" in hint
            option, value = hint.rstrip(".\n").split()[-2:]
            assert "Language Agents that Plan" in run(*arguments, option, value).stdout
        given = run("preview", "--interest", "zebrafish", "--day", "2026-11-21").stderr
        assert "To use them" not in given


def test_adding_a_private_feed_prints_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail at every poll, unless the operator has allowed its address."""
    for number, host in enumerate(("127.0.0.1", "localhost", "[::1]", "192.168.1.7:8080")):
        url = f"http://{host}/feed.xml"
        added = run("sources", "add", f"private {number}", "--kind", "feed", "--url", url)
        assert "PAPERBOY_ALLOW_PRIVATE_SOURCES" in added.stderr
    monkeypatch.setenv("PAPERBOY_ALLOW_PRIVATE_SOURCES", "wiki.localhost,10.0.0.0/8")
    for host in ("wiki.localhost", "10.1.2.3", "lab.example", "93.184.215.14"):
        added = run("sources", "add", host, "--kind", "feed", "--url", f"https://{host}/feed.xml")
        assert not added.stderr


# --- the service


def test_doctor_reports_what_to_fix(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1 only for errors."""
    findings = parse_output(run("doctor", "--json"))
    levels = {finding["check"]: finding["level"] for finding in findings["findings"]}
    assert {*findings["findings"][0]} == {"check", "level", "message", "fix", "urgent", "remedy"}
    assert (levels["database"], levels["relay"], levels["base_url"]) == ("ok", "ok", "warning")
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", "1")
    output = run("doctor", code=1).stdout
    assert "PAPERBOY_SMTP_HOST" in output
    monkeypatch.setenv("PAPERBOY_SMTP_PORT", "many")
    assert "PAPERBOY_SMTP_PORT" in run("doctor", code=1).stdout


def test_doctor_says_what_it_is_doing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in a terminal, because the checks take some seconds."""
    monkeypatch.setattr(doctor, "run_checks", lambda *_, **__: [])
    assert run("doctor").stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "Checking the settings" in run("doctor").stderr
    assert run("doctor", "--json").stderr == ""


def test_env_file_that_is_not_utf8(run: Run, tmp_path: Path) -> None:
    """Every command names the file instead of a traceback."""
    (tmp_path / ".env").write_text("PAPERBOY_SITE_NAME=Zürich\n", encoding="latin-1")
    problem = ".env is not encoded in UTF-8: save it as UTF-8"
    assert problem in run("doctor", code=1).stdout
    assert problem in run("settings", code=1).stderr


@pytest.mark.once
def test_doctor_creates_no_database(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "new folder #1" / "paperboy.db"
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{file}")
    for _ in ("without the folder", "without the file"):
        findings = parse_output(run("doctor", "--json", code=1))["findings"]
        (fault,) = (each for each in findings if each["check"] == "database")
        assert fault["message"] == f"the file {file} does not exist"
        assert "`paperboy migrate`" in fault["fix"]
        assert not file.exists()
        file.parent.mkdir(exist_ok=True)
    run("migrate")
    findings = parse_output(run("doctor", "--json"))["findings"]
    assert "up to date" in next(each["message"] for each in findings if each["check"] == "database")


@pytest.mark.once
def test_unreachable_database_is_a_one_line_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no traceback and no password."""
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", "postgresql+psycopg://me:hunter2@127.0.0.1:1/none")
    failed = run("sources", "list", code=1)
    assert failed.stderr.startswith("paperboy: The database cannot be used")
    assert failed.stderr.count("\n") == 1
    assert "hunter2" not in failed.stderr


@pytest.mark.once
@pytest.mark.parametrize("url", [None, "sqlite:///var/paperboy.db"])
def test_only_migrations_and_the_service_create_the_default_database(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str | None
) -> None:
    """In the wrong folder, other commands would pause, back up or list a new, empty database.

    A copy of .env.example sets the default, too.
    """
    monkeypatch.delenv("PAPERBOY_DATABASE_URL")
    if url:
        monkeypatch.setenv("PAPERBOY_DATABASE_URL", url)
    file = tmp_path / "var" / "paperboy.db"
    for command in (
        ("sending", "pause", "--reason", "test"), ("backup",), ("subscribers", "list"), ("send",),
        ("key", "list"), ("move", "--to", "sqlite:///new.db"), ("migrate", "--to", "0001"),
    ):  # fmt: skip
        error = run(*command, code=1).stderr
        assert f"There is no database {file}, and no {tmp_path}/.env with settings: run this" in error
    (tmp_path / ".env").touch()
    assert f"There is no database {file}: run this command in Paper" in run("runs", code=1).stderr
    assert not file.exists()
    file.parent.mkdir(exist_ok=True)
    file.touch()  # as after a restore that has failed
    assert f"The database {file} is an empty file: restore a backup" in run("backup", code=1).stderr
    assert not file.stat().st_size
    at_newest = f"The database {file} is at revision {schema.known_revisions()[0]}."
    assert at_newest in run("migrate").stdout
    assert at_newest in run("migrate", "--to", "head").stdout
    sources = parse_output(run("sources", "list", "--json"))
    assert [source["kind"] for source in sources] == ["huggingface", "arxiv_feed"]
    assert "There is nothing to list." in run("deliveries").stderr
    for unknown in ("4711", "base"):
        assert f"There is no revision {unknown}" in run("migrate", "--to", unknown, code=1).stderr


@pytest.mark.parametrize(
    ("started", "program"), [(".venv/bin/paperboy", ".venv/bin/paperboy"), ("app/__main__.py", "paperboy")]
)
def test_service_without_keys_logs_how_to_sign_in(
    run: Run, app: Application, monkeypatch: pytest.MonkeyPatch, started: str, program: str
) -> None:
    """The first key cannot be created on the admin pages."""
    monkeypatch.setattr("sys.argv", [started, "serve"])
    with structlog.testing.capture_logs() as logged:
        serve.log_first_steps(app)
    assert logged[0]["url"] == f"{app.settings.base_url}/admin"
    assert shlex.split(logged[0]["command"])[0] == program
    run(*shlex.split(logged[0]["command"])[1:])
    with structlog.testing.capture_logs() as logged:
        serve.log_first_steps(app)
    assert logged == []


def test_any_command_creates_a_database_that_the_settings_name(
    run: Run, monkeypatch: pytest.MonkeyPatch, new_database_url: Callable[[], str], tmp_path: Path
) -> None:
    without_tables = new_database_url()
    alembic_command.downgrade(config_of(without_tables), "base")
    for url in (without_tables, f"sqlite:///{tmp_path}/new/paperboy.db"):
        monkeypatch.setenv("PAPERBOY_DATABASE_URL", url)
        assert len(parse_output(run("sources", "list", "--json"))) == 2


def test_settings_in_the_wrong_folder(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A secret that is not set is not shown as set, and the advice names the folder."""
    monkeypatch.delenv("PAPERBOY_SECRET_KEYS")
    listed = {each["name"]: each for each in parse_output(run("settings", "--json"))}
    assert (listed["PAPERBOY_SECRET_KEYS"]["value"], listed["PAPERBOY_SECRET_KEYS"]["changed"]) == ("", False)
    assert f"there is no {tmp_path}/.env: run this command in Paperboy's folder" in run("send", code=1).stderr
    (tmp_path / ".env").touch()
    assert "PAPERBOY_SECRET_KEYS is not set: run `paperboy key secret`, and add" in run("send", code=1).stderr


@pytest.fixture
def own_database(new_database_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Name a database in the environment that no other test shares, because its revision will change."""
    url = new_database_url()
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", url)
    database = Database(url)
    yield database
    database.dispose()


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_only_the_service_and_migrate_upgrade_a_database(
    run: Run,
    own_database: Database,
    start_process: Callable[..., subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    """Others would undo a downgrade. While the service runs, a downgrade is refused."""
    newest = schema.known_revisions()[0]
    assert "is at revision 0001" in run("migrate", "--to", "0001").stdout
    for other in (("sending", "status"), ("deliveries",), ("backup",), ("ingest",)):
        refused = run(*other, code=1).stderr
        assert f"at revision 0001; this release needs {newest}: start the service, or run" in refused
    assert schema.revisions(own_database)[0] == "0001"
    monkeypatch.setenv("PAPERBOY_SCHEDULER", "false")
    process = start_process(*{"serve": ("serve", "--port", "0"), "worker": ("worker",)}[command])
    wait_for(process, {"serve": "running on", "worker": "jobs started"}[command])
    assert schema.revisions(own_database)[0] == newest
    refused = run("migrate", "--to", "0001", code=1).stderr
    assert refused == "paperboy: The database is in use by 1 other process: stop the service.\n"
    assert f"is at revision {newest}" in run("migrate").stdout
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert "is at revision 0001" in run("migrate", "--to", "0001").stdout


@pytest.mark.usefixtures("alice_is_due")
def test_backup_and_restore(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only an empty database is restored. What may have left is shown, and sending is paused."""
    run("webhooks", "add", "https://a.test/hooks/SECRET")
    old = os.environ["PAPERBOY_DATABASE_URL"]
    assert "rows" in run("backup").stdout
    (file,) = (tmp_path / "var" / "backups").iterdir()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert parse_output(run("backup", "second.zip", "--json"))["file"] == "second.zip"
    runs = run("runs", "--json").stdout
    assert "second.zip already exists" in run("backup", "second.zip", code=1).stderr
    assert "Cannot create second.zip" in run("backup", "second.zip/third.zip", code=1).stderr
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)  # root may write to all folders
        assert ". cannot be written to" in run("backup", "third.zip", code=1).stderr
    assert run("runs", "--json").stdout == runs, "a mistyped command is no failed run, and causes no alert"
    assert "The backup is complete" in run("restore", str(file), "--check").stdout
    checked = parse_output(run("restore", str(file), "--check", "--json"))
    assert (checked["rows"] > 0, set(checked)) == (True, {"rows", "backup_at", "release"})
    assert "is not empty" in run("restore", str(file), code=1).stderr
    run("send")
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{tmp_path}/new.db")
    run("restore", str(file), "--previous", f"sqlite:///{tmp_path}/typo.db", code=1)
    assert not (tmp_path / "typo.db").exists()
    report = run("restore", str(file), "--previous", old)
    assert "recorded by the previous database: 1." in report.stdout
    assert "Anyone who unsubscribed" not in report.stdout
    assert "--state uncertain" not in report.stdout
    assert "To send again: paperboy sending resume." in report.stdout
    assert "restored from a backup" in run("sending", "status").stderr
    assert [each["job"] for each in parse_output(run("runs", "--json"))] == ["restore"]
    assert parse_output(run("deliveries", "--json"))[0]["state"] == "sent"
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{tmp_path}/alone.db")
    restored = run("restore", str(file)).stdout
    assert "Anyone who unsubscribed, paused or was erased after the backup is active" in restored
    assert "These webhooks are disabled: 1 (https://a.test)." in restored


@pytest.mark.once
def test_backup_names_the_tables_of_an_operator(run: Run, database_url: str) -> None:
    """They are not in the backup."""
    with closing(sqlite3.connect(database_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("CREATE TABLE note (price NUMERIC)")
    assert "Tables that are not Paperboy's were left out: note." in run("backup").stdout


@pytest.mark.once
def test_backup_of_a_database_that_sqlite_cannot_open(run: Run, database_url: str, tmp_path: Path) -> None:
    """This is so on a full or read-only disk, if the service is stopped."""
    Path(f"{database_url.removeprefix('sqlite:///')}-shm").symlink_to(tmp_path / "none" / "none")
    assert "The database cannot be used" in run("runs", code=1).stderr
    assert "Wrote saved.zip" in run("backup", "saved.zip").stdout


@pytest.mark.once
def test_restore_into_another_folder(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a copy of the settings, whose paths are relative, the first folder is not touched."""
    monkeypatch.delenv("PAPERBOY_DATABASE_URL")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    run("migrate")
    run("suppressions", "add", "bob@example.org", "--reason", "asked by telephone")
    run("backup", "copy.zip")
    monkeypatch.chdir(tmp_path / "second")
    assert "All sending is paused." in run("restore", "../first/copy.zip").stdout
    run("suppressions", "lift", "bob@example.org", "--reason", "asked again")
    assert parse_output(run("suppressions", "list", "--json")) == []
    monkeypatch.chdir(tmp_path / "first")
    assert len(parse_output(run("suppressions", "list", "--json"))) == 1


@pytest.mark.parametrize(
    ("days", "line"),
    [
        (0, ""),
        (1, "due since then, 1 edition: 2026-11-01  2\n"),
        (90, "due since then, 90 editions: 2026-11-01 to 2027-01-29  180\n"),
    ],
)
def test_restore_summarizes_the_editions(days: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An old backup has many. One line counts them and names the first and the last."""
    editions = [str(date(2026, 11, 1) + timedelta(days=number)) for number in reversed(range(days))]
    report = after_restore.RestoreReport(due_since=Counter(dict.fromkeys(editions, 2)))
    backup.print_report(report, "9 rows", with_previous=False)
    printed = re.sub(r" *\n", "\n", re.sub(r"(?<=\S) {2,}", "  ", capsys.readouterr().out))
    assert [each for each in printed.splitlines(keepends=True) if "due since" in each] == (
        [line] if line else []
    )


def test_restore_lists_addresses_that_could_not_be_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the output until the operator has decided."""
    report = after_restore.RestoreReport(old_addresses=["alice@example.org", "bob@example.org"])
    backup.print_report(report, "9 rows", with_previous=True)
    assert "the new one: alice@example.org, bob@example.org. Before" in capsys.readouterr().out


@pytest.mark.usefixtures("alice_is_due")
def test_move(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The old database is paused. The new one has everything and sends."""
    target = f"sqlite:///{tmp_path}/new.db"
    assert "Set PAPERBOY_DATABASE_URL to the new URL" in run("move", "--to", target).stdout
    status = run("sending", "status").stderr
    assert "this database was moved to" in status
    assert "→ set PAPERBOY_DATABASE_URL to the new database" in status
    assert "digests are sent from there" in run("sending", "resume", code=1).stderr
    again = f"sqlite:///{tmp_path}/again.db"
    assert "All sending is still paused in the new database" in run("move", "--to", again).stdout
    assert "is resumed" in run("sending", "resume", "--force").stdout
    assert "must begin with sqlite:///" in run("move", "--to", "var/new.db", code=2).stderr
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", target)
    assert "already uses this database" in run("move", "--to", target, code=1).stderr
    assert parse_output(run("send", "--json"))["sent"] == 1


KILLED = """
    import importlib, os, signal, sys
    from app.cli import main

    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments
    setattr(importlib.import_module(module), function, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    main()
"""


@pytest.mark.usefixtures("alice_is_due")
def test_killed_backup_and_restore(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: ForkServer
) -> None:
    """`kill -9` leaves no half of a file or a database. A restore that is not complete can be repeated."""

    def killed_at(place: str, *arguments: str) -> None:
        module, _, function = place.rpartition(".")
        exit_code = processes.run(
            KILLED, environment=dict(os.environ), folder=tmp_path,
            module=module, function=function, arguments=arguments,
        )  # fmt: skip
        assert exit_code == -signal.SIGKILL

    killed_at("app.storage.backup_file._write_journals", "backup", "b.zip")
    assert not (tmp_path / "b.zip").exists()
    run("backup", "b.zip")
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", f"sqlite:///{tmp_path}/new.db")
    killed_at("app.storage.backup_file._pause", "restore", "b.zip")
    killed_at("app.maintenance.after_restore.settle", "restore", "b.zip")
    assert "is running, or was interrupted: in that case, repeat it" in run("sending", "status").stderr
    run("restore", "b.zip")
    assert "is not empty" in run("restore", "b.zip", code=1).stderr
    assert [row["email"] for row in parse_output(run("subscribers", "export", "--json"))] == [
        "alice@example.org"
    ]


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "[red]markup[/]", "[/nonsense]"])
def test_control_characters_are_removed_from_output(
    hostile: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Titles and errors contain text from other servers."""
    failed = PollResult(polled=("hub",), failed={"hub": hostile})
    monkeypatch.setattr(pipeline, "refresh", lambda *_, **__: failed)
    output = run("ingest", code=1).stdout
    assert "\x1b" not in output
    assert hostile.replace("\x1b", " ") in output


def test_every_command_has_help(run: Run) -> None:
    """The help describes the command and its exit codes."""
    assert "Exit codes" in run("--help").stdout
    for command in ("serve", "worker", "ingest", "preview", "send", "doctor", "demo", "key", "subscribers"):
        assert len(run(command, "--help").stdout) > 200


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the names of a command and of all commands below it."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from command_paths(below, (*path, name))


def short_lines(printed: str, width: int) -> list[str]:
    """Return the lines of a help text that have room for the first word of the next line."""
    short = []
    for line, following in itertools.pairwise(printed.splitlines()):
        text, rest = (each.rstrip(" │") for each in (line, following))
        in_box = following.startswith("│")
        continues = (
            text and rest.lstrip("│ ") and following[:12].strip("│ ") == ("" if in_box else rest[:12].strip())
        )
        if not continues or rest.lstrip("│ ").startswith("["):  # a default has its own line
            continue
        room = width - (2 if in_box else 1)
        if len(text) + 1 + len(rest.strip("│ ").split()[0]) <= room:
            short.append(text)
    return short


@pytest.mark.once
@pytest.mark.parametrize("width", [80, 120])
def test_help_is_printed_in_filled_lines(monkeypatch: pytest.MonkeyPatch, run: Run, width: int) -> None:
    """The line breaks of docstrings were kept, so every second line was short."""
    monkeypatch.setenv("COLUMNS", str(width))
    paths = [*command_paths(typer.main.get_command(cli))]
    assert len(paths) > 50
    printed = {path: run(*path, "--help").stdout for path in paths}
    assert {path: short for path in paths if (short := short_lines(printed[path], width))} == {}
    assert all(len(line) <= width for text in printed.values() for line in text.splitlines())
    assert "write “\\;” for a semicolon" in " ".join(printed["subscribers", "import"].split())


@pytest.fixture
def start_process(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command in a process. Processes end after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        heed = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # nohup may have started us
        command = [sys.executable, "-c", f"{heed}; from app.cli import main; main()", *arguments]
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
    """Read the log until a line contains these words."""
    assert process.stderr
    log = ""
    for line in process.stderr:
        log += line
        if words in line:
            return line
    raise AssertionError(f"it ended without saying “{words}”:\n{log}")


# SIGHUP comes if the terminal closes. It needs no test on PostgreSQL.
STOP_SIGNALS = [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.once)]


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_serve_until_a_signal(start_process: Callable[..., subprocess.Popen[str]], number: int) -> None:
    """It answers on the given port and runs the schedule."""
    process = start_process("serve", "--port", "0")
    line = wait_for(process, "running on")
    url = re.search(r"http://[\d.:]+", line)
    assert url, line
    assert httpx.get(f"{url[0]}/readyz").json() == {"status": "ok", "database": "ok", "failed_jobs": []}
    assert httpx.get(f"{url[0]}/api/v1/runs").status_code == 401
    process.send_signal(number)
    _, logged = process.communicate(timeout=60)
    assert "jobs stopped" in logged
    assert process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_worker_runs_jobs_until_a_signal(
    start_process: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: int
) -> None:
    """Its log begins with warnings about lines in .env that have no effect."""
    (tmp_path / ".env").write_text("PAPERBOY_SMPT_HOST=relay\nthis is = wrong\n")
    process = start_process("worker")
    warning = wait_for(process, "python-dotenv")
    assert warning.startswith(".env: python-dotenv could not parse statement starting at line 2; the line is")
    warning = wait_for(process, "PAPERBOY_SMPT_HOST")
    assert "unknown setting" in warning
    assert "setting PAPERBOY_SMPT_HOST: it is set in .env, but Paperboy has no such setting" in warning
    assert "did you mean PAPERBOY_SMTP_HOST?" in warning
    wait_for(process, "jobs started")
    process.send_signal(number)
    _, logged = process.communicate(timeout=60)
    assert "jobs stopped" in logged
    assert process.returncode == 0


@pytest.mark.once
def test_console_script(start_process: Callable[..., subprocess.Popen[str]]) -> None:
    """Run the installed entry point and check its exit codes."""
    process = start_process("key", "secret")
    output, _ = process.communicate(timeout=60)
    assert len(output.strip()) == 43
    failing = start_process("key", "revoke", "nobody")
    _, error = failing.communicate(timeout=60)
    assert (failing.returncode, error.count("\n")) == (1, 1)


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["papers", "list"], "No such command 'list'."),  # “split” is as similar as “list” to “ls”
        (["list"], "No such command 'list'."),
        (["sources", "ls"], "No such command 'ls'. Did you mean 'list'?"),
        (["paper", "show"], "No such command 'paper'. Did you mean 'papers'?"),
        (["sending", "stat"], "No such command 'stat'. Did you mean 'status'?"),
        (["sub"], "No such command 'sub'. Did you mean 'subscribers'?"),
        (["PAPERS"], "No such command 'PAPERS'. Did you mean 'papers'?"),
        (["qapers"], "No such command 'qapers'. Did you mean 'papers'?"),
    ],
)
def test_unknown_command_suggests_only_similar_ones(run: Run, arguments: list[str], error: str) -> None:
    assert f"│ {error} " in run(*arguments, code=2).stderr


@pytest.mark.once
def test_commands_do_not_load_the_web_application() -> None:
    """Only `serve` needs it. Commands would take half as long again to start. Alembic would add a tenth."""
    code = """
import sys
import app.cli.commands
print(sorted({'alembic', 'fastapi', 'sklearn', 'app.web.site'} & set(sys.modules)))
"""
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert started.stdout == "[]\n"


@pytest.mark.once
def test_commands_start_without_garbage_collection() -> None:
    """It would take a third of the start. Afterwards, garbage is collected, but not sought among modules."""
    code = """
import gc
from contextlib import suppress
from app.cli import main
seen = []
gc.callbacks.append(lambda phase, info: seen.append(info["generation"]))
with suppress(SystemExit):
    main()
print(2 in seen, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""
    command = [sys.executable, "-c", code, "--version"]
    started = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    assert started.stdout.splitlines()[1:] == ["False True True"]


@pytest.mark.once
def test_terminal_with_another_encoding(
    start_process: Callable[..., subprocess.Popen[str]], app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing characters are printed as question marks, but JSON and exported files contain all of them."""
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", ["naïve “Bayes” 机器人"], clock.utcnow())
    monkeypatch.setenv("PYTHONIOENCODING", "iso-8859-1")

    def output_of(*arguments: str) -> bytes:
        process = start_process(*arguments)
        assert process.stdout
        assert process.stderr
        printed = process.stdout.buffer.read()
        assert process.stderr.read() == ""
        return printed

    assert "naïve ?Bayes? ???" in output_of("subscribers", "show", "alice@example.org").decode("iso-8859-1")
    assert "naïve “Bayes” 机器人" in str(json.loads(output_of("subscribers", "export", "--json")))
    assert "naïve “Bayes” 机器人" in output_of("subscribers", "export").decode()


@pytest.mark.once
def test_question_with_closed_input(app: Application, tmp_path: Path) -> None:
    """It is aborted, like at the end of a file."""
    with app.db.write() as session:
        factories.add_subscriber(session, "alice@example.org", ["agents"], clock.utcnow())
    script = f'{sys.executable} -c "from app.cli import main; main()" subscribers erase alice@example.org <&-'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    ended = subprocess.run(  # noqa: S602 - it is our own command
        script, shell=True, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr.strip()) == (1, "Aborted.")
    assert "RuntimeError" not in ended.stderr


@pytest.mark.once
def test_closed_pipe_is_no_error(start_process: Callable[..., subprocess.Popen[str]]) -> None:
    """`paperboy subscribers export | head` ends without a message, as if SIGPIPE had ended it."""
    for arguments in (["subscribers", "export"], ["runs"], ["settings", "--json"], ["--help"]):
        process = start_process(*arguments)
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == ""
        assert process.wait() == 141


@pytest.mark.once
def test_version_on_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", "from app.cli import main; main()", "--version"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "No space left on device" in ended.stderr


@pytest.mark.once
def test_interrupt_while_modules_are_imported() -> None:
    """It takes a second. The process printed a traceback."""
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
from app.cli import main

class Interrupt:
    def find_spec(self, name, *_):
        if name == "app.cli.commands":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert (ended.returncode, ended.stderr) == (130, "")


def test_piped_tables_have_no_endless_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table(["reason"], [["x" * 5000], [None]])
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 301
    assert "x…" in printed


def test_export_and_import_have_the_same_columns() -> None:
    assert set(COLUMNS) <= set(EXPORTED)
