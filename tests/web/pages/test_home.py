"""What everybody sees, and what nobody can learn."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import col, func, select

from app import clock, main, subscribers
from app.application import Application
from app.delivery import suppression
from app.papers import ingest
from app.storage.models import Delivery, Event, FormSubmission, Source, Subscriber, SubscriberState
from app.types import EmptyDigestPolicy, MailKind, PaperRecord, ParseResult, SourceKind
from tests.support.mail_server import MailServer
from tests.web.conftest import ALICE, WANTED

DAY = date(2026, 11, 19)
FORM = {
    "email": "carol@example.org", "interest": ["world models", "", "robot learning"], "cadence": "weekly",
    "weekday": "2", "hour": "7", "zone": "Asia/Tokyo",
}  # fmt: skip


def shelve(app: Application, *records: PaperRecord) -> None:
    """Papers as a source would bring them."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = Source(name="a source", kind=SourceKind.JSONL, created_at=now)
        session.add(source)
        session.flush()
        ingest.store(session, source, ParseResult(len(records), records), now)


def paper(number: int, day: date = DAY, **known: object) -> PaperRecord:
    fields = {"arxiv_id": f"2611.{number:05}", "title": f"On the Number {number}", "listed_on": day, **known}
    return PaperRecord(**fields)  # type: ignore[arg-type]


def count(app: Application, table: type) -> int:
    with app.db.read() as session:
        return session.exec(select(func.count()).select_from(table)).one()


# --- reading


def test_the_front_page_is_there_before_the_first_paper(client: TestClient) -> None:
    """Signing up does not wait for the archive."""
    answer = client.get("/")
    assert answer.status_code == 200
    assert "fetching the first papers" in answer.text
    assert 'name="email"' in answer.text


def test_the_front_page_shows_the_newest_day(app: Application, client: TestClient) -> None:
    """The most discussed first, with the ways to the paper and to the day before."""
    shelve(
        app,
        paper(1, DAY - timedelta(days=3)),
        paper(2, upvotes=3, authors=("Ada Lovelace", "Alan Turing")),
        paper(3, upvotes=90, title="<b>Bold</b> & Brave", pdf_url="https://arxiv.org/pdf/2611.00003"),
    )
    page = client.get("/").text
    assert page.index("&lt;b&gt;Bold&lt;/b&gt; &amp; Brave") < page.index("On the Number 2")
    assert "On the Number 1" not in page
    assert "Thursday, 19 November 2026" in page
    assert 'href="/day/2026-11-16"' in page
    assert "https://arxiv.org/pdf/2611.00003" in page


def test_a_day_leads_to_the_days_beside_it(app: Application, client: TestClient) -> None:
    """Over a weekend without papers, too."""
    shelve(app, paper(1, DAY - timedelta(days=3)), paper(2), paper(3, DAY + timedelta(days=4)))
    page = client.get("/day/2026-11-19").text
    assert 'rel="prev" href="/day/2026-11-16"' in page
    assert 'rel="next" href="/day/2026-11-23"' in page


@pytest.mark.parametrize(("path", "status"), [("/day/2026-11-18", 404), ("/day/tomorrow", 422), ("/x", 404)])
def test_what_is_not_there_is_said_kindly(client: TestClient, path: str, status: int) -> None:
    """With a way back."""
    answer = client.get(path)
    assert answer.status_code == status
    assert "Go to the home page" in answer.text


def test_words_are_suggested_from_the_archive(app: Application, client: TestClient) -> None:
    """The most frequent first; the beginning of any word will do."""
    today = clock.utcnow().date()
    keywords = [("world models", "robotics"), ("world models",), ("large world maps",), ("underworld",)]
    shelve(app, *(paper(n, today, keywords=words) for n, words in enumerate(keywords, 1)))
    assert client.get("/suggest", params={"q": " World "}).json() == ["world models", "large world maps"]
    assert client.get("/suggest", params={"q": "x" * 9999}).json() == []
    assert '<option value="robotics">' in client.get("/").text


# --- signing up


def test_signing_up_sends_one_mail_with_the_way_in(
    mail_server: MailServer, app: Application, client: TestClient
) -> None:
    """What was chosen is kept until its owner confirms."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    assert [one.recipient for one in mail_server.messages] == ["carol@example.org"]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert re.search(r"https://paperboy\.test/confirm/\S{51}\s", text)
    with app.db.read() as session:
        carol = session.exec(select(Subscriber.id)).one() or 0
        waiting = subscribers.pending_choices(session, carol)
    assert waiting is not None
    chosen = waiting.preferences
    assert (chosen.cadence, chosen.weekday, chosen.hour, chosen.zone) == ("weekly", 2, 7, "Asia/Tokyo")
    assert [wish.text for wish in chosen.interests] == ["world models", "robot learning"]


def test_signing_up_without_interests_brings_what_is_trending(app: Application, client: TestClient) -> None:
    """There is always something to begin with."""
    assert client.post("/subscribe", data={**FORM, "interest": ""}).status_code == 200
    with app.db.read() as session:
        waiting = subscribers.pending_choices(session, session.exec(select(Subscriber.id)).one() or 0)
    assert waiting is not None
    assert waiting.preferences.when_empty is EmptyDigestPolicy.TRENDING


def test_a_mail_that_cannot_leave_now_waits(app: Application, client: TestClient) -> None:
    """Nobody listens on the relay's port, and the visitor need not know."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    assert count(app, Delivery) == 1


def test_nobody_learns_who_is_subscribed(
    app: Application, client: TestClient, alice: int, pending: int
) -> None:
    """Known, waiting, gone, blocked, erased and unknown addresses get the same answer, to the byte."""
    with app.db.write() as session:
        gone = subscribers.add(session, "gone@example.org", subscribers.preferences_of(
            session, subscribers.get(session, alice)), clock.utcnow())  # fmt: skip
        subscribers.unsubscribe(session, gone, clock.utcnow())
        suppression.suppress(session, "blocked@example.org", "complained", clock.utcnow())
        erased, paused, bouncing = (
            subscribers.add(session, f"{name}@example.org", WANTED, clock.utcnow())
            for name in ("erased", "paused", "bouncing")
        )
        subscribers.erase(session, erased, clock.utcnow())
        subscribers.pause(session, paused, None, clock.utcnow())
        subscribers.get(session, bouncing).state = SubscriberState.BOUNCING
        suppression.suppress(session, "bouncing@example.org", "bounced", clock.utcnow())
    names = ["bob", "gone", "blocked", "erased", "paused", "bouncing", "new"]
    emails = [ALICE, *(f"{name}@example.org" for name in names)]
    for path in ("/subscribe", "/manage"):
        before = count(app, Event)
        answers = [client.post(path, data={**FORM, "email": email}) for email in emails]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.text for answer in answers}) == 1
        assert len({str(sorted(answer.headers.items())) for answer in answers}) == 1
        assert count(app, Event) == before + len(emails), "each writes as much as the others"


def test_a_reader_who_signs_up_again_gets_their_link(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """At most once an hour, however often somebody types their address."""
    for _ in range(3):
        client.post("/subscribe", data={**FORM, "email": ALICE.upper()})
    with app.db.read() as session:
        assert session.exec(select(Delivery.kind)).all() == [MailKind.MANAGE]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "nothing was changed" in " ".join(text.split())
    path = re.search(r"https://paperboy\.test(/preferences/\S+)", text)
    assert path is not None
    assert client.get(path[1]).status_code == 200


@pytest.mark.parametrize(
    ("field", "typed", "marked"),
    [
        ("email", "carol@example.org\r\nBcc: eve@example.org", "email"),
        ("email", "carol", "email"),
        ("email", "", "email"),
        ("zone", "Mars/Olympus_Mons", "zone"),
        ("zone", "", "zone"),
        ("interest", "x" * 10_000, "interests.0"),
        ("interest", "?!* … —", "interests.0"),
        ("hour", "25", "hour"),
        ("hour", "eight", "hour"),
        ("hour", "9" * 5000, "hour"),
        ("weekday", "7", "weekday"),
    ],
)
def test_a_mistake_is_marked_and_nothing_else_lost(
    app: Application, client: TestClient, field: str, typed: str, marked: str
) -> None:
    """The form comes back as it was filled in, and nothing is stored or sent."""
    answer = client.post("/subscribe", data={**FORM, field: typed})
    assert answer.status_code == 422
    assert f'id="problem-{marked}"' in answer.text
    assert f'aria-describedby="problem-{marked}"' in answer.text
    if field != "interest":
        assert 'value="robot learning"' in answer.text
    if field != "email":
        assert 'value="carol@example.org"' in answer.text
    assert count(app, Subscriber) == count(app, Delivery) == count(app, Event) == 0


def test_more_interests_than_anybody_has_are_refused(app: Application, client: TestClient) -> None:
    """Twenty is the most."""
    answer = client.post("/subscribe", data={**FORM, "interest": [f"topic {n}" for n in range(21)]})
    assert answer.status_code == 422
    assert "At most 20 interests" in answer.text


def test_a_form_that_is_no_form_is_answered(client: TestClient) -> None:
    """JSON, nothing, a file where a word should be, ten thousand fields."""
    assert client.post("/subscribe", json=FORM).status_code == 422
    assert client.post("/subscribe").status_code == 422
    assert client.post("/subscribe", files={"email": ("a.txt", b"carol@example.org")}).status_code == 422
    crowd = "&".join(f"f{n}=x" for n in range(2000))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/subscribe", content=crowd, headers=kind).status_code in (400, 422)


def test_who_asks_too_often_has_to_wait_or_work(app: Application) -> None:
    """Before anything is written or mailed."""
    few = main.build(app.settings.model_copy(update={"signups_per_hour": 2}))
    with TestClient(main.create_app(few), base_url="https://paperboy.test") as client:
        for name in ("one", "two"):
            assert client.post("/subscribe", data={**FORM, "email": f"{name}@example.org"}).status_code == 200
        written = count(app, Event)
        answer = client.post("/subscribe", data={**FORM, "email": "three@example.org"})
        asked = client.post("/manage", data={"email": ALICE})
    few.db.dispose()
    assert (answer.status_code, asked.status_code) == (429, 429)
    assert 0 < int(answer.headers["retry-after"]) <= 3600
    assert "One moment, please" in answer.text
    assert count(app, Event) == written
    assert count(app, FormSubmission) == 2


def test_an_address_is_asked_only_so_often(app: Application, client: TestClient) -> None:
    """Whoever asks from wherever, known or not: a mailbox is not a target."""
    answers = [client.post("/manage", data={"email": "new@example.org"}).status_code for _ in range(6)]
    assert answers == [200] * 5 + [429]


def test_asking_for_a_link_needs_an_address(client: TestClient) -> None:
    """The same form comes back."""
    answer = client.post("/manage", data={"email": "nobody"})
    assert answer.status_code == 422
    assert 'value="nobody"' in answer.text


def test_the_last_event_names_nobody_unknown(app: Application, client: TestClient) -> None:
    """An address that we do not know is not written down by asking."""
    client.post("/manage", data={"email": "stranger@example.org"})
    with app.db.read() as session:
        event = session.exec(select(Event).order_by(col(Event.id).desc())).first()
    assert event is not None
    assert (event.kind, event.subscriber_id, event.detail) == ("link_refused", None, "")
