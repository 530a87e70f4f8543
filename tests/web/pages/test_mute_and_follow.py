"""Test the links to mute a word or follow an author from a paper in a digest."""

import re
from datetime import datetime

import pytest
from fastapi.testclient import TestClient

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.storage.models import Paper
from app.subscribers import Preferences
from tests.support import factories
from tests.web.conftest import Link

TITLE = "Agents & <b>Bold</b> Plans"
AUTHORS = ["Ada Lovelace", "<i>Eve</i> O'Neil", *(f"Author {n}" for n in range(40)), "Grace Hopper"]


@pytest.fixture
def paper(app: Application) -> int:
    """Add a paper."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "By Nobody", now.date(), now)
        return factories.add_paper(session, source, TITLE, now.date(), now, authors=AUTHORS)


def preferences_of(app: Application, reader: int) -> Preferences:
    with app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, reader))


def action_path(link: Link, reader: int, action: str, paper: int) -> str:
    return f"/feedback/{link(Purpose.FEEDBACK, reader).split('/')[2]}/{action}/{paper}"


def test_word_is_muted_by_post_only(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """Words of the paper are suggested, a typed word has priority, and muting can be undone."""
    path = action_path(link, alice, "mute", paper)
    response = client.get(path)
    assert "Agents &amp; &lt;b&gt;Bold" in response.text
    assert 'value="Bold"' in response.text
    assert response.headers["Cache-Control"] == "no-store"
    before = preferences_of(app, alice)
    assert before.muted == ()
    for _ in range(2):
        muted = client.post(path, data={"word": "Bold", "other": ""})
        assert "are left out of your digests" in muted.text
    both = client.post(path, data={"word": "bold", "other": "<b> block chain"})
    assert "&lt;b&gt; block chain" in both.text
    assert preferences_of(app, alice).muted == ("Bold", "<b> block chain")
    assert "You have muted “<bdi>Bold</bdi>”, “<bdi>&lt;b&gt;" in client.get(path).text
    undone = client.post(path, data={"other": "Bold", "action": "undo"})
    assert "No longer muted: “<bdi>Bold</bdi>”" in undone.text
    assert preferences_of(app, alice).muted == ("<b> block chain",)


def test_mute_pages_say_how_many_papers_a_word_leaves_out(
    app: Application, client: TestClient, alice: int, link: Link, now: datetime
) -> None:
    """Words in most papers are not offered. A typed one is muted, and the page says how many mention it."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        paper = factories.add_paper(session, source, "Benchmark of Zebrafish Models", now.date(), now)
    path = action_path(link, alice, "mute", paper)
    page = client.get(path).text
    assert re.findall(r'name="word" value="(\w+)"', page) == ["Benchmark", "Zebrafish"]
    assert page.count("% of all papers") == 1
    assert '<bdi>Benchmark</bdi> <span class="hint">in about 45% of all papers<' in page
    muted = client.post(path, data={"word": "Zebrafish", "other": "model"}).text
    assert "About 95% of all papers mention “<bdi>model</bdi>”." in muted
    assert "mention “<bdi>Zebrafish" not in muted


@pytest.mark.parametrize(
    ("count", "label"), [(31, "Or the other author"), (32, "Or one of the other 2 authors")]
)
def test_long_author_list_is_completed_by_a_field(
    app: Application, client: TestClient, alice: int, link: Link, now: datetime, count: int, label: str
) -> None:
    """The label counts the authors who are not in the list."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        authors = [f"Author {number}" for number in range(count)]
        paper = factories.add_paper(session, source, TITLE, now.date(), now, authors=authors)
    page = client.get(action_path(link, alice, "follow", paper)).text
    assert f'<label for="other">{label} <' in page


@pytest.mark.parametrize(
    ("data", "problem"),
    [({}, "Choose a word, or type one."), ({"other": "the"}, "cannot be muted")],
)
def test_invalid_muted_word_shows_an_error(
    client: TestClient, alice: int, paper: int, link: Link, data: dict[str, str], problem: str
) -> None:
    """The field keeps its text."""
    answer = client.post(action_path(link, alice, "mute", paper), data=data)
    assert answer.status_code == 422
    assert problem in answer.text
    assert f'<input id="other" name="other" value="{data.get("other", "")}"' in answer.text


def test_author_is_followed_by_post_only(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """Of a long author list, the first and last authors are offered."""
    path = action_path(link, alice, "follow", paper)
    response = client.get(path)
    assert response.text.count('type="radio"') == 30
    assert "Grace Hopper" in response.text
    interests = preferences_of(app, alice).interests
    followed = client.post(path, data={"author": AUTHORS[1]})
    assert "&lt;i&gt;Eve&lt;/i&gt; O&#39;Neil" in followed.text
    assert preferences_of(app, alice).interests[-1].text == 'author:"<i>Eve</i> O\'Neil"'
    assert client.get(path).text.count(">following<") == 1
    assert client.post(path, data={"author": "Mallory"}).status_code == 422
    client.post(path, data={"author": AUTHORS[1], "action": "undo"})
    assert preferences_of(app, alice).interests == interests


@pytest.mark.parametrize(
    ("action", "field", "value", "message"),
    [
        ("mute", "word", "Bold", "No longer muted: “<bdi>Bold</bdi>”"),
        ("follow", "author", "Ada Lovelace", "You no longer follow <bdi>Ada Lovelace</bdi>."),
    ],
)
def test_undo_works_after_the_paper_was_hidden(
    app: Application, client: TestClient, alice: int, paper: int, link: Link,
    action: str, field: str, value: str, message: str,
) -> None:  # fmt: skip
    """The page does not name the paper, nor say anything about its authors."""
    path, before = action_path(link, alice, action, paper), preferences_of(app, alice)
    client.post(path, data={field: value})
    with app.db.write() as session:
        session.get_one(Paper, paper).hidden_at = clock.utcnow()
    undone = client.post(path, data={field: value, "action": "undo"})
    assert (undone.status_code, message in undone.text) == (200, True)
    assert "Bold&lt;/b&gt; Plans" not in undone.text
    assert "We don’t know" not in undone.text
    assert preferences_of(app, alice) == before
    assert client.get(path).status_code == 404


def test_last_interest_cannot_be_undone(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """The page says that nothing would be left to send."""
    path = action_path(link, alice, "follow", paper)
    client.post(path, data={"author": "Ada Lovelace"})
    with app.db.write() as session:
        only = preferences_of(app, alice).interests[-1:]
        subscribers.change(session, alice, Preferences(interests=only), clock.utcnow())
    answer = client.post(path, data={"author": "Ada Lovelace", "action": "undo"})
    assert answer.status_code == 422
    assert "Add at least one interest" in answer.text
    assert preferences_of(app, alice).interests == only


def test_all_authors_can_be_typed(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """Those of a long list who have no button are suggested. Capitals and accents don't matter."""
    with app.db.write() as session:
        session.get_one(Paper, paper).authors = [f"Person Numero{n} Émile" for n in range(40)]
    path = action_path(link, alice, "follow", paper)
    page = client.get(path).text
    assert page.count('type="radio"') == 30
    assert page.count("<option") == 10
    refused = client.post(path, data={"other": "Nobody Else"})
    assert refused.status_code == 422
    assert "The paper has no author with this name." in refused.text
    assert 'value="Nobody Else"' in refused.text
    assert client.post(path, data={"other": "person numero35 emile"}).status_code == 200
    assert preferences_of(app, alice).interests[-1].text == 'author:"Person Numero35 Émile"'


def test_missing_paper_or_authors(client: TestClient, alice: int, paper: int, link: Link) -> None:
    """Test a removed paper, one without authors, and an id that is out of range."""
    for number, has_authors in ((paper, True), (paper - 1, False)):
        page = client.get(action_path(link, alice, "like", number)).text
        assert ("follow one of its authors" in page) is has_authors
    assert "the authors of this paper" in client.get(action_path(link, alice, "follow", paper - 1)).text
    for action in ("mute", "follow"):
        assert client.get(action_path(link, alice, action, 999)).status_code == 404
        assert client.get(action_path(link, alice, action, 2**40)).status_code == 422


def test_learned_authors_can_be_followed_and_ignored(
    app: Application, client: TestClient, alice: int, paper: int, link: Link, now: datetime
) -> None:
    """Ignoring can be undone."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, paper, True, now)
    path = link(Purpose.PREFERENCES, alice)
    response = client.post(f"{path}/author", data={"follow": "Ada Lovelace"})
    assert "You now follow one more author" in response.text
    assert 'value="author:&#34;Ada Lovelace&#34;"' in response.text
    assert "Follow<span" not in response.text.partition("Eve")[0].partition('id="learned"')[2]
    assert response.text.count(">following<") == 1
    response = client.post(f"{path}/author", data={"aside": "Ada Lovelace"})
    assert "Stop ignoring<span" in response.text
    response = client.post(f"{path}/author", data={"again": "Ada Lovelace"})
    assert "Stop ignoring<span" not in response.text


def test_preferences_save_muted_words_and_trending(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Muted words are one per line; an error keeps the text."""
    path = link(Purpose.PREFERENCES, alice)
    form = {
        "interest": "agents", "cadence": "daily", "hour": "8", "zone": "UTC", "when_empty": "skip",
        "min_papers": "1", "max_papers": "10",
    }  # fmt: skip
    client.post(path, data={**form, "max_trending": "4", "muted": "block chain\r\n\r\ncat:cs.CR"})
    assert (preferences_of(app, alice).max_trending, preferences_of(app, alice).muted) == (
        4,
        ("block chain", "cat:cs.CR"),
    )
    assert ">\nblock chain\ncat:cs.CR</textarea>" in client.get(path).text
    wrong = client.post(path, data={**form, "max_trending": "many", "muted": "the"})
    assert wrong.status_code == 422
    assert "Choose a number from 0 (none) to 30." in wrong.text
    assert "“the” cannot be muted. Choose a more specific word." in wrong.text
    assert 'value="many"' in wrong.text
    assert preferences_of(app, alice).max_trending == 4
