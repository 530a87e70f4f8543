"""Test a PostgreSQL database that refuses writes, such as a standby after a failover."""

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app import main
from app.application import Application
from app.doctor import Level, service_state
from app.links import Purpose
from app.settings import Settings
from app.storage.database_errors import is_outage, is_unavailable
from tests.support import factories
from tests.support.postgres_settings import set_for_database

pytestmark = pytest.mark.postgres
READ_ONLY = "default_transaction_read_only"


@pytest.fixture
def standby(new_database_url: Callable[[], str], settings: Settings) -> Iterator[Application]:
    """Return an application whose database refuses writes."""
    url = new_database_url()
    set_for_database(url, READ_ONLY, "on")
    app = main.build(settings.model_copy(update={"database_url": url}))
    yield app
    app.db.dispose()


def test_refused_write_is_an_outage(standby: Application) -> None:
    """The driver counts it as an internal error, so web requests failed with 500 and senders stopped."""
    with pytest.raises(OperationalError) as refused, standby.db.write() as session:
        session.execute(text("DELETE FROM subscriber"))
    assert is_unavailable(refused.value)
    assert is_outage(refused.value)


def test_writes_after_the_outage(standby: Application) -> None:
    """A connection that began during the outage would remain read-only."""
    with pytest.raises(OperationalError):
        standby.db.require_writes()
    set_for_database(standby.settings.database_url, READ_ONLY, "off")
    standby.db.require_writes()


def test_web_app(standby: Application, now: datetime) -> None:
    """Load balancers and mail programs see that a retry may succeed. One-click requests failed with 500."""
    url = standby.settings.database_url
    set_for_database(url, READ_ONLY, "off")
    with standby.db.write() as session:
        alice = factories.add_subscriber(session, "alice@example.org", ["robotics"], now)
    set_for_database(url, READ_ONLY, "on")
    standby.db.engine.dispose()
    token = standby.signer.token(Purpose.UNSUBSCRIBE, alice, now)
    with TestClient(main.create_app(standby)) as client:
        ready, page = client.get("/readyz"), client.post(f"/unsubscribe/{token}")
        assert client.get("/healthz").status_code == 200
    assert (ready.status_code, ready.json()["database"]) == (503, "read-only")
    assert page.status_code == 503
    assert page.headers["Retry-After"]
    assert "<h1>The service can’t use its database</h1>" in page.text


def test_doctor(standby: Application, now: datetime) -> None:
    finding = next(service_state.check(standby.db, standby.models, now))
    assert finding.level is Level.ERROR
    assert "read-only" in finding.message
    assert "standby" in finding.fix
