"""Define the shared fixtures. A test that uses `app` gets the real application on its own migrated database.

`pytest --database postgres` runs the tests that use a database on a real PostgreSQL server from a wheel, and
`pytest --database both` runs them on SQLite and on PostgreSQL.
"""

import gc
import shutil
import uuid
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import hypothesis
import pytest
import stamina
import typer.testing

from app import main
from app.application import Application
from app.mail import dkim, render
from app.relevance import model_store
from app.runtime import interpreter
from app.settings import Settings
from app.storage import database, schema
from app.web import templating
from tests.support import running_app
from tests.support.compiled_statements import SharedStatements
from tests.support.compiled_templates import sharing
from tests.support.copied_schema import copying_migration
from tests.support.fork_server import ForkServer
from tests.support.mail_server import MailServer
from tests.support.postgres_server import PostgresServer, run_postgres

# Without a deadline, no test fails because the machine is busy.
hypothesis.settings.register_profile("paperboy", deadline=None)
hypothesis.settings.load_profile("paperboy")

SHARED_DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SECRET = "f4b1c79ad0e34e0b8a6d2a5c9b7e8f10"
# Tests in these files and folders take long or mostly wait. They begin after this share of the run.
SPREAD = {
    0.0: ("browser",),  # first and in a row, because they share a browser
    0.35: (
        "realdata", "test_fleet.py", "test_query_plans.py", "test_random_kills.py", "test_surroundings.py",
    ),
    0.55: ("faults", "test_commands.py", "test_demo.py", "test_migrations.py", "test_worker.py"),
}  # fmt: skip
DATABASES = ("sqlite", "postgres")
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)  # a Friday
COLLECT_AFTER = 10_000  # new objects
MIN_PAPERS = 300  # the size of an archive that trains its own model, in tests that use `trained_early`


def pytest_configure() -> None:
    """Collect garbage less often than after every 700 new objects, as a sender of many emails does."""
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude modules and tests, which stay to the end, from all garbage collections."""
    with interpreter.importing():
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database", choices=(*DATABASES, "both"), default="sqlite")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the databases of a test whose result could depend on the kind of database.

    A test that is marked `postgres` runs on PostgreSQL only. With `--database both`, other tests run on both,
    except those that are marked `once`.
    """
    if "database_kind" not in metafunc.fixturenames:
        return
    if metafunc.definition.get_closest_marker("postgres"):
        metafunc.parametrize("database_kind", ["postgres"], indirect=True, scope="session")
    elif metafunc.config.getoption("--database") == "both":
        kinds = DATABASES[:1] if metafunc.definition.get_closest_marker("once") else DATABASES
        metafunc.parametrize("database_kind", kinds, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--database") == "postgres":
        _deselect(config, items, [item for item in items if not _depends_on_database(item)])
    _spread(items)
    if SHARED_DATA.is_dir():
        return
    missing = pytest.mark.skip(reason="the recorded responses of real services are not on this machine")
    for item in items:
        if "realdata" in item.keywords:
            item.add_marker(missing)


def _spread(items: list[pytest.Item]) -> None:
    """Spread the tests that wait among those that compute.

    If they ran in a row, all workers would wait at the same time. If they ran last, one worker would be busy
    for minutes while the others are idle.
    """
    groups: dict[float, list[pytest.Item]] = {share: [] for share in (*SPREAD, 1.0)}
    for item in items:
        shares = (share for share, names in SPREAD.items() if any(name in item.path.parts for name in names))
        groups[next(shares, 1.0)].append(item)
    places = {item: share * n / len(group) for share, group in groups.items() for n, item in enumerate(group)}
    items.sort(key=places.__getitem__)


def _depends_on_database(item: pytest.Item) -> bool:
    """Return True if the result of the test could depend on the kind of database."""
    return "new_database_url" in getattr(item, "fixturenames", ()) and "once" not in item.keywords


def _deselect(config: pytest.Config, items: list[pytest.Item], deselected: list[pytest.Item]) -> None:
    removed = set(deselected)
    items[:] = [item for item in items if item not in removed]
    config.hook.pytest_deselected(items=deselected)


@pytest.fixture(scope="session", autouse=True)
def shared_templates() -> Iterator[None]:
    """Compile each template once per test process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templating, "environment", sharing(templating.environment))
        patch.setattr(render, "template_environment", sharing(render.template_environment))
        yield


@pytest.fixture(scope="session", autouse=True)
def shared_commands_and_keys() -> Iterator[None]:
    """Read the signatures of the commands, and check each RSA key, once per test process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.testing._get_command))
        patch.setattr(dkim, "parse_key", cache(dkim.parse_key))
        yield


@pytest.fixture(scope="session")
def compiled_statements() -> Iterator[SharedStatements]:
    """Compile each SQL statement once per test process."""
    shared = SharedStatements()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_make_engine", shared.make_engine)
        yield shared


@pytest.fixture
def trained_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train models in archives of MIN_PAPERS papers, because training on more takes seconds."""
    monkeypatch.setattr(model_store, "MIN_PAPERS", MIN_PAPERS)


@pytest.fixture(scope="session")
def postgres(
    tmp_path_factory: pytest.TempPathFactory, compiled_statements: SharedStatements
) -> Iterator[PostgresServer]:
    """Run a PostgreSQL server for this test process."""
    with run_postgres(tmp_path_factory.mktemp("postgres")) as server:
        compiled_statements.begin(server.shared_database)
        yield server


@pytest.fixture(scope="session")
def sqlite_template(
    tmp_path_factory: pytest.TempPathFactory, compiled_statements: SharedStatements
) -> Iterator[Path]:
    """Migrate the database that tests copy, and yield its file. The application copies it, too."""
    template = tmp_path_factory.mktemp("databases") / "template.db"
    schema.migrate(f"sqlite:///{template}")
    compiled_statements.begin(f"sqlite:///{template}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "migrate", copying_migration(template, schema.migrate))
        yield template


@pytest.fixture(scope="session")
def database_kind(request: pytest.FixtureRequest) -> str:
    """Return "sqlite" or "postgres"."""
    kind: str = getattr(request, "param", request.config.getoption("--database"))
    return kind


@pytest.fixture(scope="session")
def new_database_url(request: pytest.FixtureRequest, database_kind: str) -> Callable[[], str]:
    """Return a function that creates a fresh, migrated database and returns its URL."""
    if database_kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create_database
    template: Path = request.getfixturevalue("sqlite_template")
    return lambda: f"sqlite:///{shutil.copy(template, template.with_name(f'{uuid.uuid4().hex}.db'))}"


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, database_kind: str, new_database_url: Callable[[], str]
) -> Iterator[str]:
    """Return the URL of a migrated and empty database.

    On PostgreSQL, tests share one database, which is emptied after each test, because creating one takes
    thirty times as long. On SQLite, the file is deleted after the test, before the system writes it to the
    disk.
    """
    if database_kind == "sqlite":
        url = new_database_url()
        yield url
        file = Path(url.removeprefix("sqlite:///"))
        if file.is_file():  # some tests delete it or put a folder in its place
            file.unlink()
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    yield server.shared_database
    server.empty_shared_database()
    server.drop_databases()


@pytest.fixture(scope="session")
def processes(request: pytest.FixtureRequest, sqlite_template: Path) -> ForkServer:
    """Start the fork server of this test process. It sends with each kind of database that the tests use."""
    urls = [f"sqlite:///{shutil.copy(sqlite_template, sqlite_template.with_name('prepared.db'))}"]
    if request.config.getoption("--database") != "sqlite":
        urls.append(request.getfixturevalue("postgres").create_database())
    return ForkServer(urls)


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    """Run a real SMTP server. If a test uses this fixture, `settings` names the server as the relay."""
    with MailServer() as server:
        yield server


@pytest.fixture(scope="session")
def common_settings() -> Settings:
    """Load and check the settings of all tests once, because this takes as long as a short test."""
    return Settings(
        _env_file=None,
        secret_keys=(SECRET,),
        base_url="https://paperboy.test",
        from_address="digest@paperboy.test",
        contact_address="help@paperboy.test",
        postal_address="1 Example Street, Springfield",
        smtp_security="none",
        scheduler=False,
    )


@pytest.fixture
def settings(
    request: pytest.FixtureRequest, common_settings: Settings, database_url: str, tmp_path: Path
) -> Settings:
    """Return settings whose relay is `mail_server` if the test uses it, and otherwise a closed port."""
    relay = request.getfixturevalue("mail_server").port if "mail_server" in request.fixturenames else 1
    folders = {"journal_dir": str(tmp_path / "journal"), "search_dir": str(tmp_path / "search")}
    return common_settings.model_copy(update={"database_url": database_url, "smtp_port": relay, **folders})


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
def no_retries() -> Iterator[None]:
    """Send each request only once, instead of retrying failed requests."""
    stamina.set_testing(True, attempts=1)
    yield
    stamina.set_testing(False)


@pytest.fixture
def live_server(settings: Settings) -> Iterator[running_app.Live]:
    """Serve the real application on a free local port, with the server's URL as its base URL."""
    bound = running_app.bind_free_port()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    application = main.build(settings.model_copy(update={"base_url": url}))
    with running_app.serve(main.create_app(application), bound):
        yield running_app.Live(url, application)
    application.db.dispose()
