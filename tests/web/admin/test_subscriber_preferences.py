"""Test the form with which an operator changes a subscriber's preferences."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlmodel import select

from app import clock, subscribers
from app.application import Application
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, Subscriber, SubscriberState
from app.subscribers import Preferences
from app.types import Cadence, EmptyDigestPolicy, Interest
from tests.web.admin.conftest import Desk
from tests.web.conftest import fields_of

STORED = Preferences(
    interests=(Interest("diffusion models", 2.0, 3), Interest("robotics")), muted=("benchmark",), zone="UTC"
)


@pytest.fixture
def alice(app: Application) -> int:
    """Add Alice, who has two interests. No digest is overdue: a change would leave its due time as it is."""
    now = clock.utcnow()
    with app.db.write() as session:
        added = subscribers.add(session, "alice@example.org", STORED, now - timedelta(days=3))
        subscribers.get(session, added).next_due_at = now + timedelta(hours=12)
        return added


def stored(app: Application, subscriber_id: int) -> Preferences:
    with app.db.read() as session:
        return subscribers.preferences_of(session, subscribers.get(session, subscriber_id))


def test_untouched_form_changes_nothing(app: Application, sign_in: Callable[..., Desk], alice: int) -> None:
    """The form shows every preference that is stored."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    assert f'href="{at}"' in desk.get(f"/admin/subscribers/{alice}").text
    assert desk.post(at, **fields_of(desk.get(at).text)).status_code == 303
    assert stored(app, alice) == STORED
    with app.db.read() as session:
        assert session.exec(select(AuditEntry)).all() == []


def test_changes_are_recorded_without_values(
    app: Application, sign_in: Callable[..., Desk], alice: int
) -> None:
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    desk.post(at, **fields_of(desk.get(at).text) | {"hour": "17", "max_trending": "4"})
    with app.db.read() as session:
        (entry,) = session.exec(select(AuditEntry)).all()
    assert sorted(entry.detail["changed"]) == ["hour", "max_trending"]
    assert "changed: " in desk.get("/admin/changes").text


def test_error_of_a_merged_form(app: Application, sign_in: Callable[..., Desk], alice: int) -> None:
    """The page shows the values that cause the error, and the form works when they are corrected."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    form = fields_of(desk.get(at).text)
    with app.db.write() as session:
        subscribers.change(session, alice, replace(STORED, max_papers=3), clock.utcnow())
    refused = desk.post(at, **form | {"min_papers": "5"})
    assert "The minimum is greater than the maximum." in refused.text
    form = fields_of(refused.text)
    assert (form["min_papers"], form["max_papers"]) == (["5"], ["3"])
    assert desk.post(at, **form | {"min_papers": "2"}).status_code == 303
    assert stored(app, alice) == replace(STORED, min_papers=2, max_papers=3)


def test_every_preference_can_be_changed(app: Application, sign_in: Callable[..., Desk], alice: int) -> None:
    """The change is recorded under the operator's name, and in the subscriber's events."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}"
    form = fields_of(desk.get(f"{at}/preferences").text) | {
        "interest": ["diffusion models", "", "speech"], "weight": ["2", "1", "0.5"], "quota": ["3", "", "2"],
        "cadence": "weekly", "weekday": "2", "hour": "17", "zone": "Asia/Tokyo",
        "min_papers": "2", "max_papers": "7", "max_trending": "4", "muted": "benchmark\n\ndriving\n",
        "when_empty": "trending", "paper_updates": ["no"],
    }  # fmt: skip
    assert desk.post(f"{at}/preferences", **form).headers["location"] == f"{at}?done=preferences"
    assert stored(app, alice) == Preferences(
        interests=(Interest("diffusion models", 2.0, 3), Interest("speech", 0.5, 2)),
        cadence=Cadence.WEEKLY, weekday=2, hour=17, zone="Asia/Tokyo", min_papers=2, max_papers=7,
        max_trending=4, muted=("benchmark", "driving"), when_empty=EmptyDigestPolicy.TRENDING,
        paper_updates=False,
    )  # fmt: skip
    page = desk.get(f"{at}?done=preferences").text
    assert "The preferences are saved." in page
    assert '<td data-label="Event">preferences changed</td>' in page
    with app.db.read() as session:
        due = subscribers.get(session, alice).next_due_at
        assert due is not None
        assert (due.weekday(), due.hour) == (2, 8)  # 17:00 in Tokyo
        entries = session.exec(select(AuditEntry)).all()
    assert [(entry.actor, entry.action, entry.subject) for entry in entries] == [
        ("desk 0", "subscriber.change", str(alice))
    ]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("interest", ['"unclosed', "robotics"], "interests.0"),
        ("interest", ["", ""], "interests"),
        ("zone", "Europe/Atlantis", "zone"),
        ("hour", "25", "hour"),
        ("max_papers", "many", "max_papers"),
        ("muted", "cat:", "muted"),
    ],
)
def test_invalid_values_stay_in_the_form(
    app: Application,
    sign_in: Callable[..., Desk],
    alice: int,
    name: str,
    value: str | list[str],
    problem: str,
) -> None:
    """Each error is at its field, as on the subscriber's own page. Nothing is stored."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    refused = desk.post(at, **fields_of(desk.get(at).text) | {"max_trending": "9", name: value})
    assert refused.status_code == 422
    assert f'<p class="problem" id="problem-{problem}">' in refused.text
    assert fields_of(refused.text)["max_trending"] == ["9"]
    assert stored(app, alice) == STORED


def test_interest_that_the_subscriber_added_meanwhile(
    app: Application, sign_in: Callable[..., Desk], alice: int
) -> None:
    """It stays, although the form of the operator does not have it."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    form = fields_of(desk.get(at).text)
    with app.db.write() as session:
        subscribers.follow(session, alice, "Ada Lovelace", clock.utcnow())
    desk.post(at, **form | {"hour": "9"})
    assert [interest.text for interest in stored(app, alice).interests] == [
        "diffusion models", "robotics", 'author:"Ada Lovelace"',
    ]  # fmt: skip


def test_preferences_that_the_subscriber_changed_meanwhile(
    app: Application, sign_in: Callable[..., Desk], alice: int
) -> None:
    """What the operator did not change stays. If both changed the same, the operator must save again."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}/preferences"
    form = fields_of(desk.get(at).text)
    chosen = Preferences(
        interests=(Interest("robotics"), Interest("speech")), cadence=Cadence.WEEKLY, hour=18, max_papers=3,
        zone="Europe/Berlin",
    )  # fmt: skip
    with app.db.write() as session:
        subscribers.change(session, alice, chosen, clock.utcnow())
    assert desk.post(at, **form | {"min_papers": "2"}).status_code == 303
    assert stored(app, alice) == replace(chosen, min_papers=2)
    refused = desk.post(at, **form | {"min_papers": "1", "hour": "7", "max_papers": "9"})
    assert refused.status_code == 422
    assert "since the page was shown: time of day, maximum papers." in refused.text
    assert stored(app, alice) == replace(chosen, min_papers=2)
    assert desk.post(at, **fields_of(refused.text)).status_code == 303
    assert stored(app, alice) == replace(chosen, min_papers=2, hour=7, max_papers=9)


@pytest.mark.parametrize("state", [SubscriberState.PENDING, SubscriberState.ERASED])
def test_subscriber_without_preferences(
    app: Application, sign_in: Callable[..., Desk], alice: int, state: SubscriberState
) -> None:
    """The choices of a sign-up would replace the change when they are confirmed."""
    desk, at = sign_in(), f"/admin/subscribers/{alice}"
    form = fields_of(desk.get(f"{at}/preferences").text)
    with app.db.write() as session:
        subscriber = session.get_one(Subscriber, alice)
        subscriber.state = state
        session.add(subscriber)
    assert f'href="{at}/preferences"' not in desk.get(at).text
    assert desk.get(f"{at}/preferences").status_code == 409
    assert desk.post(f"{at}/preferences", **form).status_code == 409


def test_operator_who_may_not_write(sign_in: Callable[..., Desk], alice: int) -> None:
    desk, at = sign_in(Scope.READ, Scope.SEND), f"/admin/subscribers/{alice}"
    assert f'href="{at}/preferences"' not in desk.get(at).text
    assert ">Save</button>" not in desk.get(f"{at}/preferences").text
    assert desk.post(f"{at}/preferences").status_code == 403
