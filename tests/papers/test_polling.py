"""Polling sources and reading files: stored papers, stored state, and behaviour on faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import stamina
from sqlmodel import Session, col, select

from app import pipeline
from app.application import Application
from app.errors import Conflict
from app.papers import source_registry
from app.papers.sources.http_client import HttpTransport
from app.storage import locks
from app.storage.models import JobRun, Listing, Paper, Source, VoteCount
from app.types import SourceKind
from tests.papers.sources import responses

TODAY = date(2026, 11, 20)  # a Friday
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Make retries immediate."""
    stamina.set_testing(True, attempts=2)
    yield
    stamina.set_testing(False)


class World:
    """Fake Hugging Face, arXiv and feed, with two papers a day. Any host can be made to fail."""

    def __init__(self) -> None:
        self.requests: list[httpx.URL] = []
        self.broken: dict[str, httpx.Response | Exception] = {}
        self.upvotes = 5

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request.url)
        host = request.url.host
        if fault := self.broken.get(host):
            if isinstance(fault, Exception):
                raise fault
            return fault
        if host == "huggingface.co":
            return self.daily(request)
        if host == "rss.arxiv.org":
            entry = responses.feed_entry("2611.29999v1", "An Announced Paper of Today").replace(
                "2026-11-19T", f"{TODAY}T"
            )
            return httpx.Response(200, text=responses.feed(entry), headers={"etag": '"today"'})
        if host == "export.arxiv.org":
            number = 30000 + len(self.requests)
            return httpx.Response(
                200, text=responses.api(responses.api_entry(f"2611.{number}v1", f"Paper {number}"))
            )
        return httpx.Response(200, text=responses.RSS)

    def daily(self, request: httpx.Request) -> httpx.Response:
        day, page = request.url.params["date"], int(request.url.params["p"])
        if page > 1 or date.fromisoformat(day).weekday() >= 5:
            return httpx.Response(200, text="[]")
        number = f"26{day[5:7]}.{day[8:]}{page:03}"
        row = responses.hf_row(
            number, f"Paper {number}", submittedOnDailyAt=f"{day}T01:00:00Z", upvotes=self.upvotes
        )
        headers = {"link": '<https://huggingface.co/next>; rel="next"'} if page == 0 else {}
        return httpx.Response(200, text=responses.hf(row), headers=headers)

    def requested_days(self) -> list[str]:
        return [url.params["date"] for url in self.requests if url.params.get("p") == "0"]

    def requests_to(self, host: str) -> list[httpx.URL]:
        return [url for url in self.requests if url.host == host]


async def _at_once(_seconds: float) -> None:
    """Sleep for no time."""


async def _resolve(host: str, port: int) -> list[str]:
    return ["93.184.215.14"]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def live(app: Application, world: World) -> Application:
    """Return the application with these fake servers."""
    settings = app.settings.model_copy(update={"backfill_days": 4})
    return replace(app, settings=settings, http=HttpTransport(httpx.MockTransport(world), _at_once, _resolve))


def source(app: Application, kind: SourceKind) -> Source:
    with app.db.read() as session:
        return session.exec(select(Source).where(Source.kind == kind)).one()


def test_the_first_refresh_seeds_the_sources_and_fills_the_last_days(
    live: Application, world: World, now: datetime
) -> None:
    """Hugging Face is read by day and page, arXiv's feed for today, and its query API for earlier days."""
    result = pipeline.refresh(live, now)
    assert result.polled == ("Hugging Face Daily Papers", "arXiv announcements")
    assert result.failed == {}
    assert world.requested_days() == ["2026-11-16", "2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"]
    assert len(world.requests_to("export.arxiv.org")) == 4
    assert result.summary.papers_new == 5 * 2 + 4 + 1
    with live.db.read() as session:
        run = session.exec(select(JobRun)).one()
        days = {listing.listed_on for listing in session.exec(select(Listing))}
    assert run.counts["papers_new"] == result.summary.papers_new
    assert days == {date(2026, 11, day) for day in range(16, 21)}


def test_a_source_is_asked_when_it_is_due_and_then_only_for_what_can_be_new(
    live: Application, world: World, now: datetime
) -> None:
    """A later poll reads yesterday and today again, for their votes, and arXiv's feed with its ETag."""
    pipeline.refresh(live, now)
    world.requests.clear()
    assert pipeline.refresh(live, now + timedelta(minutes=5)).polled == ()
    assert world.requests == []
    world.upvotes = 9
    again = pipeline.refresh(live, now + timedelta(hours=1))
    assert world.requested_days() == ["2026-11-19", "2026-11-20"]
    assert world.requests_to("export.arxiv.org") == []
    assert (again.summary.papers_new, again.summary.changed) == (0, 4)
    with live.db.read() as session:
        row = session.exec(select(VoteCount).where(VoteCount.at == now + timedelta(hours=1))).first()
    assert row is not None
    assert row.upvotes == 9


def test_days_missed_in_an_outage_are_caught_up(live: Application, world: World, now: datetime) -> None:
    """After ten days, every day since the watermark is read, over two weekends."""
    pipeline.refresh(live, now)
    world.requests.clear()
    pipeline.refresh(live, now + timedelta(days=10))
    assert world.requested_days()[0] == "2026-11-19"
    assert world.requested_days()[-1] == "2026-11-30"
    # arXiv: Mon 23 to Fri 27 without Thanksgiving; today's own list comes by the feed.
    assert len(world.requests_to("export.arxiv.org")) == 4
    assert source(live, SourceKind.ARXIV_FEED).watermark == date(2026, 11, 29)
    assert source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 28)


def test_one_failing_source_stops_no_other_and_backs_off(
    live: Application, world: World, now: datetime
) -> None:
    """Its error is stored, its next poll is delayed more each time, and a successful poll clears both."""
    world.broken["huggingface.co"] = httpx.Response(500)
    result = pipeline.refresh(live, now)
    assert list(result.failed) == ["Hugging Face Daily Papers"]
    assert result.summary.papers_new == 5
    failing = source(live, SourceKind.HUGGINGFACE)
    assert (failing.failures, failing.next_poll_at) == (1, now + timedelta(minutes=5))
    assert "HTTP 500" in (failing.last_error or "")
    pipeline.refresh(live, now + timedelta(minutes=5))
    assert source(live, SourceKind.HUGGINGFACE).next_poll_at == now + timedelta(minutes=20)
    world.broken.clear()
    pipeline.refresh(live, now + timedelta(minutes=20))
    mended = source(live, SourceKind.HUGGINGFACE)
    assert (mended.failures, mended.last_error) == (0, None)
    assert mended.next_poll_at == now + timedelta(minutes=80)


def test_rows_are_counted_over_all_pages_of_a_day(live: Application, world: World, now: datetime) -> None:
    """Each page has a bad first row. The two rejections have row numbers within the day."""
    real = world.daily

    def spoiled(request: httpx.Request) -> httpx.Response:
        good = real(request)
        return httpx.Response(200, json=[17, *good.json()], headers=good.headers)

    world.daily = spoiled  # type: ignore[method-assign]
    live = replace(live, settings=live.settings.model_copy(update={"backfill_days": 0}))
    summary = pipeline.refresh(live, now, source_id=_seeded(live, now)).summary
    assert [rejection.row for rejection in summary.rejections] == [1, 3, 1, 3]
    assert (summary.rows, summary.papers_new, summary.rejected) == (8, 4, 4)


def _seeded(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now).id or 0


def test_hugging_face_is_one_source(live: Application, now: datetime) -> None:
    """A second source for Hugging Face is refused, because votes would count twice."""
    _seeded(live, now)
    with live.db.write() as session, pytest.raises(Conflict, match="“Days” is this source already"):
        source_registry.add(session, "Again", SourceKind.HUGGINGFACE, {}, now)


def test_a_login_page_is_a_fault_and_not_an_empty_day(live: Application, world: World, now: datetime) -> None:
    """The watermark does not move, so the day is read when the source works again."""
    world.broken["huggingface.co"] = httpx.Response(200, text="<!DOCTYPE html><html>Sign in</html>")
    assert "web page" in pipeline.refresh(live, now).failed["Hugging Face Daily Papers"]
    assert source(live, SourceKind.HUGGINGFACE).watermark is None


def test_arxivs_429_holds_for_all_of_its_sources(live: Application, world: World, now: datetime) -> None:
    """All arXiv sources wait ten minutes, also one that was not due."""
    with live.db.write() as session:
        query = source_registry.add(session, "Pigeons", SourceKind.ARXIV, {"query": "all:pigeon"}, now)
        query.next_poll_at = now + timedelta(minutes=1)
        source_registry.add(session, "arXiv", SourceKind.ARXIV_FEED, {"categories": ["cs.AI"]}, now)
    world.broken["rss.arxiv.org"] = httpx.Response(429)
    pipeline.refresh(live, now)
    assert source(live, SourceKind.ARXIV).next_poll_at == now + timedelta(minutes=10)
    assert source(live, SourceKind.ARXIV_FEED).next_poll_at == now + timedelta(minutes=10)


def test_an_operators_feed_and_query_are_polled(live: Application, world: World, now: datetime) -> None:
    """A feed's entries have their own days. A query is sent for each day's submissions."""
    with live.db.write() as session:
        feed = source_registry.add(session, "Birds", SourceKind.FEED, {"url": "https://birds.test/rss"}, now)
        query = source_registry.add(session, "Pigeons", SourceKind.ARXIV, {"query": "all:pigeon"}, now)
        ids = (feed.id, query.id)
    assert pipeline.refresh(live, now, source_id=ids[0]).summary.papers_new == 2
    summary = pipeline.refresh(live, now, source_id=ids[1]).summary
    assert (summary.papers_new, summary.papers_merged) == (4, 1), "one has the DOI that the feed had"
    search_query = world.requests_to("export.arxiv.org")[0].params["search_query"]
    assert search_query == "(all:pigeon) AND submittedDate:[202611121900 TO 202611131900]"


def test_a_paused_source_is_not_asked(live: Application, world: World, now: datetime) -> None:
    """A paused source is not polled until it is resumed."""
    pipeline.refresh(live, now)
    world.requests.clear()
    with live.db.write() as session:
        for row in source_registry.all_sources(session):
            source_registry.pause(session, row)
    assert pipeline.refresh(live, now + timedelta(days=1)).polled == ()
    assert world.requests == []


def test_what_is_read_from_files_is_not_asked(app: Application, now: datetime, folder: Path) -> None:
    """A source for files has no URL and is not polled."""
    pipeline.read_files(app, [folder / "4-page.txt"], now)
    with pytest.raises(Conflict, match="read from files"):
        pipeline.refresh(app, now, source_id=source(app, SourceKind.PAGE).id)


def test_only_one_process_asks_a_source_at_a_time(live: Application, world: World, now: datetime) -> None:
    """A second process does not poll it. The lease of a dead process expires."""
    with live.db.write() as session:
        source_registry.seed(session, ["cs.CL"], now)
        for name in map(source_registry.lease_of, source_registry.all_sources(session)):
            locks.acquire(session, name, "another process", now, timedelta(minutes=30))
    assert pipeline.refresh(live, now).busy
    assert world.requests == []
    assert not pipeline.refresh(live, now + timedelta(minutes=30)).busy


def test_a_fault_in_the_middle_keeps_what_was_read_before_it(
    live: Application, world: World, now: datetime
) -> None:
    """Each day is stored separately, and the next poll continues at the failed day."""
    real = world.daily

    def until_thursday(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500) if request.url.params["date"] >= "2026-11-19" else real(request)

    world.daily = until_thursday  # type: ignore[method-assign]
    result = pipeline.refresh(live, now)
    assert "Hugging Face Daily Papers" in result.failed
    assert source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 18)


def test_a_day_that_cannot_be_read_keeps_no_other_from_readers(
    live: Application, world: World, now: datetime
) -> None:
    """Later days are still read. The watermark stays, and the failed day is read when it works again."""
    real = world.daily

    def but_tuesday(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500) if request.url.params["date"] == "2026-11-17" else real(request)

    world.daily = but_tuesday  # type: ignore[method-assign]
    assert "HTTP 500" in pipeline.refresh(live, now).failed["Hugging Face Daily Papers"]
    assert set(world.requested_days()) == {"2026-11-16", "2026-11-17", "2026-11-19", "2026-11-20"}
    assert source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 16)
    world.daily = real  # type: ignore[method-assign]
    world.requests.clear()
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    assert set(world.requested_days()) == {"2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"}


def test_todays_announcement_does_not_wait_for_the_missed_days(
    live: Application, world: World, now: datetime
) -> None:
    """A failing query API does not delay the feed."""
    world.broken["export.arxiv.org"] = httpx.Response(500)
    assert "arXiv announcements" in pipeline.refresh(live, now).failed
    with live.db.read() as session:
        assert session.exec(select(Paper).where(Paper.arxiv_id == "2611.29999")).one()
    feed = source(live, SourceKind.ARXIV_FEED)
    assert (feed.watermark, feed.etag) == (None, None)
    world.broken.clear()
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    assert source(live, SourceKind.ARXIV_FEED).watermark == TODAY


# --- files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one file of each kind and two unreadable ones."""
    place = tmp_path / "saved"
    place.mkdir()
    rows = [responses.hf_row("2611.00001"), 17, responses.hf_row("2611.00002", "Owls at Noon")]
    (place / "1-daily-2026-11-19.json").write_text(json.dumps(rows))
    (place / "2-login.json").write_text("<html>Sign in</html>")
    (place / "3-arxiv.xml").write_text(responses.api(responses.api_entry()))
    (place / "4-page.txt").write_text(responses.PAGE)
    (place / "5-feed.xml").write_text(responses.feed(responses.feed_entry(), responses.feed_entry())[:-30])
    return place


def _tables(session: Session) -> list[dict[str, object]]:
    tables = (Source, Paper, Listing, VoteCount)
    return [row.model_dump() for table in tables for row in session.exec(select(table).order_by(table.id))]  # type: ignore[attr-defined]


def test_files_are_read_and_what_cannot_be_is_told(app: Application, now: datetime, folder: Path) -> None:
    """Unreadable files are reported, the others are read, and every row is counted once."""
    result = pipeline.read_files(app, [*sorted(folder.iterdir()), folder / "missing.json"], now)
    assert result.files == 6
    assert [Path(name).name for name in result.unreadable] == ["2-login.json", "missing.json"]
    rejections = [(Path(r.origin).name, r.reason, r.row) for r in result.summary.rejections]
    assert rejections == [
        ("1-daily-2026-11-19.json", "the row is not an object", 2),
        ("2-login.json", "the file cannot be read", None),
        ("5-feed.xml", "the answer was cut off", None),
        ("missing.json", "the file cannot be read", None),
    ]
    counts = result.summary.counts()
    assert counts == {
        "rows": 8,
        "papers_new": 5,
        "papers_merged": 0,
        "changed": 2,
        "unchanged": 0,
        "listings": 6,
        "rejected": 4,
    }


def test_reading_files_again_changes_nothing(app: Application, now: datetime, folder: Path) -> None:
    """Reading the same files again changes nothing, also on the next day."""
    pipeline.read_files(app, sorted(folder.iterdir()), now)
    with app.db.read() as session:
        before = _tables(session)
    again = pipeline.read_files(app, sorted(folder.iterdir()), now + timedelta(days=1))
    with app.db.read() as session:
        assert _tables(session) == before
    assert again.summary.counts()["unchanged"] == 7


def test_files_of_a_polled_source_are_its_own_days(live: Application, now: datetime, folder: Path) -> None:
    """A day that is read from a file and polled later gives one listing."""
    pipeline.read_files(live, [folder / "1-daily-2026-11-19.json"], now)
    assert pipeline.refresh(live, now).failed == {}
    with live.db.read() as session:
        kinds = select(Source.kind).join(Listing, col(Listing.source_id) == Source.id).distinct()
        assert set(session.exec(kinds)) == {SourceKind.HUGGINGFACE, SourceKind.ARXIV_FEED}
        assert len(session.exec(select(Source)).all()) == 2


def test_the_operators_word_on_kind_and_day_counts(app: Application, now: datetime, tmp_path: Path) -> None:
    """The given kind and day apply to a page that was saved last year."""
    page = tmp_path / "page.txt"
    page.write_text(responses.PAGE)
    pipeline.read_files(app, [page], now, kind=SourceKind.PAGE, day=date(2025, 3, 1))
    with app.db.read() as session:
        assert set(session.exec(select(Listing.listed_on))) == {date(2025, 3, 1)}
