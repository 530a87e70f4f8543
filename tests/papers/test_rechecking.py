"""Test that sources are asked again about papers that subscribers were sent or liked."""

from dataclasses import replace
from datetime import datetime, timedelta
from html import escape

import httpx
import pytest
from sqlmodel import Session, col, select

from app import clock, pipeline
from app.application import Application
from app.errors import SourceError
from app.papers import rechecking
from app.papers.rechecking import REFUSED, WINDOW
from app.papers.sources import arxiv, host_rate_limits
from app.papers.sources.http_client import HttpTransport
from app.storage import locks
from app.storage.models import FeedbackRow, JobRun, Listing, Paper, PaperSnapshot, Source, VoteCount
from app.types import SourceKind
from tests.papers.sources.responses import API_ERROR
from tests.support import factories

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
CODE = "https://github.com/alice/agents"


class FakeSources:
    """arXiv and Hugging Face, with the comments and the code of some papers."""

    def __init__(self, comments: dict[str, str] | None = None, code: dict[str, str] | None = None) -> None:
        self.comments, self.code = comments or {}, code or {}
        self.asked: list[list[str]] = []  # ids, by request
        self.pauses: list[float] = []
        self.arxiv_status = 200
        self.refused: dict[str, int] = {}  # status, by id
        self.updated_on = "2026-11-19"

    def on(self, app: Application) -> Application:
        """Return the application that asks these sources."""
        wire = HttpTransport(httpx.MockTransport(self), sleep=self._sleep)
        return replace(app, http=wire)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "huggingface.co":
            number = request.url.path.removeprefix("/api/papers/")
            self.asked.append([number])
            if status := self.refused.get(number):
                return httpx.Response(status, text="Unavailable")
            if number not in self.code:
                return httpx.Response(404, json={"error": "Paper not found"})
            paper = {"id": number, "title": f"Paper {number}", "githubRepo": self.code[number], "upvotes": 99}
            return httpx.Response(200, json=paper | {"submittedOnDailyAt": "2026-11-01T00:00:00.000Z"})
        ids = request.url.params["id_list"].split(",")
        self.asked.append(ids)
        if refused := [number for number in ids if number in self.refused]:
            return httpx.Response(self.refused[refused[0]], text=API_ERROR)
        return httpx.Response(self.arxiv_status, text=_feed(ids, self.comments, self.updated_on))


def _feed(ids: list[str], comments: dict[str, str], updated_on: str) -> str:
    entries = (
        f"<entry><id>http://arxiv.org/abs/{number}v2</id><title>Paper {number}</title><summary>It.</summary>"
        f"<updated>{updated_on}T00:00:00Z</updated><published>2026-11-01T00:00:00Z</published>"
        f"<arxiv:comment>{escape(comments.get(number, ''))}</arxiv:comment></entry>"
        for number in ids
    )
    spaces = 'xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom"'
    return f"<feed {spaces}><title>arXiv Query</title>{''.join(entries)}</feed>"


def add_source(session: Session, now: datetime, kind: SourceKind) -> Source:
    config = {"categories": ["cs.CL"]} if kind is not SourceKind.HUGGINGFACE else {}
    source = Source(name=kind, kind=kind, config=config, created_at=now, next_poll_at=now + DAY)
    session.add(source)
    session.flush()
    return source


@pytest.fixture
def app(app: Application, now: datetime) -> Application:
    """Add both sources, and papers 1 to 4 of the last days."""
    with app.db.write() as session:
        for kind in (SourceKind.HUGGINGFACE, SourceKind.ARXIV):
            source = add_source(session, now, kind)
        for number in range(1, 5):
            day = now - 5 * DAY
            factories.add_paper(session, source, f"Paper {number}", day.date(), day, arxiv_id=_id(number))
    return app


def _id(number: int) -> str:
    return f"2611.{number:05}"


def send_to_readers(app: Application, at: datetime, *papers: int) -> None:
    """Insert what digests leave behind: snapshots of their papers."""
    with app.db.write() as session:
        for number in papers:
            session.add(PaperSnapshot(key=f"{at:%Y%m%d}-{number}", paper_id=number, created_at=at))


def pause(app: Application, kind: SourceKind) -> None:
    with app.db.write() as session:
        session.exec(select(Source).where(Source.kind == kind)).one().paused = True


def like(app: Application, at: datetime, *papers: int) -> None:
    with app.db.write() as session:
        alice = factories.add_subscriber(session, f"{at:%Y%m%d}@example.org", [], at)
        for number in papers:
            session.add(FeedbackRow(subscriber_id=alice, paper_id=number, liked=True, at=at))


def paper(app: Application, number: int) -> Paper:
    with app.db.read() as session:
        return session.get_one(Paper, number)


def last_run(app: Application) -> JobRun | None:
    with app.db.read() as session:
        return session.exec(select(JobRun).order_by(col(JobRun.id).desc())).first()


def test_withdrawn_papers(app: Application, now: datetime) -> None:
    """arXiv is asked about papers in recent digests, and its answers are no listings.

    A new version may reinstate a withdrawn paper.
    """
    send_to_readers(app, now - 3 * DAY, 1, 2)
    send_to_readers(app, now - WINDOW - DAY, 3)
    sources = FakeSources({_id(2): "This paper has been withdrawn by the authors due to an error"})
    with app.db.read() as session:
        listings = session.exec(select(Listing)).all()
    pipeline.recheck(sources.on(app), now)
    assert sources.asked == [[_id(2), _id(1)]]
    assert sources.pauses == [3.0], "another process may have just sent a request"
    withdrawn_at = paper(app, 2).withdrawn_at
    assert withdrawn_at
    assert abs(withdrawn_at - now) < MINUTE
    assert [paper(app, number).withdrawn_at for number in (1, 3)] == [None, None]
    with app.db.read() as session:
        assert session.exec(select(Listing)).all() == listings
    run = last_run(app)
    assert run
    assert (run.job, run.counts["asked"], run.counts["rejected"]) == ("recheck", 2, 0)
    pipeline.recheck(sources.on(app), now + DAY)
    assert sources.asked[1:] == [[_id(2), _id(1)]]
    assert paper(app, 2).withdrawn_at == withdrawn_at
    sources.comments, sources.updated_on = {_id(2): "v3: corrected, 12 pages"}, "2026-11-21"
    pipeline.recheck(sources.on(app), now + 2 * DAY)
    assert paper(app, 2).withdrawn_at is None


def test_code_of_liked_papers(app: Application, now: datetime) -> None:
    """Hugging Face is asked about liked papers without code. Its answer has no votes of that day."""
    like(app, now - DAY, 1, 2)
    like(app, now - WINDOW - DAY, 3)
    sources = FakeSources(code={_id(1): CODE})
    pipeline.recheck(sources.on(app), now)
    assert sources.asked == [[_id(2)], [_id(1)], [_id(2), _id(1)]], "unknown papers are no error"
    code_found_at = paper(app, 1).code_found_at
    assert paper(app, 1).code_url == CODE
    assert code_found_at
    assert abs(code_found_at - now) < MINUTE
    assert paper(app, 2).code_found_at is None
    with app.db.read() as session:
        assert {row.upvotes for row in session.exec(select(VoteCount))} == {10}
    pipeline.recheck(sources.on(app), now + DAY)
    assert sources.asked[3:] == [[_id(2)], [_id(2), _id(1)]]


def test_many_papers(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked about in several requests, three seconds apart."""
    monkeypatch.setattr(arxiv, "IDS_PER_REQUEST", 3)
    send_to_readers(app, now, 1, 2, 3, 4)
    sources = FakeSources()
    pipeline.recheck(sources.on(app), now)
    assert list(map(len, sources.asked)) == [3, 1]
    assert [round(pause) for pause in sources.pauses] == [3, 3]


@pytest.mark.once  # PostgreSQL has its own clock
def test_papers_are_dated_when_they_are_stored(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run can take 20 minutes, and the search index looks only for recent changes."""
    monkeypatch.setattr(arxiv, "IDS_PER_REQUEST", 1)
    send_to_readers(app, now, 1, 2)
    sources = FakeSources({_id(number): "Withdrawn by the authors" for number in (1, 2)})
    real_time = clock.system_time
    monkeypatch.setattr(clock, "system_time", lambda: real_time() + len(sources.pauses) * MINUTE)
    pipeline.recheck(sources.on(app), now)
    first, second = paper(app, 2).withdrawn_at, paper(app, 1).withdrawn_at
    assert first
    assert second
    assert second - first >= MINUTE


def test_nothing_to_ask(app: Application, now: datetime) -> None:
    """No request is sent and no run recorded."""
    sources = FakeSources()
    pipeline.recheck(sources.on(app), now)
    assert sources.asked == []
    assert last_run(app) is None


def test_paused_and_removed_sources(app: Application, now: datetime) -> None:
    """They are not asked."""
    send_to_readers(app, now, 1)
    like(app, now, 1)
    with app.db.write() as session:
        huggingface, of_arxiv = session.exec(select(Source).order_by(col(Source.id))).all()
        huggingface.removed_at, of_arxiv.paused = now, True
    sources = FakeSources()
    pipeline.recheck(sources.on(app), now)
    assert sources.asked == []


def test_source_in_use(app: Application, now: datetime) -> None:
    """While another process polls arXiv, it gets no second connection. The run says so and is repeated."""
    send_to_readers(app, now, 1)
    sources = FakeSources()
    held = locks.hold(app.db, host_rate_limits.ARXIV, now, DAY)
    with held, pytest.raises(SourceError, match="another process is polling"):
        pipeline.recheck(sources.on(app), now)
    assert sources.asked == []
    run = last_run(app)
    assert run
    assert "arxiv" in run.error
    pipeline.recheck(sources.on(app), now)
    assert sources.asked == [[_id(1)]]


@pytest.mark.usefixtures("no_retries")
def test_one_source_fails(app: Application, now: datetime) -> None:
    """The other is still asked."""
    like(app, now, 1)
    sources = FakeSources(code={_id(1): CODE})
    sources.arxiv_status = 503
    with pytest.raises(SourceError, match="HTTP 503"):
        pipeline.recheck(sources.on(app), now)
    assert paper(app, 1).code_url == CODE


@pytest.mark.parametrize("status", [200, 400])
def test_arxiv_refuses_one_paper(app: Application, now: datetime, status: int) -> None:
    """The others are asked about in smaller requests, and the run names the refused one."""
    send_to_readers(app, now, 1, 2, 3, 4)
    sources = FakeSources({_id(number): "Withdrawn by the authors" for number in range(1, 5)})
    sources.refused = {_id(3): status}
    pipeline.recheck(sources.on(app), now)
    sent = [[4, 3, 2, 1], [4, 3], [4], [3], [2, 1]]
    assert sources.asked == [[_id(number) for number in numbers] for numbers in sent]
    assert [bool(paper(app, number).withdrawn_at) for number in range(1, 5)] == [True, True, False, True]
    run = last_run(app)
    assert run
    assert [row["reason"] for row in run.rejections] == [REFUSED]
    assert _id(3) in run.rejections[0]["detail"]


@pytest.mark.usefixtures("no_retries")
@pytest.mark.parametrize("status", [451, 500])
def test_hugging_face_refuses_one_paper(app: Application, now: datetime, status: int) -> None:
    """It is still asked about the others. The run does not fail, even if there are no others any more."""
    like(app, now, 1, 2, 3)
    sources = FakeSources(code={_id(1): CODE})
    sources.refused = {_id(3): status}
    pause(app, SourceKind.ARXIV)
    assert pipeline.recheck(sources.on(app), now).rejected == 1
    assert paper(app, 1).code_url == CODE
    sources.code = {_id(2): CODE}
    for day in (1, 2):
        assert pipeline.recheck(sources.on(app), now + day * DAY).rejected == 1


def test_source_refuses_many_papers(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked about all of them, and counts as failed."""
    monkeypatch.setattr(rechecking, "MAX_REFUSED", 2)
    like(app, now, 1, 2, 3)
    sources = FakeSources()
    sources.refused = {_id(3): 403, _id(2): 403}
    pause(app, SourceKind.ARXIV)
    with pytest.raises(SourceError, match="HTTP 403"):
        pipeline.recheck(sources.on(app), now)
    assert sources.asked == [[_id(3)], [_id(2)]]


@pytest.mark.usefixtures("no_retries")
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_overloaded_hugging_face(app: Application, now: datetime, status: int) -> None:
    """It is not asked about the other papers."""
    like(app, now, 1, 2, 3)
    sources = FakeSources()
    sources.refused = {_id(3): status}
    pause(app, SourceKind.ARXIV)
    with pytest.raises(SourceError, match=f"HTTP {status}"):
        pipeline.recheck(sources.on(app), now)
    assert sources.asked == [[_id(3)]]


@pytest.mark.usefixtures("no_retries")
@pytest.mark.parametrize("status", [401, 500])
def test_source_refuses_all_papers(app: Application, now: datetime, status: int) -> None:
    """It counts as failed, even if they are few. The run names them."""
    like(app, now, 1, 2)
    sources = FakeSources()
    sources.refused = {_id(number): status for number in (1, 2)}
    pause(app, SourceKind.ARXIV)
    with pytest.raises(SourceError, match=f"{_id(2)}, {_id(1)}: .* HTTP {status}"):
        pipeline.recheck(sources.on(app), now)
    run = last_run(app)
    assert run
    assert (run.counts["asked"], run.counts["rejected"], len(run.rejections)) == (2, 2, 2)


def test_results_before_a_failure_are_recorded(app: Application, now: datetime) -> None:
    like(app, now, 1, 2)
    sources = FakeSources(code={_id(2): CODE})
    sources.refused = {_id(1): 429}
    pause(app, SourceKind.ARXIV)
    with pytest.raises(SourceError, match="HTTP 429"):
        pipeline.recheck(sources.on(app), now)
    run = last_run(app)
    assert run
    assert (run.counts["asked"], run.counts["changed"]) == (1, 1)


def test_refusals_are_counted_in_a_row(
    app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that returns other papers has not failed."""
    monkeypatch.setattr(rechecking, "MAX_REFUSED", 2)
    like(app, now, 1, 2, 3, 4)
    sources = FakeSources(code={_id(1): CODE})
    sources.refused = {_id(4): 451, _id(2): 451}
    pause(app, SourceKind.ARXIV)
    assert pipeline.recheck(sources.on(app), now).rejected == 2
    assert paper(app, 1).code_url == CODE


@pytest.mark.parametrize("status", [401, 403, 404])
def test_arxiv_refuses_all_requests(app: Application, now: datetime, status: int) -> None:
    """Only an error 400 may be about one of several papers."""
    send_to_readers(app, now, 1, 2, 3, 4)
    sources = FakeSources()
    sources.arxiv_status = status
    with pytest.raises(SourceError, match=f"HTTP {status}"):
        pipeline.recheck(sources.on(app), now)
    assert len(sources.asked) == 1


def test_arxiv_returns_a_page(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the status 200, but is no error feed, so it is not about one of the papers."""
    monkeypatch.setattr("tests.papers.test_rechecking.API_ERROR", "<html>Maintenance</html>")
    send_to_readers(app, now, 1, 2, 3, 4)
    sources = FakeSources()
    sources.refused = {_id(1): 200}
    with pytest.raises(SourceError, match="not an Atom feed"):
        pipeline.recheck(sources.on(app), now)
    assert len(sources.asked) == 1


@pytest.mark.usefixtures("no_retries")
def test_overloaded_arxiv(app: Application, now: datetime) -> None:
    """It gets no further requests."""
    send_to_readers(app, now, 1, 2, 3, 4)
    sources = FakeSources()
    sources.arxiv_status = 500
    with pytest.raises(SourceError, match="HTTP 500"):
        pipeline.recheck(sources.on(app), now)
    assert {len(ids) for ids in sources.asked} == {4}


@pytest.mark.usefixtures("no_retries")
@pytest.mark.parametrize("hours", [4, 24])
def test_failed_source_is_asked_again_alone(app: Application, now: datetime, hours: int) -> None:
    """On the same day, the other source is not asked again."""
    like(app, now, 1)
    send_to_readers(app, now, 2)
    sources = FakeSources()
    sources.arxiv_status = 503
    for attempt in range(2):
        with pytest.raises(SourceError, match="HTTP 503"):
            pipeline.recheck(sources.on(app), now + timedelta(minutes=attempt))
    sources.arxiv_status = 200
    sources.asked.clear()
    pipeline.recheck(sources.on(app), now + timedelta(hours=hours))
    assert [len(ids) for ids in sources.asked] == ([2] if hours == 4 else [1, 2])


def test_service_stops(app: Application, now: datetime) -> None:
    """A stopped run is not complete, so it is repeated."""
    send_to_readers(app, now, 1)
    like(app, now, 2)
    app.stopping.set()
    with pytest.raises(SourceError, match="stopped"):
        pipeline.recheck(FakeSources().on(app), now)
    app.stopping.clear()
    sources = FakeSources()
    pipeline.recheck(sources.on(app), now + timedelta(hours=1))
    assert len(sources.asked) == 2
