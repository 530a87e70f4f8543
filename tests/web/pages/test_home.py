"""Test the front page, the day pages and sign-up."""

import re
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlmodel import col, func, select

from app import clock, main, subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import TooManyRequests
from app.papers import archive_lists, merging
from app.storage.models import Delivery, Event, FormSubmission, Paper, Source, Subscriber, SubscriberState
from app.types import Cadence, EmptyDigestPolicy, MailKind, PaperRecord, ParseResult, SourceKind
from app.web.capacity import Capacity
from app.web.proof_of_work import Challenge
from app.web.rate_limits import RateLimiter
from tests.support import stored_records
from tests.support.mail_server import MailServer
from tests.web.conftest import ALICE, WANTED

DAY = date(2026, 11, 19)
FORM = {
    "email": "carol@example.org", "interest": ["world models", "", "robot learning"], "cadence": "weekly",
    "weekday": "2", "hour": "7", "zone": "Asia/Tokyo",
}  # fmt: skip


def add_papers(app: Application, *records: PaperRecord) -> None:
    """Ingest papers as a source does."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = Source(name="a source", kind=SourceKind.JSONL, created_at=now)
        session.add(source)
        session.flush()
        stored_records.store(session, source, ParseResult(len(records), records), now)


def record(number: int, day: date = DAY, **fields: object) -> PaperRecord:
    fields = {"arxiv_id": f"2611.{number:05}", "title": f"On the Number {number}", "listed_on": day, **fields}
    return PaperRecord(**fields)  # type: ignore[arg-type]


def count_rows(app: Application, table: type) -> int:
    with app.db.read() as session:
        return session.exec(select(func.count()).select_from(table)).one()


# --- reading


@pytest.mark.once
def test_own_template_of_a_page(app: Application, tmp_path: Path) -> None:
    """It can extend the layout of the release. All other pages are unchanged."""
    (tmp_path / "web").mkdir()
    own = '{% extends "base.html" %}{% block main %}<h1>Papers for our lab</h1>{% endblock %}'
    (tmp_path / "web" / "home.html").write_text(own)
    ours = replace(app, settings=app.settings.model_copy(update={"templates_dir": str(tmp_path)}))
    with TestClient(main.create_app(ours), base_url="https://paperboy.test") as visitor:
        assert "<h1>Papers for our lab</h1>" in visitor.get("/").text
        assert "Papers for our lab" not in visitor.get("/search").text


@pytest.mark.once
def test_forms_say_what_a_phrase_matches(client: TestClient) -> None:
    """Its words must occur together, but in any form, because stems are compared (see relevance/filters)."""
    page = client.get("/").text
    assert "the words of a <q>quoted phrase</q> together and in this order" in page
    assert "Plurals and other forms of the words count, too." in page
    assert "exactly as written" not in page
    schema = client.get("/api/openapi.json").json()["components"]["schemas"]["InterestIn"]
    assert "plurals and other forms of them count" in schema["properties"]["text"]["description"]


def test_front_page_without_papers(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert "fetching the first papers" in answer.text
    assert 'name="email"' in answer.text


def test_the_front_page_shows_the_newest_day(app: Application, client: TestClient) -> None:
    """Papers are sorted by votes, with links to the paper and to the previous day."""
    add_papers(
        app,
        record(1, DAY - timedelta(days=3)),
        record(2, upvotes=3, authors=("Ada Lovelace", "Alan Turing")),
        record(3, upvotes=90, title="<b>Bold</b> & Brave", pdf_url="https://arxiv.org/pdf/2611.00003"),
    )
    page = client.get("/").text
    assert page.index("&lt;b&gt;Bold&lt;/b&gt; &amp; Brave") < page.index("On the Number 2")
    assert "On the Number 1" not in page
    assert "Thursday, 19 November 2026" in page
    assert 'href="/day/2026-11-16"' in page
    assert "https://arxiv.org/pdf/2611.00003" in page


def test_day_page_links_the_neighbouring_days(app: Application, client: TestClient) -> None:
    """Days without papers are skipped."""
    add_papers(app, record(1, DAY - timedelta(days=3)), record(2), record(3, DAY + timedelta(days=4)))
    page = client.get("/day/2026-11-19").text
    assert 'rel="prev" href="/day/2026-11-16"' in page
    assert 'rel="next" href="/day/2026-11-23"' in page


@pytest.mark.parametrize("path", ["/day/2026-11-18", "/day/tomorrow", "/x"])
def test_not_found_page_has_a_link_back(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "Go to the home page" in answer.text


def test_interest_suggestions(app: Application, client: TestClient) -> None:
    """The most frequent keywords come first, and any word of a keyword may match."""
    today = clock.utcnow().date()
    keywords = [("world models", "robotics"), ("world models",), ("large world maps",), ("underworld",)]
    add_papers(app, *(record(n, today, keywords=words) for n, words in enumerate(keywords, 1)))
    assert client.get("/suggest", params={"q": " World "}).json() == ["world models", "large world maps"]
    assert client.get("/suggest", params={"q": "x" * 9999}).json() == []
    assert '<option value="robotics">' in client.get("/").text


def test_suggestions_count_merged_papers_once(app: Application) -> None:
    today = clock.utcnow().date()
    add_papers(app, *(record(n, today, keywords=("World models",)) for n in (1, 2, 3)))
    with app.db.write() as session:
        copy, paper, _other = session.exec(select(Paper).order_by(col(Paper.arxiv_id))).all()
        merging.merge(session, copy, paper, "same title", clock.utcnow())
        assert archive_lists.keywords(session, today) == {"world models": 2}


# --- signing up


def test_front_page_takes_interests_from_links(client: TestClient) -> None:
    """They are filled in and previewed by script. Search engines index only the page without them."""
    page = client.get("/", params={"interest": ["world models", "<b>"]}).text
    assert re.findall('name="interest" value="([^"]+)"', page) == ["world models", "&lt;b&gt;"]
    assert 'hx-trigger="input delay:400ms, load, change from:#cadence"' in page
    assert '<meta name="robots" content="noindex">' in page
    assert "noindex" not in client.get("/").text


def test_sign_up_sends_one_confirmation_mail(
    mail_server: MailServer, app: Application, client: TestClient
) -> None:
    """The preferences are stored until the sign-up is confirmed."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    assert [mail.recipient for mail in mail_server.messages] == ["carol@example.org"]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert re.search(r"https://paperboy\.test/confirm/\S{51}\s", text)
    with app.db.read() as session:
        carol = session.exec(select(Subscriber.id)).one() or 0
        waiting = subscribers.pending_choices(session, carol)
    assert waiting is not None
    preferences = waiting.preferences
    assert (preferences.cadence, preferences.weekday, preferences.hour, preferences.zone) == (
        "weekly",
        2,
        7,
        "Asia/Tokyo",
    )
    assert [interest.text for interest in preferences.interests] == ["world models", "robot learning"]


def test_sign_up_without_interests_enables_trending(app: Application, client: TestClient) -> None:
    assert client.post("/subscribe", data={**FORM, "interest": ""}).status_code == 200
    with app.db.read() as session:
        waiting = subscribers.pending_choices(session, session.exec(select(Subscriber.id)).one() or 0)
    assert waiting is not None
    assert waiting.preferences.when_empty is EmptyDigestPolicy.TRENDING


def test_sign_up_succeeds_while_the_relay_is_down(app: Application, client: TestClient) -> None:
    """The confirmation stays in the queue."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    assert count_rows(app, Delivery) == 1


def test_sign_up_response_is_the_same_for_every_address(
    app: Application, client: TestClient, alice: int, pending: int
) -> None:
    """Active, pending, unsubscribed, suppressed, erased and unknown addresses get the same page."""
    with app.db.write() as session:
        unsubscribed = subscribers.add(session, "gone@example.org", subscribers.preferences_of(
            session, subscribers.get(session, alice)), clock.utcnow())  # fmt: skip
        subscribers.unsubscribe(session, unsubscribed, clock.utcnow())
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
        before = count_rows(app, Event)
        answers = [client.post(path, data={**FORM, "email": email}) for email in emails]
        assert {answer.status_code for answer in answers} == {200}
        texts = {answer.text.replace(email, "") for answer, email in zip(answers, emails, strict=True)}
        assert len(texts) == 1
        lengths = [dict(answer.headers, **{"content-length": ""}) for answer in answers]
        assert len({str(sorted(headers.items())) for headers in lengths}) == 1
        assert count_rows(app, Event) == before + len(emails), "each writes as much as the others"


@pytest.mark.parametrize("path", ["/subscribe", "/manage"])
def test_mistyped_provider_is_asked_about_once(app: Application, client: TestClient, path: str) -> None:
    """The typed address is accepted when it is sent again. The page then shows it."""
    form = {**FORM, "email": "carol@gmial.com"}
    asked = client.post(path, data=form)
    assert asked.status_code == 422
    assert "Did you mean carol@gmail.com?" in asked.text
    assert '<button class="small quiet" name="email" value="carol@gmail.com">' in asked.text
    pressed_on_enter = asked.text.index('<button class="unseen"')
    assert pressed_on_enter < asked.text.index('<button class="small quiet" name="email"')
    assert count_rows(app, FormSubmission) == 0
    confirmed = re.search(r'name="confirmed_email" value="([^"]+)"', asked.text)
    assert confirmed
    changed = client.post(path, data={**form, "email": "carol@gmail.con", "confirmed_email": confirmed[1]})
    assert "Did you mean carol@gmail.com?" in changed.text, "another address"
    answer = client.post(path, data={**form, "confirmed_email": confirmed[1]})
    assert answer.status_code == 200
    assert "<strong><bdi>carol@gmial.com</bdi></strong>" in answer.text


def test_repeated_sign_up_mails_the_preferences_link(
    mail_server: MailServer, app: Application, client: TestClient, alice: int
) -> None:
    """At most one email an hour is sent."""
    for _ in range(3):
        client.post("/subscribe", data={**FORM, "email": ALICE.upper()})
    with app.db.read() as session:
        assert session.exec(select(Delivery.kind)).all() == [MailKind.MANAGE]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert "Nothing about your subscription has changed" in " ".join(text.split())
    path = re.search(r"https://paperboy\.test(/preferences/\S+)", text)
    assert path is not None
    assert client.get(path[1]).status_code == 200


@pytest.mark.once
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
def test_invalid_sign_up_keeps_the_form(
    app: Application, client: TestClient, field: str, typed: str, marked: str
) -> None:
    """Nothing is stored or sent."""
    answer = client.post("/subscribe", data={**FORM, field: typed})
    assert answer.status_code == 422
    assert f'id="problem-{marked}"' in answer.text
    assert f'aria-describedby="problem-{marked}"' in answer.text
    if field != "interest":
        assert 'value="robot learning"' in answer.text
    if field != "email":
        assert 'value="carol@example.org"' in answer.text
    assert count_rows(app, Subscriber) == count_rows(app, Delivery) == count_rows(app, Event) == 0


def test_defaults_of_a_sign_up(app: Application) -> None:
    """The form selects the default cadence. The number of papers is not asked for."""
    changed = {"default_cadence": Cadence.WEEKDAYS, "default_max_papers": 5}
    ours = replace(app, settings=app.settings.model_copy(update=changed))
    with TestClient(main.create_app(ours), base_url="https://paperboy.test") as visitor:
        assert re.findall(r'value="(\w+)" selected>Monday to Friday', visitor.get("/").text) == ["weekdays"]
        assert visitor.post("/subscribe", data={**FORM, "cadence": "weekly"}).status_code == 200
        answer = visitor.post("/subscribe", data={**FORM, "email": "dave@example.org", "cadence": ""})
        assert answer.status_code == 200
    with app.db.read() as session:
        submitted = [row.preferences for row in session.exec(select(FormSubmission))]
    assert {(each["cadence"], each["max_papers"]) for each in submitted} == {("weekly", 5), ("weekdays", 5)}


def test_at_most_twenty_interests(app: Application, client: TestClient) -> None:
    answer = client.post("/subscribe", data={**FORM, "interest": [f"topic {n}" for n in range(21)]})
    assert answer.status_code == 422
    assert "at most 20 interests" in answer.text


def test_malformed_form_bodies(client: TestClient) -> None:
    """Test JSON, an empty body, a file in a text field, and ten thousand fields."""
    assert client.post("/subscribe", json=FORM).status_code == 422
    assert client.post("/subscribe").status_code == 422
    assert client.post("/subscribe", files={"email": ("a.txt", b"carol@example.org")}).status_code == 422
    crowd = "&".join(f"f{n}=x" for n in range(2000))
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/subscribe", content=crowd, headers=kind).status_code in (400, 422)


def test_excess_sign_ups_need_proof_of_work_or_a_wait(app: Application) -> None:
    """The limit applies before anything is written or sent."""
    few = main.build(app.settings.model_copy(update={"signups_per_hour": 2}))
    with TestClient(main.create_app(few), base_url="https://paperboy.test") as client:
        for name in ("one", "two"):
            assert client.post("/subscribe", data={**FORM, "email": f"{name}@example.org"}).status_code == 200
        events = count_rows(app, Event)
        answer = client.post("/subscribe", data={**FORM, "email": "three@example.org"})
        response = client.post("/manage", data={"email": ALICE})
    few.db.dispose()
    assert (answer.status_code, response.status_code) == (429, 429)
    assert 0 < int(answer.headers["retry-after"]) <= 3600
    assert "One moment, please" in answer.text
    assert count_rows(app, Event) == events
    assert count_rows(app, FormSubmission) == 2


def test_form_can_be_sent_without_a_script(client: TestClient) -> None:
    """Even if only a proof of work admits it now: after an hour, the limits count anew."""
    client.app.state.form_throttle.admit = lambda *_: Challenge("{}", 1, "proof", None)  # type: ignore[attr-defined]
    answer = client.post("/subscribe", data=FORM)
    assert answer.status_code == 429
    assert "Please wait an hour, then press the button." in answer.text
    assert re.search(r"<button [^>]*>Send</button>", answer.text)


@pytest.mark.parametrize(
    ("pause", "words"), [(1, "1 second"), (40, "40 seconds"), (91, "2 minutes"), (3600, "60 minutes")]
)
def test_challenge_says_how_long_to_wait(client: TestClient, pause: int, words: str) -> None:
    """A pause counts down to one second, which is singular."""
    client.app.state.form_throttle.admit = lambda *_: Challenge("{}", 1, "proof", pause)  # type: ignore[attr-defined]
    page = client.post("/subscribe", data=FORM).text
    assert f"Please wait <strong>{words}</strong>, then press the button." in page


def test_mails_to_one_address_are_limited(app: Application, client: TestClient) -> None:
    """The limit holds for any client and for known and unknown addresses."""
    answers = [client.post("/manage", data={"email": "new@example.org"}).status_code for _ in range(6)]
    assert answers == [200] * 5 + [429]


def test_refused_form_can_be_sent_again(client: TestClient) -> None:
    """The page says how long to wait, and its button sends the same fields."""
    limits: Capacity = client.app.state.capacity  # type: ignore[attr-defined]
    limits.visitors.pages = RateLimiter(0, 100)
    refused = client.get("/?interest=agents")
    assert "Please wait 2 minutes, then try again." in refused.text

    def refuse(*_arguments: object) -> None:
        raise TooManyRequests(retry_after=40)

    client.app.state.form_throttle.admit = refuse  # type: ignore[attr-defined]
    refused = client.post("/subscribe", data=FORM)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "40")
    assert "Please send the form again in 40 seconds. We kept everything you entered." in refused.text
    assert refused.text.count('name="interest"') == 3
    assert 'name="email" value="carol@example.org"' in refused.text


def test_link_request_requires_an_address(client: TestClient) -> None:
    """The form is shown again."""
    answer = client.post("/manage", data={"email": "nobody"})
    assert answer.status_code == 422
    assert 'value="nobody"' in answer.text


def test_link_request_does_not_store_unknown_addresses(app: Application, client: TestClient) -> None:
    client.post("/manage", data={"email": "stranger@example.org"})
    with app.db.read() as session:
        event = session.exec(select(Event).order_by(col(Event.id).desc())).first()
    assert event is not None
    assert (event.kind, event.subscriber_id, event.detail) == ("link_refused", None, "")
