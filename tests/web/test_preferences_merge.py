"""Test how a subscriber's form is merged with changes made since it was opened."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from app import clock, subscribers
from app.application import Application
from app.links import Purpose
from app.subscribers import Preferences
from app.types import Cadence, Interest
from app.web import preferences_merge
from app.web.forms import PreferencesForm
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
        "Saved. Kept, because it was changed elsewhere since you opened the page: how often, time of day, "
        "muted, interests."
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


def test_preferences_are_locked_while_they_are_saved(
    app: Application, client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in an email that mutes a word has to wait, so that its change is not overwritten."""
    merge = preferences_merge.with_additions
    fail_if_locked = {"sqlite": "PRAGMA busy_timeout = 0", "postgresql": "SET lock_timeout = '1ms'"}
    refused: list[str] = []

    def mute() -> None:
        with app.db.engine.connect() as connection:
            connection.detach()  # the pool must not get it back with this setting
            connection.exec_driver_sql(fail_if_locked[connection.dialect.name])
            with Session(connection) as session:
                subscribers.mute(session, alice, ["blockchain"], clock.utcnow())
                session.commit()

    def merge_while_muting(
        preferences: Preferences, stored: Preferences, form: PreferencesForm
    ) -> Preferences:
        with pytest.raises(OperationalError) as error:
            mute()
        refused.append(str(error.value))
        return merge(preferences, stored, form)

    monkeypatch.setattr(preferences_merge, "with_additions", merge_while_muting)
    path = link(Purpose.PREFERENCES, alice)
    form = fields_of(client.get(path).text) | {"hour": "17"}
    assert "Saved." in client.post(path, data=form).text
    assert "lock" in refused[0]
