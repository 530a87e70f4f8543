"""Test the commands that change papers, and the trial of a source."""

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from sqlmodel import col, select

from app import clock, pipeline
from app.application import Application
from app.storage.models import AuditEntry, Paper
from app.types import SourceKind
from tests.cli.test_commands import Run, environment, parse_output, run
from tests.papers.sources import responses
from tests.support import factories

__all__ = ["environment", "run"]  # fixtures

AGENTS, VIDEO = "Language Agents that Plan", "Video Diffusion in Real Time"


@pytest.fixture
def papers(app: Application) -> list[int]:
    """Add two papers of today, one of them on arXiv, and a subscriber who gets the first."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], now)
        return [
            factories.add_paper(session, source, title, now.date(), now, arxiv_id=arxiv_id)
            for title, arxiv_id in ((AGENTS, "2611.00001"), (VIDEO, None))
        ]


class FeedHandler(BaseHTTPRequestHandler):
    """Answer every request with a feed."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(responses.RSS.encode())

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def feed_url() -> Iterator[str]:
    """Serve a feed with two papers on a free local port."""
    with HTTPServer(("127.0.0.1", 0), FeedHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/feed.xml"
        server.shutdown()
        thread.join()


def test_paper_commands(run: Run, app: Application, papers: list[int]) -> None:
    """Papers are identified by ID, arXiv ID or URL. Each change is in the audit log."""
    assert run("papers", "search", "agents").stdout.count("Language Agents") == 1
    assert VIDEO in run("papers", "search").stdout
    assert run("papers", "search").stdout.startswith("ID ")
    run(
        "papers",
        "edit",
        "2611.00001",
        "--title",
        "Agents",
        "--author",
        "Mei Tanaka",
        "--published-on",
        "2026-11-01",
    )
    [listed] = parse_output(run("papers", "search", "2611.00001", "--json"))
    assert (listed["title"], listed["authors"]) == ("Agents", ["Mei Tanaka"])
    assert listed["edited_fields"] == ["title", "authors", "published_on"]
    run("papers", "edit", "1", "--reset", "title")
    assert AGENTS in run("papers", "show", "1").stdout
    run("papers", "hide", "https://arxiv.org/abs/2611.00001", "--reason", "spam")
    assert "hidden" in run("papers", "search", "--hidden").stdout
    run("papers", "unhide", "1")
    assert "is not withdrawn" in run("papers", "reinstate", "1", code=1).stderr
    with app.db.write() as session:
        session.get_one(Paper, 1).withdrawn_at = clock.utcnow()
    assert run("papers", "reinstate", "1").stdout == "Paper 1 is no longer withdrawn.\n"
    assert "pinned until" in run("papers", "pin", "1", "--days", "2").stdout
    assert [paper["id"] for paper in parse_output(run("papers", "search", "--pinned", "--json"))] == [1]
    run("papers", "unpin", "1")
    assert run("papers", "merge", "2", "2611.00001", "--yes").stdout == "Papers 2 and 1 are now paper 1.\n"
    assert "merged: row 2" in run("papers", "show", "1").stdout
    assert run("papers", "split", "1", "--row", "2").stdout == "Split off paper 2 from paper 1.\n"
    with app.db.read() as session:
        entries = session.exec(select(AuditEntry).order_by(col(AuditEntry.id))).all()
    names = ("edit", "edit", "hide", "show", "reinstate", "pin", "unpin", "merge", "split")
    assert [entry.action for entry in entries] == [f"paper.{name}" for name in names]
    assert {entry.actor for entry in entries} == {"cli"}


@pytest.mark.parametrize(
    "command", ["show", "edit", "hide", "unhide", "reinstate", "pin", "unpin", "merge", "split"]
)
def test_usage_names_the_paper(run: Run, command: str) -> None:
    """The argument may be an ID, arXiv ID, DOI or URL."""
    usage = " ".join(run("papers", command, "--help").stdout.split())
    assert f"papers {command} [OPTIONS] {{paper}}" in usage or f"papers {command} {{paper}}" in usage
    assert "The paper's ID, arXiv ID, DOI or URL." in usage


def test_merge_asks_for_confirmation(run: Run, app: Application, papers: list[int]) -> None:
    """It shows both papers, beginning with the one that is kept."""
    question = run("papers", "merge", "2", "2611.00001", code=1).stdout
    lines = question.splitlines()
    assert re.fullmatch(r"field +paper 1 \(kept\) +paper 2 *", lines[0])
    assert re.fullmatch(f"title +{AGENTS} +{VIDEO} *", lines[1])
    assert re.search(r"arXiv ID +2611\.00001 *\n", question)
    assert re.search("sources +Hugging Face Daily Papers +Hugging Face Daily Papers", question)
    assert lines[-1].startswith("Merge paper 2 into paper 1? [y/N]")
    with app.db.read() as session:
        assert session.exec(select(AuditEntry)).all() == []


def test_show_counts_digests(run: Run, app: Application, papers: list[int]) -> None:
    pipeline.plan(app, clock.utcnow())
    shown = parse_output(run("papers", "show", "1", "--json"))
    assert shown["digests"] == {"pending": 1}
    assert [each["source"] for each in shown["listings"]] == ["Hugging Face Daily Papers"]
    internal = {"title_key", "title_end", "content_hash", "versions", "sourced", "thumbnail_url"}
    assert not internal & shown.keys()
    assert "digests with this paper: none" in run("papers", "show", "2").stdout


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "99"), "There is no paper 99"),
        (("show", "two words"), "is not the ID"),
        (("edit", "1"), "at least one option"),
        (("edit", "1", "--url", "ftp://example.org"), "must begin with http"),
        (("edit", "1", "--reset", "colour"), "cannot be edited"),
        (("unhide", "1"), "not hidden"),
        (("unpin", "1"), "not pinned"),
        (("pin", "1", "--days", "99"), "1 to 30 days"),
        (("merge", "1", "1"), "already the same paper"),
        (("merge", "1", "nothing"), "is not the ID"),
        (("split", "1"), "Name exactly one part to split off"),
        (("split", "1", "--source", "nothing"), "no source named"),
    ],
)
def test_refused_changes_are_one_line_errors(
    run: Run, papers: list[int], arguments: tuple[str, ...], message: str
) -> None:
    error = run("papers", *arguments, code=1).stderr
    assert message in error
    assert error.count("\n") == 1


def test_source_can_be_tried(run: Run, monkeypatch: pytest.MonkeyPatch, feed_url: str) -> None:
    """Nothing is stored. A source that cannot be read is an error."""
    assert "private address" in run("sources", "try", "--url", feed_url, code=1).stderr
    monkeypatch.setenv("PAPERBOY_ALLOW_PRIVATE_SOURCES", "127.0.0.1")
    tried = run("sources", "try", "--url", feed_url)
    assert "2 new papers, 0 already in the archive, 1 row skipped. Nothing was stored." in tried.stdout
    assert "Pigeons That Plan" in tried.stdout
    assert "skipped: row 3: the entry has no title" in tried.stderr
    assert parse_output(run("sources", "try", "--url", feed_url, "--json"))["new"] == 2
    assert parse_output(run("papers", "search", "--json")) == []
    assert "arXiv categories" in run("sources", "try", "--kind", SourceKind.ARXIV, code=1).stderr
