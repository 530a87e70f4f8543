"""The models are listed with what is wrong with them, and made when somebody asks."""

from __future__ import annotations

from collections.abc import Callable

from sqlmodel import select

from app import pipeline
from app.application import Application
from app.relevance.model_store import MIN_PAPERS
from app.storage.models import JobRun, TrainedModel
from tests.conftest import NOW
from tests.support import factories
from tests.web.api.conftest import Call


def test_learning_answers_at_once_and_leaves_a_run(
    app: Application, call: Call, audited: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """A young archive teaches nothing; a grown one gives a model."""
    assert call("GET", "/models").json() == {"items": []}
    assert call("POST", "/models").status_code == 202
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, NOW)
    assert call("POST", "/models").json() == {"items": []}
    (model,) = call("GET", "/models").json()["items"]
    assert (model["papers"], model["fault"], model["in_use"]) == (MIN_PAPERS, "", True)
    assert model["size"] > 0
    assert audited() == [("write key", "model.learn", "")] * 2
    with app.db.read() as session:
        counts = session.exec(select(JobRun.counts).where(JobRun.job == "learn").order_by(JobRun.id)).all()
    assert counts == [{"papers": 0, "models": 0}, {"papers": MIN_PAPERS, "models": 1}]


def test_learning_that_fails_is_found_among_the_runs(app: Application, call: Call) -> None:
    """The answer is out already."""
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, NOW)
    app.models.train = lambda _db, _now: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert call("POST", "/models").status_code == 202
    (run,) = call("GET", "/runs?failed=true").json()["items"]
    assert (run["job"], run["error"]) == ("learn", "ZeroDivisionError: division by zero")


def test_a_corrupt_model_is_shown_as_such(app: Application, call: Call) -> None:
    """And the one before it is in use."""
    with app.db.write() as session:
        factories.archive(session, MIN_PAPERS, NOW)
    pipeline.train(app, NOW)
    with app.db.write() as session:
        session.add(
            TrainedModel(
                trained_at=NOW, papers=1, newest_id=1, changed_at=NOW, sha256="", size=4, data=b"torn"
            )
        )
    newest, before = call("GET", "/models").json()["items"]
    assert (newest["fault"], newest["in_use"]) == (
        "The stored bytes do not match their SHA-256 checksum.",
        False,
    )
    assert (before["fault"], before["in_use"]) == ("", True)
