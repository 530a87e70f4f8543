"""Test polling and reading files: stored papers, stored state, and behaviour on faults."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import stamina
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, func, select

from app import pipeline
from app.application import Application
from app.errors import Conflict
from app.papers import poll_history, poll_schedule, polling, searchable_papers, source_registry
from app.papers.sources.http_client import HttpTransport
from app.storage import locks
from app.storage.models import Delivery, JobRun, Listing, Paper, Source, Subscriber, VoteCount
from app.types import SourceKind
from tests.papers.sources import responses
from tests.support import factories
from tests.support.interleaving import before_statement

TODAY = date(2026, 11, 20)  # a Friday
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Make retries immediate."""
    stamina.set_testing(True, attempts=2)
    yield
    stamina.set_testing(False)


class FakeUpstreams:
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


async def _no_sleep(_seconds: float) -> None:
    """Return immediately instead of sleeping."""


async def _resolve(host: str, port: int) -> list[str]:
    return ["93.184.215.14"]


@pytest.fixture
def upstreams() -> FakeUpstreams:
    return FakeUpstreams()


@pytest.fixture
def live(app: Application, upstreams: FakeUpstreams) -> Application:
    """Return the application with these fake servers."""
    settings = app.settings.model_copy(update={"backfill_days": 4})
    return replace(
        app, settings=settings, http=HttpTransport(httpx.MockTransport(upstreams), _no_sleep, _resolve)
    )


def get_source(app: Application, kind: SourceKind) -> Source:
    with app.db.read() as session:
        return session.exec(select(Source).where(Source.kind == kind)).one()


def stop_for_three_days(app: Application, now: datetime) -> None:
    """Poll all sources for the last time three days ago, and add a reader who has been due since today."""
    pipeline.refresh(app, now - timedelta(days=3))
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "alice@example.org", ["paper"], now - timedelta(days=3))
        session.get_one(Subscriber, reader).next_due_at = now


def listing_days_of_digest(app: Application) -> set[date | None]:
    """Return the days on which the papers of the only digest were first listed."""
    with app.db.read() as session:
        digest = factories.load_digest(app, session.exec(select(Delivery)).one())
        return {session.get_one(Paper, pick.paper_id).first_listed_on for pick in digest.picks}


def test_missed_polls_precede_planning(live: Application, now: datetime) -> None:
    """The first digest after a downtime contains the papers that were listed during the downtime."""
    stop_for_three_days(live, now)
    assert pipeline.plan(live, now) == {}
    assert get_source(live, SourceKind.HUGGINGFACE).polled_at == now
    assert pipeline.plan(live, now + MINUTE) == {"planned": 1}
    assert max(filter(None, listing_days_of_digest(live))) == TODAY


HOSTS = ("huggingface.co", "rss.arxiv.org", "export.arxiv.org")


@pytest.mark.parametrize("fault", [httpx.Response(503), httpx.ConnectError("refused")])
def test_planning_waits_for_one_retry_of_a_broken_source(
    live: Application, upstreams: FakeUpstreams, now: datetime, fault: Any
) -> None:
    """When it fails again, the digest is planned without its papers."""
    stop_for_three_days(live, now)
    upstreams.broken = dict.fromkeys(HOSTS, fault)
    assert [pipeline.plan(live, now + minutes * MINUTE) for minutes in range(6)] == [{}] * 6
    assert get_source(live, SourceKind.HUGGINGFACE).failures == 2
    assert pipeline.plan(live, now + 6 * MINUTE) == {"planned": 1}


def test_planning_waits_for_the_network(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """After a boot, the first poll fails; the digest contains the papers of the retry."""
    stop_for_three_days(live, now)
    upstreams.broken = dict.fromkeys(HOSTS, httpx.ConnectError("no route"))
    assert pipeline.plan(live, now) == {}
    upstreams.broken = {}
    pipeline.refresh(live, now + 5 * MINUTE)
    assert pipeline.plan(live, now + 6 * MINUTE) == {"planned": 1}
    assert max(filter(None, listing_days_of_digest(live))) == TODAY


def test_planning_does_not_wait_for_other_sources(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another source is polled at each run, while a dead process holds the lease of the late ones."""
    stop_for_three_days(live, now)
    monkeypatch.setattr(polling, "poll", lambda *_: polling.PollResult(polled=("Another",)))
    assert pipeline.plan(live, now) == {"planned": 1}


def test_missed_polls_use_the_time_of_the_database(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of the clocks is added once."""
    stop_for_three_days(live, now)
    monkeypatch.setattr(type(live.db), "skew", lambda _db: 40 * MINUTE)
    assert pipeline.plan(live, now) == {}
    assert get_source(live, SourceKind.HUGGINGFACE).polled_at == now + 40 * MINUTE


def test_planning_does_not_wait_if_polling_fails(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, because of an error in the table of sources."""
    stop_for_three_days(live, now)
    monkeypatch.delattr(source_registry, "seed")
    assert pipeline.plan(live, now) == {"planned": 1}


def test_planning_waits_for_a_running_poll(live: Application, now: datetime) -> None:
    """It waits for five minutes at most, even if the lease of the poll is held longer."""
    stop_for_three_days(live, now)
    with live.db.write() as session:
        for source in session.exec(select(Source)):
            assert locks.acquire(session, poll_schedule.lease_of(source), "other:1:a", now, DAY)
            poll_schedule.begin(source, now)
    waits = [pipeline.plan(live, now + minutes * MINUTE) == {} for minutes in range(6)]
    assert waits == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("polled_at", "failures", "paused", "is_missed"),
    [
        (timedelta(hours=1, minutes=16), 0, False, True),
        (timedelta(hours=1, minutes=14), 0, False, False),
        (timedelta(days=3), 1, False, True),
        (timedelta(days=3), 2, False, False),
        (timedelta(days=3), 0, True, False),
        (None, 0, False, False),
    ],
)
def test_missed_sources(
    app: Application,
    now: datetime,
    polled_at: timedelta | None,
    failures: int,
    paused: bool,
    is_missed: bool,
) -> None:
    with app.db.write() as session:
        source = factories.add_source(session, now)
        source.polled_at, source.next_poll_at = now - polled_at if polled_at else None, now
        source.failures, source.paused = failures, paused
    with app.db.read() as session:
        assert bool(poll_schedule.missed_sources(session, now)) is is_missed


@pytest.mark.parametrize(
    ("error", "postponed_by"), [(poll_schedule.TIMED_OUT, MINUTE), ("429: please wait", timedelta(hours=1))]
)
def test_planning_does_not_wait_for_a_long_poll(
    app: Application, now: datetime, error: str, postponed_by: timedelta
) -> None:
    """The source takes more than one poll, or its server has asked for a long wait."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        source.polled_at, source.next_poll_at = now - timedelta(days=3), now + postponed_by
        source.failures, source.last_error = 1, error
    with app.db.read() as session:
        assert not poll_schedule.missed_sources(session, now)


def test_first_refresh_adds_sources_and_backfills(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """Hugging Face is read by day and page, arXiv's feed for today, and its query API for earlier days."""
    result = pipeline.refresh(live, now)
    assert result.polled == ("Hugging Face Daily Papers", "arXiv announcements")
    assert result.failed == {}
    assert upstreams.requested_days() == [
        "2026-11-16",
        "2026-11-17",
        "2026-11-18",
        "2026-11-19",
        "2026-11-20",
    ]
    assert len(upstreams.requests_to("export.arxiv.org")) == 4
    assert result.summary.papers_new == 5 * 2 + 4 + 1
    with live.db.read() as session:
        run = session.exec(select(JobRun)).one()
        days = {listing.listed_on for listing in session.exec(select(Listing))}
    assert run.counts["papers_new"] == result.summary.papers_new
    assert days == {date(2026, 11, day) for day in range(16, 21)}


def test_due_source_is_polled_incrementally(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """A later poll reads yesterday and today again, for their votes, and arXiv's feed with its ETag."""
    pipeline.refresh(live, now)
    upstreams.requests.clear()
    assert pipeline.refresh(live, now + timedelta(minutes=5)).polled == ()
    assert upstreams.requests == []
    upstreams.upvotes = 9
    again = pipeline.refresh(live, now + timedelta(hours=1))
    assert upstreams.requested_days() == ["2026-11-19", "2026-11-20"]
    assert upstreams.requests_to("export.arxiv.org") == []
    assert (again.summary.papers_new, again.summary.changed) == (0, 4)
    with live.db.read() as session:
        row = session.exec(select(VoteCount).where(VoteCount.at >= now + timedelta(hours=1))).first()
    assert row is not None
    assert row.upvotes == 9


def test_missed_days_are_backfilled(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """After ten days, every day since the watermark is read, over two weekends."""
    pipeline.refresh(live, now)
    upstreams.requests.clear()
    pipeline.refresh(live, now + timedelta(days=10))
    assert upstreams.requested_days()[0] == "2026-11-19"
    assert upstreams.requested_days()[-1] == "2026-11-30"
    # arXiv: Mon 23 to Thu 26, since nothing is announced on Thanksgiving evening; the feed has today's list.
    assert len(upstreams.requests_to("export.arxiv.org")) == 4
    assert get_source(live, SourceKind.ARXIV_FEED).watermark == date(2026, 11, 29)
    assert get_source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 28)


def test_clock_was_ahead(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """Sources are polled as soon as the clock is right, and the days of the backfill are read."""
    pipeline.refresh(live, now + timedelta(days=365))
    upstreams.requests.clear()
    assert len(pipeline.refresh(live, now).polled) == 2
    assert upstreams.requested_days()[0] == "2026-11-16"
    assert len(upstreams.requests_to("export.arxiv.org")) == 4
    assert get_source(live, SourceKind.ARXIV_FEED).watermark == TODAY
    assert get_source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 18)
    assert pipeline.refresh(live, now + timedelta(minutes=5)).polled == ()


def test_announcement_dated_in_the_future(
    live: Application, upstreams: FakeUpstreams, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The days until then do not count as read."""
    monkeypatch.setattr("tests.papers.test_polling.TODAY", date(2027, 11, 20))
    pipeline.refresh(live, now)
    assert get_source(live, SourceKind.ARXIV_FEED).watermark == now.date()


def test_changes_within_a_run_have_different_times(
    live: Application, upstreams: FakeUpstreams, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search that updates its index between two changes of a paper also learns the second one."""
    times: list[datetime | None] = []

    def same_paper(request: httpx.Request) -> httpx.Response:
        with live.db.read() as session:
            times.append(searchable_papers.marks(session, now + timedelta(hours=1)).changed_at)
        day = request.url.params["date"]
        return httpx.Response(200, text=responses.hf(responses.hf_row(title=f"Pigeons on {day}")))

    monkeypatch.setattr(upstreams, "daily", same_paper)
    pipeline.refresh(live, now, source_id=_seeded(live, now))
    assert len(times) == len(set(times)) == 5


def test_failing_source_backs_off_without_affecting_others(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """Its error is stored, its next poll is delayed more each time, and a successful poll clears both."""
    upstreams.broken["huggingface.co"] = httpx.Response(500)
    result = pipeline.refresh(live, now)
    assert list(result.failed) == ["Hugging Face Daily Papers"]
    assert result.summary.papers_new == 5
    failing = get_source(live, SourceKind.HUGGINGFACE)
    assert (failing.failures, failing.next_poll_at) == (1, now + timedelta(minutes=5))
    assert "HTTP 500" in (failing.last_error or "")
    pipeline.refresh(live, now + timedelta(minutes=5))
    assert get_source(live, SourceKind.HUGGINGFACE).next_poll_at == now + timedelta(minutes=20)
    upstreams.broken.clear()
    pipeline.refresh(live, now + timedelta(minutes=20))
    mended = get_source(live, SourceKind.HUGGINGFACE)
    assert (mended.failures, mended.last_error) == (0, None)
    assert mended.next_poll_at == now + timedelta(minutes=80)


def test_control_characters_in_an_error_do_not_stop_the_run(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """The error is stored without them, also if the response is in UTF-16."""
    with live.db.write() as session:
        source_registry.seed(session, live.settings.arxiv_categories, now)
        source_registry.add(session, "Birds", SourceKind.FEED, {"url": "https://birds.test/rss"}, now)
    upstreams.broken["93.184.215.14"] = httpx.Response(404, content="gone\x1b[2J".encode("utf-16-le"))
    result = pipeline.refresh(live, now)
    assert result.failed == {"Birds": "birds.test: HTTP 404. g o n e [ 2 J"}
    assert result.summary.papers_new == 15
    assert get_source(live, SourceKind.FEED).last_error == result.failed["Birds"]


def test_poll_that_cannot_be_recorded_does_not_affect_others(
    live: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as unfinished, so the source is polled alone next time."""
    record = poll_history.record

    def fail_for_hugging_face(session: Session, source: Source, *rest: Any) -> None:
        if source.kind is SourceKind.HUGGINGFACE:
            raise RuntimeError("broken")
        record(session, source, *rest)

    monkeypatch.setattr(poll_history, "record", fail_for_hugging_face)
    result = pipeline.refresh(live, now)
    assert result.failed == {"Hugging Face Daily Papers": "RuntimeError: broken"}
    assert result.summary.papers_new == 15
    assert source_registry.is_unfinished(get_source(live, SourceKind.HUGGINGFACE))
    assert get_source(live, SourceKind.ARXIV_FEED).polled_at == now


def test_row_numbers_continue_over_pages(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """Each page has a bad first row. The two rejections have row numbers within the day."""
    real = upstreams.daily

    def spoiled(request: httpx.Request) -> httpx.Response:
        good = real(request)
        return httpx.Response(200, json=[17, *good.json()], headers=good.headers)

    upstreams.daily = spoiled  # type: ignore[method-assign]
    live = replace(live, settings=live.settings.model_copy(update={"backfill_days": 0}))
    summary = pipeline.refresh(live, now, source_id=_seeded(live, now)).summary
    assert [rejection.row for rejection in summary.rejections] == [1, 3, 1, 3]
    assert (summary.rows, summary.papers_new, summary.rejected) == (8, 4, 4)


def _seeded(app: Application, now: datetime) -> int:
    with app.db.write() as session:
        return source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now).id or 0


def test_second_hugging_face_source_is_refused(live: Application, now: datetime) -> None:
    """Votes would count twice."""
    _seeded(live, now)
    with live.db.write() as session, pytest.raises(Conflict, match="this source already exists as “Days”"):
        source_registry.add(session, "Again", SourceKind.HUGGINGFACE, {}, now)


@pytest.mark.postgres
def test_sources_are_added_one_after_the_other(app: Application, now: datetime) -> None:
    """Otherwise, two Hugging Face sources could be added at once."""
    with app.db.write() as session:
        source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now)
        with Session(app.db.engine) as other:
            other.execute(text("SET LOCAL lock_timeout = '1ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                source_registry.add(other, "Again", SourceKind.HUGGINGFACE, {}, now)


@pytest.mark.postgres
def test_polls_do_not_wait_while_a_source_is_added(app: Application, now: datetime) -> None:
    with app.db.write() as session:
        source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now)
    with app.db.write() as session:
        source_registry.add(session, "Feed", SourceKind.FEED, {"url": "https://lab.example/feed.xml"}, now)
        with Session(app.db.engine) as other:
            other.execute(text("SET LOCAL lock_timeout = '1ms'"))
            source_registry.seed(other, (), now)


@pytest.mark.parametrize(
    ("kind", "config", "same", "other"),
    [
        (
            SourceKind.FEED,
            {"url": "https://lab.example/feed.xml"},
            {"url": "http://LAB.example:80/feed.xml/#top"},
            {"url": "https://lab.example/feed.xml?page=2"},
        ),
        (
            SourceKind.ARXIV_FEED,
            {"categories": ["cs.AI", "cs.CL"]},
            {"categories": ["cs.CL", "cs.AI"]},
            {"categories": ["cs.AI"]},
        ),
        (SourceKind.ARXIV, {"query": "all:owl"}, {"query": "all:owl"}, {"query": "all:owls"}),
        (SourceKind.ARXIV_OAI, {}, {}, {"set": "cs"}),
    ],
)
def test_source_cannot_be_added_twice(
    app: Application, now: datetime, kind: SourceKind, config: Any, same: Any, other: Any
) -> None:
    """Its papers would be listed by two sources. A removed source does not count, nor do sources of files."""
    with app.db.write() as session:
        source_registry.source_for_files(session, kind, now)
        source_registry.remove(session, source_registry.add(session, "Old", kind, config, now), now)
        first = source_registry.add(session, "First", kind, config, now)
        with pytest.raises(Conflict, match="already exists as “First”"):
            source_registry.add(session, "Again", kind, same, now)
        second = source_registry.add(session, "Second", kind, other, now)
        with pytest.raises(Conflict, match="already exists as “First”"):
            source_registry.change(session, second, now, name="Again", config=same)
        source_registry.change(session, first, now, name="Renamed", config=same)


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "stored", "same", "others"),
    [
        (
            SourceKind.FEED,
            {"url": "https://bücher.example/feed", "allow_private": True},
            {"url": "https://xn--bcher-kva.example.:443/feed"},
            [
                "https://bücher.example:80/feed",
                "http://bücher.example:443/feed",
                "https://bücher.example/Feed",
            ],
        ),
        (SourceKind.ARXIV_FEED, {"categories": ["cs.AI", "cs.AI"]}, {"categories": ["cs.AI"]}, []),
        (SourceKind.HUGGINGFACE, {"allow_private": True}, {}, []),
    ],
)
def test_source_stored_by_an_old_release_cannot_be_added_again(
    app: Application, now: datetime, kind: SourceKind, stored: Any, same: Any, others: list[str]
) -> None:
    """It may have options that no longer exist, and other spellings of the same host or categories."""
    with app.db.write() as session:
        session.add(Source(name="Old", kind=kind, config=stored, created_at=now))
        with pytest.raises(Conflict, match="already exists as “Old”"):
            source_registry.add(session, "Again", kind, same, now)
        for url in others:
            source_registry.add(session, url, kind, {"url": url}, now)


@pytest.mark.postgres
def test_name_is_taken_while_a_source_is_renamed(app: Application, now: datetime) -> None:
    def add_another() -> None:
        with app.db.write() as session:
            source_registry.add(session, "Lab", SourceKind.FEED, {"url": "https://example.org/lab"}, now)

    with app.db.write() as session:
        source = source_registry.add(session, "Days", SourceKind.HUGGINGFACE, {}, now)
    with (
        pytest.raises(Conflict, match="“Lab” already exists"),
        before_statement(app.db.engine, "UPDATE source SET name", add_another),
        app.db.write() as session,
    ):
        source_registry.change(session, source_registry.get(session, source.id or 0), now, name="Lab")


@pytest.mark.postgres
def test_two_processes_add_the_source_for_files(app: Application, now: datetime) -> None:
    """Both get the same source."""
    ids = []

    def find_source() -> None:
        with app.db.write() as session:
            ids.append(source_registry.source_for_files(session, SourceKind.JSONL, now).id)

    with before_statement(app.db.engine, "INSERT INTO source ", find_source):
        find_source()
    assert ids[0] == ids[1]


def test_login_page_is_an_error(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """The watermark does not move, so the day is read when the source works again."""
    upstreams.broken["huggingface.co"] = httpx.Response(200, text="<!DOCTYPE html><html>Sign in</html>")
    assert "web page" in pipeline.refresh(live, now).failed["Hugging Face Daily Papers"]
    assert get_source(live, SourceKind.HUGGINGFACE).watermark is None


def test_arxiv_429_delays_all_arxiv_sources(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """All arXiv sources wait ten minutes, also one that was not due."""
    with live.db.write() as session:
        query = source_registry.add(session, "Pigeons", SourceKind.ARXIV, {"query": "all:pigeon"}, now)
        query.next_poll_at = now + timedelta(minutes=1)
        source_registry.add(session, "arXiv", SourceKind.ARXIV_FEED, {"categories": ["cs.AI"]}, now)
    upstreams.broken["rss.arxiv.org"] = httpx.Response(429)
    pipeline.refresh(live, now)
    assert get_source(live, SourceKind.ARXIV).next_poll_at == now + timedelta(minutes=10)
    assert get_source(live, SourceKind.ARXIV_FEED).next_poll_at == now + timedelta(minutes=10)


def test_custom_feed_and_query(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """A feed's entries have their own days. A query is sent for each day's submissions."""
    with live.db.write() as session:
        feed = source_registry.add(session, "Birds", SourceKind.FEED, {"url": "https://birds.test/rss"}, now)
        query = source_registry.add(session, "Pigeons", SourceKind.ARXIV, {"query": "all:pigeon"}, now)
        ids = (feed.id, query.id)
    assert pipeline.refresh(live, now, source_id=ids[0]).summary.papers_new == 2
    summary = pipeline.refresh(live, now, source_id=ids[1]).summary
    assert (summary.papers_new, summary.papers_merged) == (4, 1), "one has the DOI that the feed had"
    search_query = upstreams.requests_to("export.arxiv.org")[0].params["search_query"]
    assert search_query == "(all:pigeon) AND submittedDate:[202611121900 TO 202611131900]"


def test_relative_link_in_a_feed(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """The link gets the feed's host, but not the token that the feed needs."""
    entry = "<item><title>Owls That Plan</title><link>#owls</link></item>"
    text = f"<rss><channel>{entry}</channel></rss>"
    upstreams.broken["93.184.215.14"] = httpx.Response(200, text=text)
    with live.db.write() as session:
        config = {"url": "https://lab.test/rss?token=secret"}
        source_id = source_registry.add(session, "Owls", SourceKind.FEED, config, now).id
    assert pipeline.refresh(live, now, source_id=source_id).failed == {}
    with live.db.read() as session:
        assert session.exec(select(Paper.url)).all() == ["https://lab.test/rss#owls"]


def test_explanation_of_arxiv(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """An error feed with status 400 says what is wrong with a query."""
    upstreams.broken["export.arxiv.org"] = httpx.Response(400, text=responses.API_ERROR)
    with live.db.write() as session:
        query = source_registry.add(session, "Owls", SourceKind.ARXIV, {"query": 'ti:"owls'}, now).id
    failed = pipeline.refresh(live, now, source_id=query).failed
    assert failed == {"Owls": "arxiv.org: HTTP 400. incorrect id format for abc"}


def test_paused_source_is_not_polled(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """It is polled again after it is resumed."""
    pipeline.refresh(live, now)
    upstreams.requests.clear()
    with live.db.write() as session:
        for row in source_registry.all_sources(session):
            source_registry.pause(session, row)
    assert pipeline.refresh(live, now + timedelta(days=1)).polled == ()
    assert upstreams.requests == []


def test_removed_source(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """It is not polled, nor added again by itself. Its papers stay, and adding it again back-fills it."""
    pipeline.refresh(live, now)
    upstreams.requests.clear()
    with live.db.write() as session:
        listings = session.exec(select(func.count()).select_from(Listing)).one()
        ids = [row.id for row in source_registry.all_sources(session)]
        for row in source_registry.all_sources(session):
            source_registry.remove(session, row, now)
    assert pipeline.refresh(live, now + timedelta(days=1)).polled == ()
    with live.db.read() as session:
        assert source_registry.all_sources(session) == []
        assert session.exec(select(func.count()).select_from(Listing)).one() == listings
    later = now + timedelta(days=2)
    with live.db.write() as session:
        again = source_registry.add(session, "Hugging Face Daily Papers", SourceKind.HUGGINGFACE, {}, later)
        other = source_registry.add(
            session, "arXiv announcements", SourceKind.FEED, {"url": "https://a.test/"}, later
        )
        assert (again.id in ids, other.id in ids) == (True, False), "another kind is another source"
        assert source_registry.describe_state(again) == "not polled yet"
        source_registry.remove(session, other, later)
    assert pipeline.refresh(live, later).polled == ("Hugging Face Daily Papers",)
    assert "2026-11-18" in upstreams.requested_days()


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"last_error": source_registry.UNFINISHED}, "being polled, or the process died"),
        ({"last_error": "the poll was interrupted"}, "the poll was interrupted"),
        ({"last_error": "HTTP 404", "failures": 1}, "failed once: HTTP 404"),
        ({"next_poll_at": None}, "not polled yet"),
        ({"next_poll_at": None, "kind": SourceKind.HUGGINGFACE, "config": {}}, "not polled yet"),
        ({"next_poll_at": None, "config": {}, "paused": True}, "read from files"),
        ({"polled_at": datetime(2026, 11, 20)}, "works"),
    ],
)
def test_state_of_a_source(now: datetime, fields: dict[str, object], state: str) -> None:
    """A source whose first poll did not finish, or that was never due, does not “work”."""
    row = {"kind": SourceKind.FEED, "config": {"url": "https://a.test/"}, "next_poll_at": now, **fields}
    assert source_registry.describe_state(Source(name="a", created_at=now, **row)) == state


def test_corrected_source_is_due_at_once(live: Application, now: datetime) -> None:
    """The failures belong to the old address. A new name alone changes nothing."""
    with live.db.write() as session:
        feed = source_registry.add(session, "Birds", SourceKind.FEED, {"url": "https://brids.test/"}, now)
        later = now + timedelta(hours=4)
        feed.failures, feed.last_error, feed.next_poll_at = 5, "brids.test: HTTP 404", later
        source_registry.change(session, feed, now, name="Pigeons", config=feed.config)
        assert (feed.failures, feed.last_error, feed.next_poll_at) == (5, "brids.test: HTTP 404", later)
        source_registry.change(session, feed, now, config={"url": "https://birds.test/"})
        assert (feed.failures, feed.last_error, feed.next_poll_at) == (0, None, now)


def test_file_source_is_not_polled(app: Application, now: datetime, folder: Path) -> None:
    """A source for files has no URL and is not polled."""
    pipeline.read_files(app, [folder / "4-page.txt"], now)
    with pytest.raises(Conflict, match="read from files"):
        pipeline.refresh(app, now, source_id=get_source(app, SourceKind.PAGE).id)


def test_source_is_polled_by_one_process_at_a_time(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """A second process does not poll it. The lease of a dead process expires."""
    with live.db.write() as session:
        source_registry.seed(session, ["cs.CL"], now)
        for name in map(poll_schedule.lease_of, source_registry.all_sources(session)):
            locks.acquire(session, name, "another process", now, timedelta(minutes=30))
    assert pipeline.refresh(live, now).busy
    assert upstreams.requests == []
    assert not pipeline.refresh(live, now + timedelta(minutes=30)).busy


def test_error_keeps_the_days_read_before(live: Application, upstreams: FakeUpstreams, now: datetime) -> None:
    """Each day is stored separately, and the next poll continues at the failed day."""
    real = upstreams.daily

    def until_thursday(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500) if request.url.params["date"] >= "2026-11-19" else real(request)

    upstreams.daily = until_thursday  # type: ignore[method-assign]
    result = pipeline.refresh(live, now)
    assert "Hugging Face Daily Papers" in result.failed
    assert get_source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 18)


def test_unreadable_day_does_not_block_later_days(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """Later days are still read. The watermark stays, and the failed day is read when it works again."""
    real = upstreams.daily

    def but_tuesday(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500) if request.url.params["date"] == "2026-11-17" else real(request)

    upstreams.daily = but_tuesday  # type: ignore[method-assign]
    assert "HTTP 500" in pipeline.refresh(live, now).failed["Hugging Face Daily Papers"]
    assert set(upstreams.requested_days()) == {"2026-11-16", "2026-11-17", "2026-11-19", "2026-11-20"}
    assert get_source(live, SourceKind.HUGGINGFACE).watermark == date(2026, 11, 16)
    upstreams.daily = real  # type: ignore[method-assign]
    upstreams.requests.clear()
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    assert set(upstreams.requested_days()) == {"2026-11-17", "2026-11-18", "2026-11-19", "2026-11-20"}


def test_current_feed_does_not_wait_for_the_backfill(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """A failing query API does not delay the feed."""
    upstreams.broken["export.arxiv.org"] = httpx.Response(500)
    assert "arXiv announcements" in pipeline.refresh(live, now).failed
    with live.db.read() as session:
        assert session.exec(select(Paper).where(Paper.arxiv_id == "2611.29999")).one()
    feed = get_source(live, SourceKind.ARXIV_FEED)
    assert (feed.watermark, feed.etag) == (None, None)
    upstreams.broken.clear()
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    assert get_source(live, SourceKind.ARXIV_FEED).watermark == TODAY


@pytest.mark.parametrize("kind", [SourceKind.ARXIV, SourceKind.ARXIV_FEED])
def test_day_with_missing_entries_is_requested_again(
    live: Application, upstreams: FakeUpstreams, now: datetime, kind: SourceKind
) -> None:
    """arXiv sometimes returns fewer entries than it has results. What it returned is stored."""
    config = {SourceKind.ARXIV: {"query": "all:bird"}, SourceKind.ARXIV_FEED: {"categories": ["cs.AI"]}}[kind]
    with live.db.write() as session:
        source_registry.add(session, "arXiv", kind, config, now)
    entry = responses.api_entry("2611.00001v1", "Owls at Noon")
    upstreams.broken["export.arxiv.org"] = httpx.Response(200, text=responses.api(entry, total=812))
    failed = pipeline.refresh(live, now).failed
    assert "fewer entries than arXiv has results (1 of 812 were read)" in failed["arXiv"]
    assert get_source(live, kind).watermark is None
    with live.db.read() as session:
        assert session.exec(select(Paper).where(Paper.arxiv_id == "2611.00001")).one()
    requested = len(upstreams.requests_to("export.arxiv.org"))
    assert requested == {SourceKind.ARXIV: 3, SourceKind.ARXIV_FEED: 1}[kind], (
        "the first day, and the last two"
    )
    upstreams.broken.clear()
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    assert get_source(live, kind).watermark in (date(2026, 11, 18), TODAY)


def test_feed_that_was_cut_off_is_requested_again(
    live: Application, upstreams: FakeUpstreams, now: datetime
) -> None:
    """Without its ETag: a later response would be “not modified”."""
    with live.db.write() as session:
        source_registry.add(session, "arXiv", SourceKind.ARXIV_FEED, {"categories": ["cs.AI"]}, now)
        source_registry.add(session, "Birds", SourceKind.FEED, {"url": "https://birds.test/rss"}, now)
    headers = {"etag": '"part"'}
    entries = [responses.feed_entry(f"2611.0000{n}v1", f"Owls at {n}") for n in range(5)]
    whole = responses.feed(*entries).replace("2026-11-19T", f"{TODAY}T")
    upstreams.broken["rss.arxiv.org"] = httpx.Response(200, text=whole[:-400], headers=headers)
    upstreams.broken["93.184.215.14"] = httpx.Response(200, text=responses.RSS[:-40], headers=headers)
    failed = pipeline.refresh(live, now).failed
    assert "arXiv: the response was cut off (4 complete entries were read" in failed["arXiv"]
    for kind in (SourceKind.ARXIV_FEED, SourceKind.FEED):
        assert get_source(live, kind).etag is None
    upstreams.broken["rss.arxiv.org"] = httpx.Response(200, text=whole, headers=headers)
    assert pipeline.refresh(live, now + timedelta(hours=1)).failed == {}
    with live.db.read() as session:
        announced = select(func.count()).select_from(Paper).where(col(Paper.title).startswith("Owls at "))
        assert session.exec(announced).one() == 5
    assert get_source(live, SourceKind.ARXIV_FEED).etag == '"part"'


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


def test_unreadable_files_are_reported(app: Application, now: datetime, folder: Path) -> None:
    """Unreadable files are reported, the others are read, and every row is counted once."""
    result = pipeline.read_files(app, [*sorted(folder.iterdir()), folder / "missing.json"], now)
    assert result.files == 6
    assert [Path(name).name for name in result.unreadable] == ["2-login.json", "missing.json"]
    assert [Path(name).name for name in result.incomplete] == ["5-feed.xml"]
    rejections = [(Path(r.origin).name, r.reason, r.row) for r in result.summary.rejections]
    assert rejections == [
        ("1-daily-2026-11-19.json", "the row is not an object", 2),
        ("2-login.json", "the file cannot be read", None),
        ("5-feed.xml", "the response was cut off", None),
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
    """This also holds on the next day."""
    pipeline.read_files(app, sorted(folder.iterdir()), now)
    with app.db.read() as session:
        before = _tables(session)
    again = pipeline.read_files(app, sorted(folder.iterdir()), now + timedelta(days=1))
    with app.db.read() as session:
        assert _tables(session) == before
    assert again.summary.counts()["unchanged"] == 7


def test_file_and_poll_of_one_day_share_listings(live: Application, now: datetime, folder: Path) -> None:
    """A day that is read from a file and polled later gives one listing."""
    pipeline.read_files(live, [folder / "1-daily-2026-11-19.json"], now)
    assert pipeline.refresh(live, now).failed == {}
    with live.db.read() as session:
        kinds = select(Source.kind).join(Listing, col(Listing.source_id) == Source.id).distinct()
        assert set(session.exec(kinds)) == {SourceKind.HUGGINGFACE, SourceKind.ARXIV_FEED}
        assert len(session.exec(select(Source)).all()) == 2


def test_given_kind_and_day_override_detection(app: Application, now: datetime, tmp_path: Path) -> None:
    """The given kind and day apply to a page that was saved last year."""
    page = tmp_path / "page.txt"
    page.write_text(responses.PAGE)
    pipeline.read_files(app, [page], now, kind=SourceKind.PAGE, day=date(2025, 3, 1))
    with app.db.read() as session:
        assert set(session.exec(select(Listing.listed_on))) == {date(2025, 3, 1)}
