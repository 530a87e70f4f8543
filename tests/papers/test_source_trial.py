"""Test the trial of a source: it shows what a poll would store, and stores nothing."""

from dataclasses import replace
from datetime import datetime, timedelta

import httpx
import pytest
from sqlmodel import Session, func, select

from app import maintenance, pipeline
from app.application import Application
from app.errors import Conflict, InvalidInput
from app.papers import poll_history, source_trial
from app.papers.sources import host_rate_limits
from app.papers.sources.http_client import HttpTransport
from app.storage import locks
from app.storage.database import Database
from app.storage.models import JobRun, Listing, Paper, Source, SourcePoll
from app.types import SourceKind
from tests.papers.sources import responses
from tests.papers.test_ingest import store
from tests.papers.test_polling import FakeUpstreams, _no_sleep, _no_waiting, live, upstreams

__all__ = ["_no_waiting", "live", "upstreams"]  # fixtures

FEED = {"url": "https://lab.example/feed.xml"}


def counts(session: Session) -> list[int]:
    """Return the number of rows that a trial must not add."""
    tables = (Source, Paper, Listing, JobRun, SourcePoll)
    return [session.exec(select(func.count()).select_from(table)).one() for table in tables]


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (SourceKind.FEED, FEED),
        (SourceKind.HUGGINGFACE, {}),
        (SourceKind.ARXIV_FEED, {"categories": ["cs.CL"]}),
        (SourceKind.ARXIV, {"categories": ["cs.CL"]}),
    ],
)
def test_trial_shows_papers_and_stores_nothing(
    live: Application, now: datetime, kind: SourceKind, config: dict[str, object]
) -> None:
    with live.db.read() as session:
        before = counts(session)
    result = pipeline.try_source(live, kind, config, now)
    assert (result.error, result.existing) == ("", 0)
    assert result.new == len(result.papers) > 0
    with live.db.read() as session:
        assert counts(session) == before


def test_trial_recognizes_papers_as_a_poll_would(
    live: Application, now: datetime, upstreams: FakeUpstreams
) -> None:
    """By arXiv id, by DOI and by a similar title. The numbers equal those of the poll that follows."""
    first = pipeline.try_source(live, SourceKind.FEED, FEED, now)
    known = first.papers[0].record
    store(live, now, replace(known, title=f"{known.title}.", url=""), kind=SourceKind.JSONL)
    result = pipeline.try_source(live, SourceKind.FEED, FEED, now)
    assert [paper.paper_id for paper in result.papers if paper.record.title == known.title] == [1]
    assert (result.existing, result.new) == (1, first.new - 1)
    with live.db.write() as session:
        session.add(Source(name="lab", kind=SourceKind.FEED, config=FEED, created_at=now))
    polled = pipeline.refresh(live, now)
    assert "lab" in polled.polled
    with live.db.read() as session:
        lab = session.exec(select(Source.id).where(Source.name == "lab")).one() or 0
        [poll] = poll_history.latest(session, lab, 5)
    assert poll.counts["papers_new"] == result.new
    assert poll.counts["rejected"] == result.rejected
    assert poll.error == ""


def test_feed_with_its_encoding_in_the_header(
    live: Application, now: datetime, upstreams: FakeUpstreams
) -> None:
    body = responses.RSS.replace("<title>", "<title>É", 2).encode("latin-1")
    headers = {"content-type": "text/xml; charset=ISO-8859-1"}
    upstreams.broken["93.184.215.14"] = httpx.Response(200, content=body, headers=headers)
    titles = [paper.record.title for paper in pipeline.try_source(live, SourceKind.FEED, FEED, now).papers]
    assert "É" in "".join(titles)


@pytest.mark.parametrize("address", ["10.0.0.7", "127.0.0.1", "169.254.169.254"])
def test_trial_refuses_private_addresses(app: Application, now: datetime, address: str) -> None:
    """Otherwise the admin pages could read the operator's network."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, text=responses.RSS)

    inside = replace(app, http=HttpTransport(httpx.MockTransport(answer), _no_sleep, resolve))
    result = pipeline.try_source(inside, SourceKind.FEED, FEED, now)
    assert "private address" in result.error
    assert (result.papers, asked) == ((), [])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(404), "HTTP 404"),
        (httpx.Response(200, text="<html>no feed</html>"), "feed"),
        (httpx.ConnectError("refused"), "no response"),
    ],
)
def test_trial_of_a_broken_source_says_why(
    live: Application, now: datetime, upstreams: FakeUpstreams,
    answer: httpx.Response | Exception, error: str,
) -> None:  # fmt: skip
    upstreams.broken["93.184.215.14"] = answer
    result = pipeline.try_source(live, SourceKind.FEED, FEED, now)
    assert error in result.error
    assert (result.new, result.papers) == (0, ())


def test_trial_shows_skipped_rows(live: Application, now: datetime, upstreams: FakeUpstreams) -> None:
    rows = [responses.hf_row("2611.00001", "A Paper"), '{"paper": {}}']
    upstreams.broken["huggingface.co"] = httpx.Response(200, text=responses.hf(*rows))
    result = pipeline.try_source(live, SourceKind.HUGGINGFACE, {}, now)
    assert result.rejected == len(result.rejections) > 0


def test_trial_shows_the_days_that_a_poll_would_store(
    live: Application, now: datetime, upstreams: FakeUpstreams
) -> None:
    """An entry of a future issue counts as listed today."""
    rss = responses.RSS.replace("19 Nov 2026", "19 Nov 2027")
    upstreams.broken["93.184.215.14"] = httpx.Response(200, text=rss)
    result = pipeline.try_source(live, SourceKind.FEED, FEED, now)
    assert {paper.record.listed_on for paper in result.papers} == {now.date()}


def test_trial_ends_at_its_deadline(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response may take as long as in a poll."""
    monkeypatch.setattr(source_trial, "MIN_SECONDS", 0)
    for seconds, error in ((0, source_trial.TOO_SLOW.format(0)), (5, "")):
        settings = live.settings.model_copy(update={"source_timeout_seconds": seconds})
        hurried = replace(live, settings=settings)
        assert pipeline.try_source(hurried, SourceKind.FEED, FEED, now).error == error


def test_trial_of_arxiv_waits_for_its_lease(live: Application, now: datetime) -> None:
    """ArXiv allows one connection. A wrong configuration is refused before."""
    with locks.hold(live.db, host_rate_limits.ARXIV, now, timedelta(minutes=1)):
        with pytest.raises(Conflict):
            pipeline.try_source(live, SourceKind.ARXIV_FEED, {"categories": ["cs.CL"]}, now)
        assert pipeline.try_source(live, SourceKind.FEED, FEED, now).error == ""
    with pytest.raises(InvalidInput):
        pipeline.try_source(live, SourceKind.FEED, {"url": "file:///etc/passwd"}, now)


def test_lease_of_a_trial_begins_now_by_the_database_clock(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of arXiv must not be corrected twice, or it would begin hours too early or too late."""
    ahead, acquire, acquired_at = timedelta(hours=1), locks.acquire, list[datetime]()

    def record(
        session: Session, name: str, holder: str, at: datetime, lasting: timedelta, edition: str
    ) -> bool:
        acquired_at.append(at)
        return acquire(session, name, holder, at, lasting, edition)

    monkeypatch.setattr(Database, "skew", lambda _database: ahead)
    monkeypatch.setattr(locks, "skew", lambda _session: ahead)
    monkeypatch.setattr(locks, "acquire", record)
    pipeline.try_source(live, SourceKind.ARXIV_FEED, {"categories": ["cs.CL"]}, now)
    assert acquired_at == [now + ahead]


def test_failed_polls_are_in_the_history(live: Application, now: datetime, upstreams: FakeUpstreams) -> None:
    """Old polls are deleted after the retention of runs."""
    upstreams.broken["huggingface.co"] = httpx.Response(404)
    pipeline.refresh(live, now)
    with live.db.read() as session:
        source = session.exec(select(Source).where(Source.kind == SourceKind.HUGGINGFACE)).one()
        [poll] = poll_history.latest(session, source.id or 0, 5)
    assert "HTTP 404" in poll.error
    assert maintenance.prune(live, now + timedelta(days=91))["polls"] == 2
