"""Test the API for models: list them with their errors, and train on request."""

from collections.abc import Callable

import pytest
from sqlmodel import select

from app import pipeline
from app.application import Application
from app.storage.models import JobRun, TrainedModel
from tests.conftest import MIN_PAPERS, NOW
from tests.support import factories
from tests.web.api.conftest import Call

pytestmark = pytest.mark.usefixtures("trained_early")


def test_training_returns_immediately_and_records_a_run(
    app: Application, call: Call, audit_log: Callable[[], list[tuple[str, str, str]]]
) -> None:
    """With too few papers no model is trained; with enough, one is."""
    assert call("GET", "/models").json() == {"items": []}
    assert call("POST", "/models").status_code == 202
    with app.db.write() as session:
        factories.add_unlisted_papers(session, MIN_PAPERS, NOW)
    assert call("POST", "/models").json() == {"items": []}
    (model,) = call("GET", "/models").json()["items"]
    assert (model["papers"], model["fault"], model["in_use"]) == (MIN_PAPERS, "", True)
    assert model["size"] > 0
    assert audit_log() == [("write key", "model.train", "")] * 2
    with app.db.read() as session:
        counts = session.exec(select(JobRun.counts).where(JobRun.job == "train").order_by(JobRun.id)).all()
    assert counts == [{"papers": 0, "models": 0}, {"papers": MIN_PAPERS, "models": 1}]


def test_failed_training_is_recorded_as_a_run(app: Application, call: Call) -> None:
    """The response was sent before the failure."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, MIN_PAPERS, NOW)
    app.models.train = lambda _db, _now: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert call("POST", "/models").status_code == 202
    (run,) = call("GET", "/runs?failed=true").json()["items"]
    assert (run["job"], run["error"]) == ("train", "ZeroDivisionError: division by zero")


def test_corrupt_model_is_reported(app: Application, call: Call) -> None:
    """The previous model is used instead."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, MIN_PAPERS, NOW)
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
