"""Test how a subscriber's form is merged with changes made since it was opened."""

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest
from tests.web.conftest import WANTED, Link, fields_of


def stored(app: Application, subscriber_id: int) -> Preferences:
    with app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, subscriber_id))


def test_untouched_form_changes_nothing(app: Application, client: TestClient, alice: int, link: Link) -> None:
    path = link(Purpose.PREFERENCES, alice)
    answer = client.post(path, data=fields_of(client.get(path).text))
    assert '<p class="notice good" role="status">Saved.</p>' in answer.text
    assert stored(app, alice) == WANTED


def test_form_in_an_older_window(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """It changes only what was changed in it. The answer names what was changed elsewhere."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    elsewhere = replace(
        WANTED, hour=6, cadence=Cadence.WEEKDAYS, interests=(Interest("robotics", 0.5, 2),), muted=("games",)
    )
    with app.db.write() as session:
        subscribers.change(session, alice, elsewhere, clock.utcnow())
    answer = client.post(path, data=form | {"max_papers": "9"})
    assert stored(app, alice) == replace(elsewhere, max_papers=9)
    assert (
        "Saved. These were changed elsewhere after you opened the page, and were kept: how often, "
        "time of day, muted, interests."
    ) in answer.text


def test_preference_that_was_changed_in_two_windows(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """The form is refused once. A preview in between does not change when it was opened."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    with app.db.write() as session:
        subscribers.change(session, alice, replace(WANTED, hour=6, max_papers=3), clock.utcnow())
    form |= {"hour": "20", "min_papers": "2"}
    form = fields_of(client.post(path + "/preview", data=form).text)
    refused = client.post(path, data=form)
    assert refused.status_code == 422
    assert "since the page was shown: time of day." in refused.text
    assert stored(app, alice) == replace(WANTED, hour=6, max_papers=3)
    assert client.post(path, data=fields_of(refused.text)).status_code == 200
    assert stored(app, alice) == replace(WANTED, hour=20, max_papers=3, min_papers=2)


def test_changes_since_the_form_was_opened_are_merged(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """Words muted and authors followed by links in emails are kept; lines removed in the form are removed."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    assert form["had"] == ["diffusion models", "robotics"]
    with app.db.write() as session:
        subscribers.mute(session, alice, ["blockchain"], clock.utcnow())
        subscribers.follow(session, alice, "Ada", clock.utcnow())
    client.post(path, data=form | {"interest": ["robots", "robotics"], "muted": "games"})
    preferences = stored(app, alice)
    assert [interest.text for interest in preferences.interests] == ["robots", "robotics", "author:Ada"]
    assert preferences.muted == ("games", "blockchain")


def test_acronym_added_elsewhere_is_not_the_word_in_the_form(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """RAG was added and CLIP muted elsewhere. The form adds and mutes them in lower case."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    elsewhere = replace(WANTED, interests=(*WANTED.interests, Interest("RAG", 2.0)), muted=("CLIP",))
    with app.db.write() as session:
        subscribers.change(session, alice, elsewhere, clock.utcnow())
    client.post(path, data=form | {"interest": [*form["had"], "rag"], "muted": "clip"})
    preferences = stored(app, alice)
    assert [interest.text for interest in preferences.interests] == [*form["had"], "rag", "RAG"]
    assert preferences.muted == ("clip", "CLIP")


@pytest.mark.parametrize(
    "typed",
    [
        {"interest": ["diffusion models", "graphs"]},
        {"interest": ["diffusion models", "graph  networks "]},
        {"interest": ["Robotics", "diffusion models"]},
        {"quota": ["03"]},
        {"max_papers": "09"},
        {"muted": "Foo  bar"},
        {"zone": "Asia/Calcutta"},
    ],
)
def test_form_that_is_submitted_twice(
    app: Application, client: TestClient, alice: int, link: Link, typed: dict[str, str | list[str]]
) -> None:
    """The second answer, the only one that a double click shows, is the same as the first."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text) | typed
    client.post(path, data=form)
    first = stored(app, alice)
    assert first != WANTED
    assert '<p class="notice good" role="status">Saved.</p>' in client.post(path, data=form).text
    assert stored(app, alice) == first


def test_error_of_a_merged_form(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """The page shows the values that cause the error, so that it can be corrected."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    with app.db.write() as session:
        subscribers.change(session, alice, replace(WANTED, max_papers=3), clock.utcnow())
    refused = client.post(path, data=form | {"min_papers": "5"})
    assert "The minimum is greater than the maximum." in refused.text
    form = fields_of(refused.text)
    assert (form["min_papers"], form["max_papers"]) == (["5"], ["3"])
    assert client.post(path, data=form | {"max_papers": "6"}).status_code == 200
    assert stored(app, alice) == replace(WANTED, min_papers=5, max_papers=6)


def test_interests_were_removed_elsewhere(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    path = link(Purpose.PREFERENCES, alice)
    only_trending = replace(WANTED, when_empty=EmptyDigestPolicy.TRENDING)
    with app.db.write() as session:
        subscribers.change(session, alice, only_trending, clock.utcnow())
    form = fields_of(client.get(path).text)
    with app.db.write() as session:
        subscribers.change(session, alice, replace(only_trending, interests=()), clock.utcnow())
    refused = client.post(path, data=form | {"when_empty": "skip"})
    assert "Add at least one interest" in refused.text
    assert not any(fields_of(refused.text)["interest"])


def test_additions_are_shown_if_a_form_is_refused(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """They may cause the error, and errors of interests name the row in which they are shown."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    with app.db.write() as session:
        subscribers.follow(session, alice, "Ada", clock.utcnow())
    refused = client.post(path, data=form | {"interest": [f"subject {number}" for number in range(20)]})
    assert "You can have at most 20 interests." in refused.text
    shown = fields_of(refused.text)
    assert shown["interest"][-1] == "author:Ada"
    assert client.post(path, data=shown | {"interest": shown["interest"][1:]}).status_code == 200
    assert [interest.text for interest in stored(app, alice).interests][-2:] == ["subject 19", "author:Ada"]


def test_conflict_is_shown_with_the_current_values(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """A further change elsewhere is another conflict."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text) | {"hour": "20"}
    for hour in (6, 7):
        with app.db.write() as session:
            changed = replace(WANTED, hour=hour, max_papers=hour)
            subscribers.change(session, alice, changed, clock.utcnow())
        refused = client.post(path, data=form)
        assert "since the page was shown: time of day." in refused.text
        form = fields_of(refused.text)
        assert (form["hour"], form["max_papers"]) == (["20"], [str(hour)])
    client.post(path, data=form)
    assert stored(app, alice) == replace(WANTED, hour=20, max_papers=7)


def test_values_that_the_form_shows_differently(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    """They are kept as they are, unless they are changed in the form."""
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text)
    precise = replace(WANTED, interests=(Interest("author:Ada"), Interest("robotics", 1.23456789)))
    with app.db.write() as session:
        subscribers.change(session, alice, precise, clock.utcnow())
        subscribers.get(session, alice).zone = "Asia/Calcutta"
    client.post(path, data=form | {"hour": "20"})
    assert stored(app, alice) == replace(precise, hour=20, zone="Asia/Calcutta")


def test_pages_from_before_the_upgrade(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """They contain no versions, so each value that differs counts as edited."""
    path = link(Purpose.PREFERENCES, alice)
    form = {name: value for name, value in fields_of(client.get(path).text).items() if name != "seen"}
    with app.db.write() as session:
        subscribers.change(session, alice, replace(WANTED, hour=6), clock.utcnow())
        subscribers.follow(session, alice, "Ada", clock.utcnow())
    client.post(path, data=form | {"max_papers": "9"})
    preferences = stored(app, alice)
    assert (preferences.hour, preferences.max_papers) == (WANTED.hour, 9)
    assert Interest("author:Ada") in preferences.interests


@pytest.mark.parametrize("seen", ["x", ":", "rows", "hour:<script>", "rows: hour:zz", "a:b " * 1000])
def test_forged_versions(app: Application, client: TestClient, alice: int, link: Link, seen: str) -> None:
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text) | {"seen": seen, "max_papers": "0"}
    refused = client.post(path, data=form)
    assert refused.status_code == 422
    assert "hour:<script>" not in refused.text
    assert stored(app, alice) == WANTED


def test_preferences_are_locked_while_they_are_saved(
    app: Application, client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in an email that mutes a word has to wait, so that its change is not overwritten."""
    change = subscribers.change
    fail_if_locked = {"sqlite": "PRAGMA busy_timeout = 0", "postgresql": "SET lock_timeout = '1ms'"}
    refused: list[str] = []

    def mute() -> None:
        with app.db.engine.connect() as connection:
            connection.detach()  # the pool must not get it back with this setting
            connection.exec_driver_sql(fail_if_locked[connection.dialect.name])
            with Session(connection) as session:
                subscribers.mute(session, alice, ["blockchain"], clock.utcnow())
                session.commit()

    def change_while_muting(*arguments: Any) -> None:
        monkeypatch.setattr(subscribers, "change", change)  # `mute` calls it, too
        with pytest.raises(OperationalError) as error:
            mute()
        refused.append(str(error.value))
        change(*arguments)

    monkeypatch.setattr(subscribers, "change", change_while_muting)
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text) | {"hour": "17"}
    assert "Saved." in client.post(path, data=form).text
    assert "lock" in refused[0]
