"""What somebody would get, before they give an address."""

from __future__ import annotations

import gzip
import re
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import func, select

from app import clock, main
from app.application import Application
from app.errors import TooManyRequests
from app.links import Purpose
from app.storage.models import Delivery, Event, FormSubmission, InterestQuery, Subscriber
from app.subscribers import Preferences
from app.types import Interest
from app.web import forms, preview, templating, work_limits
from app.web.preview import Previews
from app.web.work_limits import WorkSlots
from tests.support import factories
from tests.web.conftest import Link

AGENTS, VIDEO = "Language Agents that <think> in $\\mathbb{R}^n$", "Video Diffusion in Real Time"
AGENT = Preferences(interests=(Interest("agents"),))
SCRIPT = {"HX-Request": "true"}
FORM = {"email": "carol@example", "interest": ["language agents", "", "cooking"], "cadence": "weekly",
        "weekday": "2", "hour": "7", "zone": "Asia/Tokyo", "liked": "Attention Is All You Need"}  # fmt: skip


@pytest.fixture
def shelf(app: Application) -> None:
    """Two papers of today, and one on agents on each of the three days before."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.source(session, now)
        for title in (AGENTS, VIDEO):
            factories.paper(session, source, title, now.date(), now, abstract=f"{title}, at last.")
        for back in (1, 2, 3):
            day = now - timedelta(days=back)
            factories.paper(session, source, f"Language Agents, Part {4 - back}", day.date(), day)


def looked(client: TestClient, *interests: str) -> str:
    """What a script is answered."""
    answer = client.post("/preview", data={"interest": interests}, headers=SCRIPT)
    assert answer.status_code == 200
    return answer.text


@pytest.mark.usefixtures("shelf")
def test_the_digest_of_today(client: TestClient) -> None:
    """By interest, with the reason and the votes; what papers are called does no harm."""
    said = looked(client, "language agents", "video diffusion")
    assert "Preview of your digest" in said
    assert said.index("Language Agents that &lt;think&gt;") < said.index(VIDEO)
    assert "“Language Agents” in the title" in said
    assert "10 votes" in said
    assert "Today’s digest would have 5 papers." in said
    assert "<html" not in said


@pytest.mark.usefixtures("shelf")
def test_how_much_each_interest_would_have_brought(client: TestClient) -> None:
    """In words, and day by day for who cannot see the bars."""
    said = looked(client, "language agents", "cooking")
    assert re.findall(r'role="img" aria-label="New papers a day: ([\d, ]+)"', said) == [
        "0, " * 10 + "1, 1, 1, 1",
        "0, " * 13 + "0",
    ]
    assert "4 in the 4 days known so far" in said
    assert "none: try other words" in said


@pytest.mark.parametrize(
    ("total", "known", "words"),
    [
        (0, 10, "none: try fewer words"),
        (1, 10, "1 in two weeks: rather narrow"),
        (2, 10, "2 in two weeks: rather narrow"),
        (5, 10, "5 in two weeks"),
        (10, 10, "about 1 a day"),
        (31, 10, "about 3 a day"),
        (290, 10, "about 29 a day: the best are sent"),
        (3, 1, "3 on the one day known so far"),
        (3, 4, "3 in the 4 days known so far"),
    ],
)
def test_numbers_are_said_in_words(total: int, known: int, words: str) -> None:
    """A day without any papers is none on which more could have come."""
    assert preview.in_words("language agents", [total] + [0] * 13, known) == words


def test_no_other_words_are_asked_for_where_there_are_none() -> None:
    """Who follows an author, or a category, cannot try fewer."""
    assert preview.in_words('author:"Ada Lovelace"', [0] * 14, 10) == "none"
    assert preview.in_words("cat:cs.CR", [0] * 14, 10) == "none"


@pytest.mark.usefixtures("shelf")
def test_what_is_muted_would_not_have_come(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Beside each interest stands what its reader would have got."""
    path, form = link(Purpose.PREFERENCES, alice) + "/preview", {"interest": ["language agents", "video"]}
    some = client.post(path, data={**form, "muted": "think"}, headers=SCRIPT).text
    assert "3 in the 4 days known so far" in some
    none = client.post(path, data={**form, "muted": "agents"}, headers=SCRIPT).text
    assert "none except muted ones" in none
    assert "1 in the 4 days known so far" in none


@pytest.mark.usefixtures("shelf")
def test_an_interest_from_right_to_left_stays_beside_its_bars(client: TestClient) -> None:
    """Its letters run their own way; its place is that of all others."""
    assert '<span class="of"><bdi>סוכני שפה</bdi></span>' in looked(client, "סוכני שפה")


@pytest.mark.usefixtures("shelf")
def test_nothing_is_written(app: Application, client: TestClient) -> None:
    """Neither who looked, nor what for."""
    client.post("/preview", data=FORM)
    with app.db.read() as session:
        for table in (Subscriber, Delivery, Event, InterestQuery):
            assert session.exec(select(func.count()).select_from(table)).one() == 0


@pytest.mark.usefixtures("shelf")
def test_without_scripts_the_page_comes_back_as_it_was_filled_in(client: TestClient) -> None:
    """With the preview on it; only what the preview is about is looked over."""
    page = client.post("/preview", data=FORM).text
    assert "<html" in page
    assert "Language Agents that &lt;think&gt;" in page
    assert 'value="carol@example"' in page
    assert 'value="cooking"' in page
    for value in ("weekly", "2", "7", "Asia/Tokyo"):
        assert f'<option value="{value}" selected>' in page
    assert "Attention Is All You Need</textarea>" in page
    assert "data-detect" not in page
    assert "problem-email" not in page


@pytest.mark.usefixtures("shelf")
def test_a_mistake_is_told_beside_its_interest(client: TestClient) -> None:
    """And the others are looked for all the same."""
    typed = ["language agents", "", '"unclosed']
    page = client.post("/preview", data={"interest": typed}).text
    assert 'value="&#34;unclosed"' in page
    assert 'id="problem-interests.1"' in page
    said = looked(client, *typed)
    assert '<li data-interest="&#34;unclosed">A quotation mark is not closed.</li>' in said
    for text in (page, said):
        assert "Language Agents that &lt;think&gt;" in text
    assert "Your digest" not in looked(client, '"unclosed')


@pytest.mark.usefixtures("shelf")
def test_every_mistake_in_what_is_wanted_is_told_beside_its_field(
    client: TestClient, alice: int, link: Link
) -> None:
    """On the page and to a script; what is understood of the muted words still keeps its papers out."""
    path = link(Purpose.PREFERENCES, alice) + "/preview"
    typed = {"interest": ["language agents", "", '"x'], "min_papers": "99", "max_papers": "",
             "max_trending": "abc", "muted": "a\nthink", "hour": "99"}  # fmt: skip
    page = client.post(path, data=typed).text
    said = client.post(path, data=typed, headers=SCRIPT).text
    for name in ("min_papers", "max_papers", "max_trending", "muted"):
        assert f'id="problem-{name}"' in page
        assert f'<li data-field="{name}">' in said
    assert 'id="problem-interests.1"' in page
    assert "“a” cannot be muted. Choose a more specific word.</p>" in page
    assert "problem-hour" not in page, "which the preview is not about"
    for text in (page, said):
        assert "Language Agents, Part 3" in text
        assert "Language Agents that" not in text


@pytest.mark.usefixtures("shelf")
def test_a_flood_of_lines_does_not_come_back(
    client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it looked over for who may not look now: it could not be used."""
    path = link(Purpose.PREFERENCES, alice)
    usual, typed = len(client.get(path).content), {"muted": "a\n" * 150_000, "interest": ["b"] * 900}
    for at, status in ((path, 422), (path + "/preview", 200)):
        answer = client.post(at, data=typed)
        assert (answer.status_code, len(answer.content) < usual + 200_000) == (status, True)
        assert 'id="problem-muted"' in answer.text
        assert 'id="problem-interests"' in answer.text
    monkeypatch.setattr(client.app.state.capacity.preview_limit, "hit", refuse)  # type: ignore[attr-defined]
    monkeypatch.setattr(forms, "validated", None)
    assert client.post("/preview", data=typed).status_code == 429


@pytest.mark.usefixtures("shelf")
def test_without_interests_it_is_what_is_trending(client: TestClient) -> None:
    """As the digest would be."""
    said = looked(client)
    assert "Trending now" in said
    assert VIDEO in said


def test_authors_are_named_in_words(app: Application, client: TestClient) -> None:
    """Above their papers, and beside the form."""
    now = clock.utcnow()
    with app.db.write() as session:
        factories.paper(
            session, factories.source(session, now), VIDEO, now.date(), now, authors=["Hongtao Wu"]
        )
    said = looked(client, 'author:"Hongtao Wu"')
    assert re.findall(">(Papers by [^<]+)<", said) == ["Papers by Hongtao Wu"] * 2


@pytest.mark.usefixtures("shelf")
def test_a_reader_looks_ahead_beside_their_preferences(
    app: Application, client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what stands in the form, with its quota and its most; nothing is saved by looking."""
    path = link(Purpose.PREFERENCES, alice) + "/preview"
    typed = {"interest": ["language agents", "video, cooking"], "weight": ["1", "2"], "quota": ["2", ""]}
    said = client.post(path, data=typed, headers=SCRIPT)
    assert "Today’s digest would have 2 papers." in said.text
    assert f'formaction="{path}#interests"' in said.text
    assert said.headers["cache-control"] == "no-store"
    few = client.post(path, data={**typed, "max_papers": "1"}, headers=SCRIPT).text
    assert "Today’s digest would have 1 paper." in few
    waits = client.post(path, data={**typed, "min_papers": "3"}, headers=SCRIPT).text
    assert "No digest today: 2 of at least 3 papers: kept for the next digest" in waits
    muted = {**typed, "muted": "author:nobody\nthink", "max_trending": "1"}
    assert "Language Agents that" not in client.post(path, data=muted, headers=SCRIPT).text
    page = client.post(path, data={**typed, "split": "video, cooking", "hour": "5"}).text
    assert "Language Agents that &lt;think&gt;" in page
    assert re.findall(r'name="interest" value="([^"]+)"', page) == ["language agents", "video", "cooking"]
    assert page.count('<option value="2" selected>more') == 2, "what is kept apart keeps its weight"
    assert '<option value="5" selected>' in page
    nothing = client.post(path, data={"interest": "", "when_empty": "skip"}, headers=SCRIPT).text
    assert "No digest today: Name at least one interest" in nothing
    stored = client.get(path).text
    assert re.findall(r'name="interest" value="([^"]+)"', stored) == ["diffusion models", "robotics"]
    assert "Preview of your digest" in stored
    monkeypatch.setattr(client.app.state.capacity.preview_limit, "hit", refuse)
    refused = client.post(path, data=typed)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert 'value="language agents"' in refused.text


def refuse(_ip: str) -> None:
    raise TooManyRequests(retry_after=7)


def test_silence_is_explained(client: TestClient) -> None:
    """An archive without papers is no error."""
    assert "No digest today: no new papers. The archive is still empty: no source" in looked(
        client, "language agents"
    )


@pytest.mark.usefixtures("shelf")
def test_several_interests_on_one_line_can_be_kept_apart(client: TestClient) -> None:
    """By a button that says so; nothing else is parted, and nothing lost."""
    typed = {**FORM, "interest": ["agents, RL,  quantization", "cooking"]}
    page = client.post("/preview", data=typed).text
    assert 'value="agents, RL,  quantization"' in page
    assert "These look like 3 interests" in page
    page = client.post("/preview", data={**typed, "split": "agents, RL,  quantization"}).text
    assert re.findall(r'name="interest" value="([^"]+)"', page) == ["agents", "RL", "quantization", "cooking"]
    assert "These look like" not in page
    assert 'value="carol@example"' in page


@pytest.mark.usefixtures("shelf")
def test_more_interests_than_fit_are_not_offered(client: TestClient) -> None:
    """Who keeps them apart could not sign up with them."""
    many = ", ".join(f"topic {n}" for n in range(15))
    assert "These look like 15 interests" in looked(client, many)
    assert "These look like" not in looked(client, many, *(f"other {n}" for n in range(6)))


def test_signing_up_parts_nothing(app: Application, client: TestClient) -> None:
    """What was typed is what is wished for."""
    client.post("/subscribe", data={**FORM, "email": "carol@example.org", "interest": "agents, RL"})
    with app.db.read() as session:
        stored = session.exec(select(FormSubmission.preferences)).one()
    assert [wish["text"] for wish in stored["interests"]] == ["agents, RL"]


@pytest.mark.usefixtures("shelf")
def test_who_looks_too_often_is_told_and_signs_up_all_the_same(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is there, with all that was typed."""
    monkeypatch.setattr(work_limits, "PREVIEWS_A_MINUTE", 2)
    with TestClient(main.create_app(app), base_url="https://paperboy.test") as client:
        looked(client, "agents")
        looked(client, "video")
        refused = client.post("/preview", data=FORM)
        signed_up = client.post("/subscribe", data={**FORM, "email": "carol@example.org"})
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert "Too many requests. The next preview is available in" in refused.text
    assert "You can still submit the form." in refused.text
    assert 'value="carol@example"' in refused.text
    assert signed_up.status_code == 200


class Broken:
    """Previews that fail."""

    def of(self, *_asked: object) -> preview.Preview:
        raise ZeroDivisionError("the secret inside")


def test_a_preview_that_fails_is_no_end(app: Application) -> None:
    """The form stays as it was filled in."""
    site = main.create_app(app)
    site.state.previews = Broken()
    with TestClient(site, base_url="https://paperboy.test") as client:
        answer = client.post("/preview", data=FORM)
    assert answer.status_code == 500
    assert "The preview failed" in answer.text
    assert 'value="carol@example"' in answer.text
    assert "secret" not in answer.text


@pytest.mark.usefixtures("shelf")
def test_previews_leave_room_for_others(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many may wait for their turn, and each gives its place back, whatever happens."""
    state = client.app.state  # type: ignore[attr-defined]
    state.capacity.previews = WorkSlots(1)
    with state.capacity.previews.take():
        assert client.post("/preview", data=FORM).status_code == 429
    with monkeypatch.context() as patch:
        patch.setattr(state.previews, "build", None)
        assert client.post("/preview", data=FORM).status_code == 500
    assert client.post("/preview", data=FORM).status_code == 200


def test_its_address_leads_back_to_the_form(client: TestClient) -> None:
    """Whoever keeps it as a bookmark, or presses Enter on it."""
    answer = client.get("/preview", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/#join")


def test_parting_makes_no_more_than_there_may_be(client: TestClient) -> None:
    """One line is parted, once, and none where that would be too many."""
    several = ", ".join(f"word{number}" for number in range(30))
    lines = {**FORM, "interest": [several] * 50, "split": several}
    page = client.post("/preview", data=lines).text
    assert 'value="word7"' not in page
    two = client.post("/preview", data={**FORM, "interest": ["a, b", "a, b"], "split": "a, b"}).text
    assert [two.count(f'name="interest" value="{line}"') for line in ("a", "b", "a, b")] == [1, 1, 1]


def test_half_letters_are_no_crash(client: TestClient) -> None:
    """Some character sets can spell what no page can say."""
    body = (
        b"--x\r\nContent-Disposition: form-data; name=interest\r\n"
        b"Content-Type: text/plain; charset=unicode_escape\r\n\r\n\\ud800 agents\r\n--x--\r\n"
    )
    answer = client.post(
        "/preview", content=body, headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert answer.status_code < 500


@pytest.mark.usefixtures("shelf")
def test_papers_are_read_once_a_minute(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all who look; sooner only where so many interests were matched that they would fill the memory."""
    previews, now = Previews(app), clock.utcnow()
    desk = previews._current_builder(now)
    assert previews._current_builder(now + timedelta(seconds=59)) is desk
    later = previews._current_builder(now + timedelta(seconds=60))
    assert later is not desk
    monkeypatch.setattr(preview, "MAX_MATCHED", 2)
    previews.build(
        Preferences(interests=(Interest("agents"), Interest("video"))), now + timedelta(seconds=70)
    )
    assert previews._current_builder(now + timedelta(seconds=80)) is not later


def test_another_site_cannot_ask(client: TestClient) -> None:
    """A page elsewhere uses up nobody's looks."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/preview", data=FORM, headers=headers).status_code == 403


@pytest.mark.usefixtures("shelf")
def test_the_page_is_light(client: TestClient) -> None:
    """With its styles, its scripts and a preview: under 60 kB on the wire."""
    files = ("style.css", "page.js", "vendor/htmx/htmx.min.js")
    page = client.post("/preview", data=FORM)
    assert page.headers["content-encoding"] == "gzip"
    parts = [page.content, *((templating.STATIC / name).read_bytes() for name in files)]
    assert sum(len(gzip.compress(part, 5)) for part in parts) < 60_000
    for name in files:
        assert client.get(f"/static/{name}").headers["content-encoding"] == "gzip"
    assert (templating.STATIC / "vendor/htmx/LICENSE").exists()
