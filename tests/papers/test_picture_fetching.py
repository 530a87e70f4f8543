"""Test that the pictures of recent papers are fetched from real servers, of which some are hostile."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlmodel import Session, col, select

from app import pipeline
from app.application import Application
from app.papers import merging, picture_fetching, pictures
from app.papers.sources import huggingface
from app.papers.sources.http_client import HttpTransport
from app.storage import job_runs, locks
from app.storage.models import JobRun, Paper, PaperPicture, Source
from tests.papers.sources import responses
from tests.support import factories, stored_records
from tests.support.hostile_server import HostileServer
from tests.support.pictures import PictureServer

pytestmark = pytest.mark.usefixtures("no_retries")
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
FETCHED, REJECTED = {"fetched": 1, "rejected": 0}, {"fetched": 0, "rejected": 1}


@pytest.fixture
def server() -> Iterator[PictureServer]:
    with PictureServer() as running:
        yield running


@pytest.fixture
def app(app: Application) -> Application:
    """Return the application, with this machine's address among those that may be fetched from."""
    allowing = {"allow_private_sources": ("127.0.0.1",)}
    return replace(app, settings=app.settings.model_copy(update=allowing))


def add_paper(app: Application, now: datetime, url: str, title: str = "Pigeons", **fields: object) -> int:
    with app.db.write() as session:
        source = session.exec(select(Source)).first() or factories.add_source(session, now)
        usual = {"listed_on": now.date(), "thumbnail_url": url} | fields
        return factories.add_paper(session, source, title, now=now, **usual)  # type: ignore[arg-type]


def stored(app: Application, paper_id: int) -> PaperPicture:
    with app.db.read() as session:
        return session.get_one(PaperPicture, paper_id)


def has_picture(session: Session, paper_id: int) -> bool:
    """Return whether pages show a picture of the paper, and it is served."""
    shown = paper_id in pictures.of_papers(session, [paper_id])
    assert shown == (pictures.of_public_paper(session, paper_id) is not None)
    return shown


def last_run(app: Application) -> JobRun:
    with app.db.read() as session:
        newest = select(JobRun).where(JobRun.job == picture_fetching.JOB).order_by(col(JobRun.id).desc())
        return session.exec(newest.limit(1)).one()


def test_rows_of_the_source(app: Application, now: datetime, server: PictureServer) -> None:
    """The figure that a submitter added is preferred to a video and to the card with the title."""
    rows = [responses.hf_row("2611.00001", "A Figure"), responses.hf_row("2611.00002", "A Card")]
    rows[0]["mediaUrls"] = [f"{server.url}/uploads/a.mp4", f"{server.url}/uploads/b.PNG?download=true"]
    rows[1]["mediaUrls"] = [f"{server.url}/uploads/c.qt"]
    for row in rows:
        row["thumbnail"] = f"{server.url}/social-thumbnails/papers/{row['paper']['id']}.png"
    with app.db.write() as session:
        source = factories.add_source(session, now)
        stored_records.store(session, source, huggingface.parse(json.dumps(rows)), now)
    assert pipeline.fetch_pictures(app, now) == {"fetched": 2, "rejected": 0}
    assert server.paths == ["/uploads/b.PNG?download=true", "/social-thumbnails/papers/2611.00002.png"]
    with app.db.read() as session:
        shown = pictures.of_papers(session, [1, 2])
    assert [shown[number].repeats_title for number in (1, 2)] == [False, True]
    assert (shown[1].width, shown[1].height) == (480, 259)


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (["https://a.test/b.jpeg", "https://a.test/c.png"], "https://a.test/b.jpeg"),
        (["javascript:alert(1)//x.png", "https://a.test/c.gif"], "https://a.test/c.gif"),
        (["https://a.test/b.mp4"], "https://cdn.test/pigeons.png"),
        ([None, 7, {}], "https://cdn.test/pigeons.png"),
        ("https://a.test/b.png", "https://cdn.test/pigeons.png"),
        (None, "https://cdn.test/pigeons.png"),
    ],
)
def test_media_of_a_row(media: object, expected: str) -> None:
    row = responses.hf_row() | {"mediaUrls": media}
    assert huggingface.parse(json.dumps([row])).records[0].thumbnail_url == expected


def test_each_picture_is_fetched_once(app: Application, now: datetime, server: PictureServer) -> None:
    """Runs without work are not recorded."""
    number = add_paper(app, now, f"{server.url}/a.png")
    for minutes in (0, 15, 600):
        pipeline.fetch_pictures(app, now + timedelta(minutes=minutes))
    assert server.paths == ["/a.png"]
    row = stored(app, number)
    assert (row.media_type, row.failures, row.next_attempt_at) == ("image/webp", 0, None)
    assert row.data[8:12] == b"WEBP"
    with app.db.read() as session:
        assert len(session.exec(select(JobRun).where(JobRun.job == picture_fetching.JOB)).all()) == 1


def test_papers_whose_pictures_are_fetched(app: Application, now: datetime, server: PictureServer) -> None:
    """Old, withdrawn, hidden and merged papers are skipped; the newest and most voted come first."""
    add_paper(app, now, f"{server.url}/old", "Old", listed_on=now.date() - picture_fetching.WINDOW)
    add_paper(app, now, f"{server.url}/withdrawn", "Withdrawn", withdrawn_at=now)
    add_paper(app, now, f"{server.url}/hidden", "Hidden", hidden_at=now)
    add_paper(app, now, "", "None")
    add_paper(app, now, f"{server.url}/3", "Before", listed_on=(now - DAY).date(), upvotes=99)
    usable = add_paper(app, now, f"{server.url}/2", "Few", upvotes=1)
    add_paper(app, now, f"{server.url}/1", "Many", upvotes=50)
    add_paper(app, now, f"{server.url}/merged", "Merged", merged_into_id=usable)
    pipeline.fetch_pictures(app, now)
    assert server.paths == ["/1", "/2", "/3"]


def test_number_of_pictures_in_a_run_is_limited(
    app: Application, now: datetime, server: PictureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has the others."""
    monkeypatch.setattr(picture_fetching, "PICTURES_PER_RUN", 2)
    for number in range(3):
        add_paper(app, now, f"{server.url}/{number}", f"Paper {number}")
    assert pipeline.fetch_pictures(app, now)["fetched"] == 2
    assert pipeline.fetch_pictures(app, now + timedelta(minutes=15)) == FETCHED


def test_run_has_a_deadline_and_stops_with_the_service(
    app: Application, now: datetime, server: PictureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_paper(app, now, f"{server.url}/a.png")
    with monkeypatch.context() as patch:
        patch.setattr(picture_fetching, "DEADLINE", timedelta(seconds=-1))
        assert pipeline.fetch_pictures(app, now) == {"fetched": 0, "rejected": 0}
    app.stopping.set()
    assert pipeline.fetch_pictures(app, now) == {"fetched": 0, "rejected": 0}
    assert server.paths == []


def test_setting_turns_it_off(app: Application, now: datetime, server: PictureServer) -> None:
    add_paper(app, now, f"{server.url}/a.png")
    off = replace(app, settings=app.settings.model_copy(update={"pictures": False}))
    assert not pipeline.fetch_pictures(off, now)
    assert server.paths == []


def test_one_process_at_a_time(app: Application, now: datetime, server: PictureServer) -> None:
    add_paper(app, now, f"{server.url}/a.png")
    with locks.hold(app.db, picture_fetching.JOB, now, HOUR):
        assert not pipeline.fetch_pictures(app, now)
    assert server.paths == []


def test_content_type_is_not_believed(app: Application, now: datetime, server: PictureServer) -> None:
    """A picture that is called text is one, and a page that is called a picture is none."""
    server.answers["/picture"] = (200, {"content-type": "text/html"}, server.figure)
    server.answers["/page"] = (200, {"content-type": "image/png"}, b"<html><script>alert(1)</script></html>")
    add_paper(app, now, f"{server.url}/picture", "Picture", upvotes=20)
    number = add_paper(app, now, f"{server.url}/page", "Page")
    assert pipeline.fetch_pictures(app, now) == {"fetched": 1, "rejected": 1}
    run = last_run(app)
    assert run.error == ""
    assert [(each["reason"], each["origin"]) for each in run.rejections] == [
        (picture_fetching.NOT_USABLE, "Page")
    ]
    assert stored(app, number).data == b""


def test_failed_picture_is_retried_and_given_up(
    app: Application, now: datetime, server: PictureServer
) -> None:
    """The waits are 1, 4 and 16 hours; after the fourth failure, it is left alone."""
    server.answers["/a.png"] = (404, {}, b"")
    number = add_paper(app, now, f"{server.url}/a.png")
    attempts = []
    for hours in range(100):
        before = len(server.paths)
        pipeline.fetch_pictures(app, now + hours * HOUR)
        attempts += [hours] if len(server.paths) > before else []
    assert attempts == [0, 1, 5, 21]
    row = stored(app, number)
    assert (row.failures, row.next_attempt_at) == (picture_fetching.ATTEMPTS, None)


def test_picture_that_comes_back_is_shown(app: Application, now: datetime, server: PictureServer) -> None:
    server.answers["/a.png"] = (404, {}, b"")
    number = add_paper(app, now, f"{server.url}/a.png")
    assert pipeline.fetch_pictures(app, now) == REJECTED
    with app.db.read() as session:
        assert not has_picture(session, number)
    del server.answers["/a.png"]
    assert pipeline.fetch_pictures(app, now + HOUR) == FETCHED
    with app.db.read() as session:
        assert has_picture(session, number)
    assert stored(app, number).failures == 0


def test_failing_host_is_left_alone(app: Application, now: datetime, server: PictureServer) -> None:
    """After three failures in a row, its other pictures wait; those of other hosts do not."""
    with PictureServer() as down:
        for number in range(6):
            down.answers[f"/{number}"] = (503, {}, b"")
            add_paper(app, now, f"{down.url}/{number}", f"Paper {number}", upvotes=50 - number)
        add_paper(app, now, f"{server.url}/a.png", "Elsewhere", upvotes=1)
        assert pipeline.fetch_pictures(app, now) == {"fetched": 1, "rejected": 3}
        assert down.paths == ["/0", "/1", "/2"]
        assert "HTTP 503" in last_run(app).error
        assert last_run(app).error.count("127.0.0.1") == 1
        pipeline.fetch_pictures(app, now + timedelta(minutes=14))
        assert len(down.paths) == 3
        pipeline.fetch_pictures(app, now + timedelta(minutes=15))
        assert down.paths[3:] == ["/3", "/4", "/5"]


def test_missing_pictures_do_not_fail_the_host(
    app: Application, now: datetime, server: PictureServer
) -> None:
    """Hugging Face may not have drawn the cards of the newest papers yet."""
    for number in range(4):
        server.answers[f"/{number}"] = (404, {}, b"")
        add_paper(app, now, f"{server.url}/{number}", f"Paper {number}", upvotes=50 - number)
    add_paper(app, now, f"{server.url}/a.png", "Another", upvotes=1)
    assert pipeline.fetch_pictures(app, now) == {"fetched": 1, "rejected": 4}
    assert last_run(app).error == ""


def test_host_that_answers_in_between_is_not_left_alone(
    app: Application, now: datetime, server: PictureServer
) -> None:
    """A missing picture and a damaged one show that the host works."""
    answers = [503, 503, 404, 503, 503, 200, 503, 503]
    for number, status in enumerate(answers):
        server.answers[f"/{number}"] = (status, {}, b"damaged")
        add_paper(app, now, f"{server.url}/{number}", f"Paper {number}", upvotes=50 - number)
    assert pipeline.fetch_pictures(app, now) == {"fetched": 0, "rejected": len(answers)}
    assert last_run(app).error == ""


@pytest.mark.parametrize("host", ["arxiv.org", "EXPORT.arxiv.org."])
def test_pictures_on_arxiv_are_not_fetched(
    app: Application, now: datetime, server: PictureServer, host: str
) -> None:
    """The run does not hold the lease of arXiv, so another process may be sending requests there."""

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async def sleep(_seconds: float) -> None:
        pass

    number = add_paper(app, now, server.url.replace("127.0.0.1", host) + "/a.png")
    resolved = replace(app, http=HttpTransport(resolve=resolve, sleep=sleep))
    assert pipeline.fetch_pictures(resolved, now) == REJECTED
    assert server.paths == []
    assert "arXiv" in last_run(app).rejections[0]["detail"]
    assert stored(app, number).failures == 1


@pytest.mark.once
@pytest.mark.parametrize(
    "url", ["http://[/a.png", "http://a.test:99999/a.png", "http://xn--a/a.png", "http://%00/"]
)
def test_odd_url(app: Application, now: datetime, server: PictureServer, url: str) -> None:
    """It costs only its own paper the picture."""
    add_paper(app, now, url, "Odd", upvotes=50)
    add_paper(app, now, f"{server.url}/a.png", "Usual", upvotes=1)
    assert pipeline.fetch_pictures(app, now) == {"fetched": 1, "rejected": 1}


def test_odd_error(app: Application, now: datetime, server: PictureServer) -> None:
    """A message with a null byte, which PostgreSQL refuses, is stored without it."""
    for number in range(3):
        server.answers[f"/{number}"] = (403, {}, b"no\0thing for you")
        add_paper(app, now, f"{server.url}/{number}", f"Paper {number}")
    assert pipeline.fetch_pictures(app, now)["rejected"] == 3
    assert "thing for you" in last_run(app).error


def test_failed_runs_back_off(app: Application, now: datetime) -> None:
    """The waits are 15, 30, 60 and at most 120 minutes, until a run succeeds."""
    began = []
    for minutes in range(0, 400, 5):
        moment = now + timedelta(minutes=minutes)
        waits = picture_fetching.FIRST_WAIT, picture_fetching.LONGEST_WAIT
        with app.db.read() as session:
            waiting = job_runs.is_backing_off(session, picture_fetching.JOB, moment, *waits)
        if not waiting:
            began.append(minutes)
            with job_runs.record(app.db, picture_fetching.JOB, moment) as run:
                run.fail("cdn.test", "HTTP 503")
    assert began == [0, 15, 45, 105, 225, 345]


def test_host_that_asks_to_wait_is_left_alone(app: Application, now: datetime, server: PictureServer) -> None:
    """One request is enough, and the picture waits as long as the host asked for."""
    for number in range(3):
        server.answers[f"/{number}"] = (429, {"retry-after": "7200"}, b"")
        add_paper(app, now, f"{server.url}/{number}", f"Paper {number}", upvotes=50 - number)
    assert pipeline.fetch_pictures(app, now) == REJECTED
    assert server.paths == ["/0"]
    assert stored(app, 1).next_attempt_at == now + 2 * HOUR


def test_redirect_to_a_private_address(app: Application, now: datetime, server: PictureServer) -> None:
    """Nobody reads the internal network through Paperboy."""
    with PictureServer("127.0.0.2") as internal:
        server.answers["/a.png"] = (302, {"location": f"{internal.url}/secret.png"}, b"")
        add_paper(app, now, f"{server.url}/a.png")
        assert pipeline.fetch_pictures(app, now) == REJECTED
        assert internal.paths == []
    assert "has a private address" in last_run(app).rejections[0]["detail"]


def test_private_address_is_never_asked(app: Application, now: datetime) -> None:
    with PictureServer("127.0.0.2") as internal:
        add_paper(app, now, f"{internal.url}/a.png")
        assert pipeline.fetch_pictures(app, now) == REJECTED
        assert internal.paths == []


def test_redirect_is_followed(app: Application, now: datetime, server: PictureServer) -> None:
    server.answers["/a.png"] = (302, {"location": "/b.png"}, b"")
    add_paper(app, now, f"{server.url}/a.png")
    assert pipeline.fetch_pictures(app, now) == FETCHED


def test_large_file(
    app: Application, now: datetime, server: PictureServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The download ends at the limit."""
    monkeypatch.setattr("app.papers.sources.http_client.MAX_RESPONSE_BYTES", 1000)
    add_paper(app, now, f"{server.url}/a.png")
    assert pipeline.fetch_pictures(app, now) == REJECTED


def test_slow_server(app: Application, now: datetime, server: PictureServer) -> None:
    """A server that never finishes takes one timeout, and the next picture is fetched."""
    hurried = replace(app, http=HttpTransport(response_seconds=0.2))
    with HostileServer() as slow:
        add_paper(app, now, f"{slow.url}/body", "Slow", upvotes=50)
        add_paper(app, now, f"{server.url}/a.png", "Fast", upvotes=1)
        assert pipeline.fetch_pictures(hurried, now) == {"fetched": 1, "rejected": 1}


def test_changed_url_replaces_the_picture(app: Application, now: datetime, server: PictureServer) -> None:
    """The old picture is not shown any more, even if the new one cannot be fetched at first."""
    number = add_paper(app, now, f"{server.url}/a.png")
    pipeline.fetch_pictures(app, now)
    server.answers["/b.png"] = (404, {}, b"")
    with app.db.write() as session:
        session.get_one(Paper, number).thumbnail_url = f"{server.url}/b.png"
    with app.db.read() as session:
        assert not has_picture(session, number)
    assert pipeline.fetch_pictures(app, now) == REJECTED
    assert (stored(app, number).data, stored(app, number).failures) == (b"", 1)
    del server.answers["/b.png"]
    assert pipeline.fetch_pictures(app, now + HOUR) == FETCHED
    assert stored(app, number).url == f"{server.url}/b.png"


def test_merge_while_the_picture_is_fetched(app: Application, now: datetime, server: PictureServer) -> None:
    """Both store a picture of the surviving row, which has none yet. The second waits for the first."""
    url = f"{server.url}/a.png"
    survivor = add_paper(app, now, url, "Pigeons", arxiv_id="2611.00001")
    absorbed = add_paper(app, now, "", "Pigeons!")
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with app.db.write() as session:
        factories.add_picture(session, absorbed, now, url)
    with ThreadPoolExecutor(1) as pool:
        with app.db.write() as session:
            rows = session.get_one(Paper, survivor), session.get_one(Paper, absorbed)
            merging.merge_by_hand(session, *rows, now)
            session.flush()
            fetching = pool.submit(pipeline.fetch_pictures, app, now)
            deadline = time.monotonic() + 10
            while app.db.locks_rows and time.monotonic() < deadline:
                with app.db.read() as other:
                    if other.execute(waiting).scalar_one():
                        break
                time.sleep(0.02)
        fetched = fetching.result(timeout=30)
    assert fetched == (FETCHED if app.db.locks_rows else {})
    with app.db.read() as session:
        assert has_picture(session, survivor)


def test_merge_takes_the_picture_over(app: Application, now: datetime, server: PictureServer) -> None:
    """The surviving row has it at once, both addresses serve it, and undoing the merge gives it back."""
    survivor = add_paper(app, now, "", "Pigeons", arxiv_id="2611.00001")
    versions = {"thumbnail_url": "1.2026-11-20.3"}
    absorbed = add_paper(app, now, f"{server.url}/a.png", "Pigeons!", versions=versions)
    pipeline.fetch_pictures(app, now)
    with app.db.write() as session:
        rows = session.get_one(Paper, survivor), session.get_one(Paper, absorbed)
        merging.merge(session, *rows, "same title", now)
    with app.db.read() as session:
        assert has_picture(session, survivor)
        served = pictures.of_public_paper(session, survivor)
        assert pictures.of_public_paper(session, absorbed) == served
    assert not pipeline.fetch_pictures(app, now)
    with app.db.write() as session:
        merging.undo_merge(session, 1, now)
    with app.db.read() as session:
        assert not has_picture(session, survivor)
        assert has_picture(session, absorbed)
