"""Test arXiv's back catalogue: its records, its pages and how a harvest continues."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta

import httpx
import pytest
import stamina
from sqlmodel import col, select

from app import pipeline
from app.application import Application
from app.errors import InvalidInput, UnreadableResponse
from app.papers import listing_days, paper_views, poll_schedule, source_registry
from app.papers.sources import oai, source_types
from app.papers.sources.http_client import HttpTransport
from app.storage.models import Listing, Paper, Source
from app.types import SourceKind
from tests.papers.sources.responses import oai_error, oai_page, oai_record

TODAY = date(2026, 11, 20)  # a Friday


@pytest.fixture(autouse=True)
def _no_waiting() -> Iterator[None]:
    """Make retries immediate."""
    stamina.set_testing(True, attempts=2)
    yield
    stamina.set_testing(False)


class FakeCatalogue:
    """A fake OAI-PMH server. Responses are taken in order, the last one again and again."""

    def __init__(self, *answers: httpx.Response | str) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, str]] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.host == "oaipmh.arxiv.org"
        self.requests.append(dict(request.url.params))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx.Response(200, text=answer) if isinstance(answer, str) else answer

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


Harvest = Callable[..., tuple[Application, FakeCatalogue, Source]]


@pytest.fixture
def harvest(app: Application, now: datetime) -> Harvest:
    """Return a function that adds the source, with a server that gives these answers."""

    def prepare(*answers: httpx.Response | str, **config: str) -> tuple[Application, FakeCatalogue, Source]:
        server = FakeCatalogue(*answers)
        live = replace(app, http=HttpTransport(httpx.MockTransport(server), server.sleep))
        with app.db.write() as session:
            source = source_registry.add(session, "All of arXiv", SourceKind.ARXIV_OAI, config, now)
        return live, server, source

    return prepare


def reload(app: Application, source: Source) -> Source:
    with app.db.read() as session:
        return session.get_one(Source, source.id)


@pytest.mark.parametrize("answer", [oai_page(oai_record(), token="page 2 of cs"), httpx.Response(404)])
def test_change_during_a_poll(harvest: Harvest, now: datetime, answer: httpx.Response | str) -> None:
    """No progress or failure of the old set is recorded, and the new set is due at once."""
    live, server, source = harvest(answer, set="cs")

    def change(request: httpx.Request) -> httpx.Response:
        with live.db.write() as session:
            row = session.get_one(Source, source.id)
            source_registry.change(session, row, now, config={"set": "math"})
        return server(request)

    live = replace(live, http=HttpTransport(httpx.MockTransport(change), server.sleep))
    assert pipeline.refresh(live, now, source_id=source.id).summary.papers_new == 0
    after = reload(live, source)
    assert (after.config, after.resumption_token, after.watermark) == ({"set": "math"}, None, None)
    assert (after.failures, after.last_error, after.next_poll_at) == (0, None, now)
    assert len(server.requests) == 1


def test_record() -> None:
    """Names are in reading order, categories are separate, white space is collapsed."""
    [record] = oai.parse(oai_page(oai_record())).records
    assert (record.arxiv_id, record.doi) == ("0704.0001", "10.1234/birds.1")
    assert record.title == "Pigeons That Plan in Large Cities"
    assert record.abstract == "We teach pigeons to plan in O(n²)."
    assert (record.authors, record.author_count) == (("Mei Tanaka", "André Silva Jr."), 2)
    assert record.categories == ("cs.AI", "q-bio.NC")
    assert (record.published_on, record.as_of) == (date(2007, 4, 2), date(2008, 11, 26))
    assert (record.listed_on, record.withdrawn) == (None, False)


def test_ids_before_2007() -> None:
    """These ids contain a slash."""
    [record] = oai.parse(oai_page(oai_record("hep-th/9901001"))).records
    assert record.arxiv_id == "hep-th/9901001"


def test_withdrawn_and_deleted_records() -> None:
    """A withdrawal is a comment. A deleted record has only a header."""
    withdrawn, deleted = oai.parse(
        oai_page(
            oai_record(comments="This paper has been withdrawn by the author"),
            oai_record("0704.0002", deleted=True),
        )
    ).records
    assert withdrawn.withdrawn
    assert (deleted.arxiv_id, deleted.title, deleted.withdrawn) == ("0704.0002", "", True)


@pytest.mark.parametrize(
    ("created", "updated", "stamp", "listed"),
    [
        ("2026-11-18", "", "2026-11-19", True),
        ("2026-11-18", "2026-11-19", "2026-11-19", False),  # a second version
        ("2026-11-01", "", "2026-11-19", False),  # a correction of an older paper
        ("2026-11-20", "", "2026-11-21", False),  # a Saturday
        ("2026-11-09", "", "2026-11-10", False),  # before the days that are listed
        ("2007-04-02", "", "2026-11-19", False),
    ],
)
def test_only_new_papers_are_listed(created: str, updated: str, stamp: str, listed: bool) -> None:
    """arXiv changes the datestamps of old papers, sometimes of all at once."""
    page = oai_page(oai_record(created=created, updated=updated, stamp=stamp))
    [record] = oai.parse(page, date(2026, 11, 16)).records
    assert record.listed_on == (date.fromisoformat(stamp) if listed else None)
    assert oai.parse(page).records[0].listed_on is None


def test_rejected_records() -> None:
    """The others are read."""
    parsed = oai.parse(oai_page(oai_record(title=" "), oai_record("none"), oai_record("0704.0003")))
    assert [rejection.reason for rejection in parsed.rejections] == [oai.NO_TITLE, oai.NO_ID]
    assert (parsed.rows, len(parsed.records)) == (3, 1)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (oai_error("badArgument", "Unknown set"), "badArgument. Unknown set"),
        ("<html><body>Log in</body></html>", "web page"),
        ("", "empty"),
        ("<feed></feed>", "not an OAI-PMH response"),
        (oai_page(), "neither records nor an error"),
        ('<!DOCTYPE x [<!ENTITY a "aa">]>' + oai_page(oai_record()), "entities"),
    ],
)
def test_unreadable_responses(answer: str, message: str) -> None:
    with pytest.raises(UnreadableResponse, match=message):
        oai.parse(answer)


@pytest.mark.parametrize(("share", "records"), [(0.2, 0), (0.45, 0), (0.6, 1), (0.8, 1), (0.99, 2)])
def test_truncated_response(share: float, records: int) -> None:
    """Its complete records are read. It does not look like the last page."""
    page = oai_page(oai_record(), oai_record("0704.0002"))
    parsed = oai.parse_page(page[: int(len(page) * share)])
    assert not parsed.complete
    assert len(parsed.parsed.records) == records
    assert len(parsed.parsed.rejections) == 1


def test_harvest_by_tokens(harvest: Harvest, now: datetime) -> None:
    """Each page is asked for with the token of the one before, and three seconds after it."""
    app, server, source = harvest(
        oai_page(oai_record("0704.0001", stamp="2008-01-01"), token="skip%3D1"),
        oai_page(oai_record("0704.0002", stamp="2009-01-01"), token="skip%3D2"),
        oai_page(oai_record("0704.0003", stamp="2026-11-19")),
        set="cs",
    )
    result = pipeline.refresh(app, now)
    assert result.summary.papers_new == 3
    assert server.requests == [
        {"verb": "ListRecords", "metadataPrefix": "arXiv", "set": "cs"},
        {"verb": "ListRecords", "resumptionToken": "skip%3D1"},
        {"verb": "ListRecords", "resumptionToken": "skip%3D2"},
    ]
    assert server.slept[0] == 3  # another process may have just sent a request
    assert max(server.slept) <= 3
    row = reload(app, source)
    assert (row.resumption_token, row.watermark) == (None, date(2026, 11, 19))
    assert row.next_poll_at == now + source_types.POLLED[SourceKind.ARXIV_OAI].every


def test_later_polls_are_incremental(harvest: Harvest, now: datetime) -> None:
    """The last complete day is read again, because arXiv may have been late. Nothing changes twice."""
    app, server, source = harvest(oai_page(oai_record()))
    pipeline.refresh(app, now)
    again = pipeline.refresh(app, now + timedelta(days=1))
    assert server.requests[-1]["from"] == "2026-11-19"
    assert (again.summary.papers_new, again.summary.unchanged) == (0, 1)
    server.answers = [oai_error("noRecordsMatch")]
    assert pipeline.refresh(app, now + timedelta(days=2)).failed == {}
    assert reload(app, source).watermark == date(2026, 11, 21)


def test_harvest_continues_in_the_next_poll(
    harvest: Harvest, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some pages, other arXiv sources have their turn. The next poll begins with the stored token."""
    monkeypatch.setattr(oai, "PAGES_PER_POLL", 2)
    pages = [oai_page(oai_record(f"0704.{n:04}", stamp="2008-01-01"), token=f"t{n}") for n in range(1, 5)]
    app, server, source = harvest(*pages)
    pipeline.refresh(app, now)
    row = reload(app, source)
    assert (len(server.requests), row.resumption_token, row.watermark) == (2, "t2", date(2007, 12, 31))
    assert row.next_poll_at == now + poll_schedule.CONTINUE_AFTER
    pipeline.refresh(app, now + timedelta(minutes=2))
    assert [request.get("resumptionToken") for request in server.requests] == [None, "t1", "t2", "t3"]


def test_expired_token(harvest: Harvest, now: datetime) -> None:
    """The harvest continues from the last day that was read completely."""
    app, server, source = harvest(oai_error("badResumptionToken"), oai_page(oai_record(stamp="2011-01-01")))
    with app.db.write() as session:
        row = session.get_one(Source, source.id)
        row.resumption_token, row.watermark = "old", date(2010, 5, 3)
    assert pipeline.refresh(app, now).failed == {}
    assert server.requests[0]["resumptionToken"] == "old"
    assert server.requests[1]["from"] == "2010-05-03"
    assert reload(app, source).resumption_token is None


def test_failure_keeps_the_progress(harvest: Harvest, now: datetime) -> None:
    """A truncated page is stored and asked for again; an error of arXiv is shown."""
    first = oai_page(oai_record("0704.0001", stamp="2008-01-01"), token="t1")
    second = oai_page(oai_record("0704.0002"), oai_record("0704.0003"), token="t2")
    app, server, source = harvest(first, second[: second.index("0704.0003")])
    result = pipeline.refresh(app, now)
    assert (result.summary.papers_new, result.failed) == (2, {"All of arXiv": oai.CUT_OFF})
    assert reload(app, source).resumption_token == "t1"
    server.answers = [oai_error("badArgument", "no such set")]
    result = pipeline.refresh(app, now + timedelta(hours=1), source_id=source.id)
    assert "no such set" in result.failed["All of arXiv"]


def test_busy_server(harvest: Harvest, now: datetime) -> None:
    """A 503 with Retry-After is waited for. arXiv uses it when many are harvesting."""
    busy = httpx.Response(503, headers={"retry-after": "40"})
    app, server, _ = harvest(busy, oai_page(oai_record()))
    assert pipeline.refresh(app, now).summary.papers_new == 1
    assert any(38 < seconds <= 40 for seconds in server.slept)


def test_repeated_token(harvest: Harvest, now: datetime) -> None:
    """A server that repeats a token would be asked forever."""
    app, server, _ = harvest(oai_page(oai_record(), token="same"))
    assert "the same page" in pipeline.refresh(app, now).failed["All of arXiv"]
    assert len(server.requests) == 2


def test_unordered_records_do_not_move_the_watermark(harvest: Harvest, now: datetime) -> None:
    """After an expired token, no record would be missed."""
    unordered = [oai_record("0704.0001", stamp="2012-01-01"), oai_record("0704.0002", stamp="2008-01-01")]
    app, _, source = harvest(oai_page(*unordered, token="t1"), httpx.Response(404))
    pipeline.refresh(app, now)
    row = reload(app, source)
    assert (row.watermark, row.resumption_token) == (None, "t1")


def test_harvest_until_a_day_ends(harvest: Harvest, now: datetime) -> None:
    """Afterwards, no more requests are sent."""
    app, server, source = harvest(oai_page(oai_record()), **{"from": "2008-01-01", "until": "2008-12-31"})
    pipeline.refresh(app, now)
    assert (server.requests[0]["from"], server.requests[0]["until"]) == ("2008-01-01", "2008-12-31")
    assert reload(app, source).watermark == date(2008, 12, 31)
    pipeline.refresh(app, now + timedelta(days=1))
    assert len(server.requests) == 1


def test_back_catalogue_is_not_news(harvest: Harvest, now: datetime) -> None:
    """Old papers are in the archive, but on no day and in no digest. New ones are on theirs."""
    old = [oai_record(f"0704.{n:04}", stamp="2026-11-18") for n in range(1, 30)]
    new = oai_record("2611.00001", title="A New One", created="2026-11-18", updated="", stamp="2026-11-19")
    app, _, _ = harvest(oai_page(*old, new))
    assert pipeline.refresh(app, now).summary.papers_new == 30
    with app.db.read() as session:
        assert [paper.title for paper in paper_views.candidates(session, date.min, TODAY)] == ["A New One"]
        assert listing_days.neighbours(session, date.max)[0] == date(2026, 11, 19)
        assert len(session.exec(select(Listing)).all()) == 1
        unlisted = select(Paper.id).where(col(Paper.last_listed_on).is_(None))
        assert len(session.exec(unlisted).all()) == 29


def test_deleted_record_withdraws_its_paper(harvest: Harvest, now: datetime) -> None:
    """A deleted record of an unknown paper adds none."""
    app, server, _ = harvest(oai_page(oai_record()))
    pipeline.refresh(app, now)
    server.answers = [oai_page(oai_record(deleted=True), oai_record("0704.9999", deleted=True))]
    summary = pipeline.refresh(app, now + timedelta(days=1)).summary
    assert (summary.changed, summary.unchanged, summary.papers_new) == (1, 1, 0)
    with app.db.read() as session:
        [paper] = session.exec(select(Paper)).all()
    assert paper.title == "Pigeons That Plan in Large Cities"
    assert paper.withdrawn_at is not None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"set": "c s"}, "an arXiv set"),
        ({"from": "yesterday"}, "must be dates"),
        ({"from": "2026-11-20T00:00:00"}, "must be dates"),
        ({"from": "2026-02-01", "until": "2026-01-01"}, "must not be after"),
        ({"categories": ["cs.CL"]}, "has no option “categories”: it accepts set, from, until"),
    ],
)
def test_invalid_configuration(config: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        source_registry.check_config(SourceKind.ARXIV_OAI, config)


@pytest.mark.parametrize("name", ["cs", "physics:hep-th", "cs:cs:CL", "q-bio:q-bio:NC"])
def test_sets(name: str) -> None:
    config = {"set": name, "from": "2020-01-01"}
    assert source_registry.check_config(SourceKind.ARXIV_OAI, config) == config
