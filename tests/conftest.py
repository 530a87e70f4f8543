"""Define the shared fixtures. A test that uses `app` gets the real application on its own migrated database.

`pytest --database postgres` runs the tests that use a database on a real PostgreSQL server from a wheel.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import hypothesis
import jinja2
import pytest
from jinja2.bccache import Bucket

from app import main
from app.application import Application
from app.relevance import model_store
from app.settings import Settings
from app.storage import schema
from app.web import templating
from tests.support import running_app
from tests.support.mail_server import MailServer
from tests.support.postgres_server import PostgresServer, run_postgres

# No test fails because the machine is busy.
hypothesis.settings.register_profile("paperboy", deadline=None)
hypothesis.settings.load_profile("paperboy")

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SECRET = "f4b1c79ad0e34e0b8a6d2a5c9b7e8f10"
TAKE_LONG = (
    "faults",
    "realdata",
    "test_commands.py",
    "test_demo.py",
    "test_migrations.py",
    "test_query_plans.py",
)
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)  # a Friday
MIN_PAPERS = 300  # in tests that train a model, an archive of this size trains its own


class SharedBytecode(jinja2.BytecodeCache):
    """Keep compiled templates for all web apps of a test process: compiling takes .1 s for each app."""

    def __init__(self) -> None:
        self.compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self.compiled.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.compiled[bucket.key] = bucket.bytecode_to_string()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database", choices=("sqlite", "postgres"), default="sqlite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--database") == "postgres":
        _deselect(config, items, [item for item in items if not _depends_on_database(item)])
    # If these ran last, one worker would be busy for minutes while the others are idle.
    items.sort(key=lambda item: not any(name in item.path.parts for name in TAKE_LONG))
    if SHARED_DATA.is_dir():
        return
    missing = pytest.mark.skip(reason="the recorded answers of real services are not on this machine")
    for item in items:
        if "realdata" in item.keywords:
            item.add_marker(missing)


def _depends_on_database(item: pytest.Item) -> bool:
    """Return True if the result of the test could depend on the kind of database."""
    return "new_database_url" in getattr(item, "fixturenames", ()) and "once" not in item.keywords


def _deselect(config: pytest.Config, items: list[pytest.Item], deselected: list[pytest.Item]) -> None:
    removed = set(deselected)
    items[:] = [item for item in items if item not in removed]
    config.hook.pytest_deselected(items=deselected)


@pytest.fixture(scope="session", autouse=True)
def compiled_templates() -> Iterator[None]:
    """Compile each page template once per test process."""
    cache, make_environment = SharedBytecode(), templating.environment

    def environment(settings: Settings) -> jinja2.Environment:
        templates = make_environment(settings)
        templates.bytecode_cache = cache
        return templates

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templating, "environment", environment)
        yield


@pytest.fixture
def trained_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train models in archives of MIN_PAPERS papers, as training on more takes seconds."""
    monkeypatch.setattr(model_store, "MIN_PAPERS", MIN_PAPERS)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server for this test process."""
    with run_postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def new_database_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], str]:
    """Return a function that creates a fresh, migrated database and returns its URL."""
    if request.config.getoption("--database") == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_database
    folder = tmp_path_factory.mktemp("databases")
    template = folder / "template.db"
    schema.migrate(f"sqlite:///{template}")
    return lambda: f"sqlite:///{shutil.copy(template, folder / f'{uuid.uuid4().hex}.db')}"


@pytest.fixture(scope="session")
def shared_database_url(new_database_url: Callable[[], str]) -> str:
    """Return the URL of the PostgreSQL database that one test after the other uses."""
    return new_database_url()


@pytest.fixture
def database_url(request: pytest.FixtureRequest, new_database_url: Callable[[], str]) -> Iterator[str]:
    """Return the URL of a migrated and empty database.

    On PostgreSQL, tests share one, which is emptied after each test: creating one takes thirty times as long.
    """
    if request.config.getoption("--database") == "sqlite":
        yield new_database_url()
        return
    server, url = (request.getfixturevalue(name) for name in ("postgres", "shared_database_url"))
    yield url
    server.empty_database(url)


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    """Run a real SMTP server. If a test uses this fixture, `settings` names the server as the relay."""
    with MailServer() as server:
        yield server


@pytest.fixture
def settings(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Settings:
    """Return settings whose relay is `mail_server` if the test uses it, and otherwise a closed port."""
    relay = request.getfixturevalue("mail_server").port if "mail_server" in request.fixturenames else 1
    return Settings(
        _env_file=None,
        database_url=database_url,
        secret_keys=(SECRET,),
        base_url="https://paperboy.test",
        from_address="digest@paperboy.test",
        contact_address="help@paperboy.test",
        postal_address="1 Example Street, Springfield",
        smtp_port=relay,
        smtp_security="none",
        journal_dir=str(tmp_path / "journal"),
        search_dir=str(tmp_path / "search"),
        scheduler=False,
    )


@pytest.fixture
def app(settings: Settings) -> Iterator[Application]:
    """Return the real application, as built by `main.build`."""
    application = main.build(settings)
    yield application
    application.db.dispose()


@pytest.fixture
def now() -> datetime:
    """Return a fixed time: Friday 2026-11-20, 09:30 UTC."""
    return NOW


@pytest.fixture
def live_server(settings: Settings) -> Iterator[running_app.Live]:
    """Serve the real application on a free local port. Its links lead there."""
    bound = running_app.bind_free_port()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    application = main.build(settings.model_copy(update={"base_url": url}))
    with running_app.serve(main.create_app(application), bound):
        yield running_app.Live(url, application)
    application.db.dispose()
