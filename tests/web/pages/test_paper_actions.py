"""From a card of their mail, readers mute a word or follow an author: one button, and one to take it back."""

from __future__ import annotations

from datetime import datetime

import pytest
from fastapi.testclient import TestClient

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.subscribers import Preferences
from tests.support import factories
from tests.web.conftest import Link

TITLE = "Agents & <b>Bold</b> Plans"
AUTHORS = ["Ada Lovelace", "<i>Eve</i> O'Neil", *(f"Author {n}" for n in range(40)), "Grace Hopper"]


@pytest.fixture
def paper(app: Application) -> int:
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.source(session, now)
        factories.paper(session, source, "By Nobody", now.date(), now)
        return factories.paper(session, source, TITLE, now.date(), now, authors=AUTHORS)


def chosen(app: Application, reader: int) -> Preferences:
    with app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, reader))


def card(link: Link, reader: int, wish: str, paper: int) -> str:
    return f"/feedback/{link(Purpose.FEEDBACK, reader).split('/')[2]}/{wish}/{paper}"


def test_a_word_is_muted_by_its_button_alone(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """What the paper says is offered; what is typed counts more; twice is once, and it may be taken back."""
    path = card(link, alice, "mute", paper)
    asked = client.get(path)
    assert "Agents &amp; &lt;b&gt;Bold" in asked.text
    assert 'value="Bold"' in asked.text
    assert asked.headers["Cache-Control"] == "no-store"
    before = chosen(app, alice)
    assert before.muted == ()
    for _ in range(2):
        said = client.post(path, data={"word": "Bold", "other": ""})
        assert "are left out of your digests" in said.text
    both = client.post(path, data={"word": "bold", "other": "<b> block chain"})
    assert "&lt;b&gt; block chain" in both.text
    assert chosen(app, alice).muted == ("Bold", "<b> block chain")
    assert "You have muted “<bdi>Bold</bdi>”, “<bdi>&lt;b&gt;" in client.get(path).text
    undone = client.post(path, data={"other": "Bold", "action": "undo"})
    assert "No longer muted: “<bdi>Bold</bdi>”" in undone.text
    assert chosen(app, alice).muted == ("<b> block chain",)


@pytest.mark.parametrize(
    ("data", "problem"),
    [({}, "Choose a word, or type one."), ({"other": "the"}, "cannot be muted")],
)
def test_what_cannot_be_muted_says_why(
    client: TestClient, alice: int, paper: int, link: Link, data: dict[str, str], problem: str
) -> None:
    """Beside the field, which keeps what was typed."""
    answer = client.post(card(link, alice, "mute", paper), data=data)
    assert answer.status_code == 422
    assert problem in answer.text
    assert f'<input id="other" name="other" value="{data.get("other", "")}"' in answer.text


def test_an_author_is_followed_by_a_button_alone(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """One of the paper's; of very many the first and the last are offered."""
    path = card(link, alice, "follow", paper)
    asked = client.get(path)
    assert asked.text.count('type="radio"') == 30
    assert "Grace Hopper" in asked.text
    interests = chosen(app, alice).interests
    followed = client.post(path, data={"author": AUTHORS[1]})
    assert "&lt;i&gt;Eve&lt;/i&gt; O&#39;Neil" in followed.text
    assert chosen(app, alice).interests[-1].text == 'author:"<i>Eve</i> O\'Neil"'
    assert client.get(path).text.count(">following<") == 1
    assert client.post(path, data={"author": "Mallory"}).status_code == 422
    client.post(path, data={"author": AUTHORS[1], "action": "undo"})
    assert chosen(app, alice).interests == interests


def test_the_last_interest_is_not_taken_back_in_silence(
    app: Application, client: TestClient, alice: int, paper: int, link: Link
) -> None:
    """Nothing would be left to send: the page says so, and nothing changes."""
    path = card(link, alice, "follow", paper)
    client.post(path, data={"author": "Ada Lovelace"})
    with app.db.write() as session:
        only = chosen(app, alice).interests[-1:]
        subscribers.change(session, alice, Preferences(interests=only), clock.utcnow())
    answer = client.post(path, data={"author": "Ada Lovelace", "action": "undo"})
    assert answer.status_code == 422
    assert "Name at least one interest" in answer.text
    assert chosen(app, alice).interests == only


def test_what_is_not_there_is_said(client: TestClient, alice: int, paper: int, link: Link) -> None:
    """A paper that is gone, one by nobody, and an id that no database holds."""
    assert "the authors of this paper" in client.get(card(link, alice, "follow", paper - 1)).text
    for wish in ("mute", "follow"):
        assert client.get(card(link, alice, wish, 999)).status_code == 404
        assert client.get(card(link, alice, wish, 2**40)).status_code == 422


def test_authors_are_weighed_beside_the_preferences(
    app: Application, client: TestClient, alice: int, paper: int, link: Link, now: datetime
) -> None:
    """Who wrote what is liked may be followed, left out, and counted again."""
    with app.db.write() as session:
        subscribers.set_feedback(session, alice, paper, True, now)
    path = link(Purpose.PREFERENCES, alice)
    said = client.post(f"{path}/author", data={"follow": "Ada Lovelace"})
    assert "You now follow one more author" in said.text
    assert 'value="author:&#34;Ada Lovelace&#34;"' in said.text
    assert "Follow<span" not in said.text.partition("Eve")[0].partition('id="learned"')[2]
    assert said.text.count(">following<") == 1
    said = client.post(f"{path}/author", data={"aside": "Ada Lovelace"})
    assert "Stop ignoring<span" in said.text
    said = client.post(f"{path}/author", data={"again": "Ada Lovelace"})
    assert "Stop ignoring<span" not in said.text


def test_muted_words_and_what_trends_are_kept_in_the_preferences(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """One word a line; a mistake keeps what was typed."""
    path = link(Purpose.PREFERENCES, alice)
    form = {
        "interest": "agents", "cadence": "daily", "hour": "8", "zone": "UTC", "when_empty": "skip",
        "min_papers": "1", "max_papers": "10",
    }  # fmt: skip
    client.post(path, data={**form, "max_trending": "4", "muted": "block chain\r\n\r\ncat:cs.CR"})
    assert (chosen(app, alice).max_trending, chosen(app, alice).muted) == (4, ("block chain", "cat:cs.CR"))
    assert ">\nblock chain\ncat:cs.CR</textarea>" in client.get(path).text
    wrong = client.post(path, data={**form, "max_trending": "many", "muted": "the"})
    assert wrong.status_code == 422
    assert "Choose a number from 0, for none, to 30." in wrong.text
    assert "“the” cannot be muted. Choose a more specific word." in wrong.text
    assert 'value="many"' in wrong.text
    assert chosen(app, alice).max_trending == 4
