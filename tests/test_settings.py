"""Test the settings: they are documented in `.env.example`, and each invalid one is reported on its own
line.
"""

import re
from datetime import date, datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from fastapi.testclient import TestClient

from app import main, maintenance, pipeline, settings
from app.application import Application
from app.doctor import configuration, local_checks
from app.errors import InvalidSettings, TooManyRequests
from app.settings import Settings
from app.storage.database import ROOT
from app.web.capacity import Capacity
from tests.support import factories
from tests.support.mail_server import MailServer

GOOD = "f4b1c79ad0e34e0b8a6d2a5c9b7e8f10"
EXAMPLE = ROOT / ".env.example"


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove this machine's environment variables and `.env`."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PAPERBOY_{name.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)


def example_values() -> dict[str, str]:
    lines = re.findall(r"^PAPERBOY_([A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE)
    return {name.lower(): value for name, value in lines}


def test_example_lists_all_settings_in_order() -> None:
    """`.env.example` lists the settings in the order of `Settings`."""
    assert list(example_values()) == list(Settings.model_fields)


def test_example_has_the_defaults() -> None:
    """The values in the example are the defaults."""
    assert Settings(_env_file=EXAMPLE) == Settings(_env_file=None)


def test_example_comments_every_setting() -> None:
    block = re.compile(r"(?:^#(?! ──).*\n)+(?:^PAPERBOY_.*\n)+", re.MULTILINE)
    commented = "".join(block.findall(EXAMPLE.read_text()))
    bare = [name for name in example_values() if f"PAPERBOY_{name.upper()}=" not in commented]
    assert bare == []


def test_secret_is_required() -> None:
    """Otherwise anybody could sign links."""
    with pytest.raises(InvalidSettings, match="PAPERBOY_SECRET_KEYS is not set"):
        settings.load()


@pytest.mark.parametrize("weak", ["short", "please-change-me-please-change-me-please", "x" * 40])
def test_placeholder_secrets_are_refused(weak: str) -> None:
    """Short secrets and those from examples are refused."""
    with pytest.raises(InvalidSettings, match="short or placeholder"):
        settings.load(secret_keys=(GOOD, weak))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("otel_endpoint", "collector:4318"),
        ("otel_endpoint", "http://[bad"),
        ("otel_endpoint", "http://collector:4318#traces"),
        ("base_url", "paperboy.test"),
        ("base_url", "https://bücher.example"),
        ("base_url", "https://paperboy.test/a b"),
        ("base_url", "https://"),
        ("base_url", "http:///papers"),
        ("base_url", "https://paperboy.test:99999"),
        ("base_url", "https://paperboy.test:0"),
        ("base_url", "https://[::1"),
        ("base_url", "https://paperboy.test/?x=1"),
        ("base_url", "https://paperboy.test/#top"),
        ("default_zone", "Mars/Olympus"),
        ("default_zone", "America"),
        ("default_zone", "localtime"),
        ("default_hour", "24"),
        ("default_cadence", "monthly"),
        ("default_max_papers", "31"),
        ("from_address", "Paperboy <digest@paperboy.test>"),
        ("from_address", "digest@paperboy..test"),
        ("from_address", "jürgen@paperboy.test"),
        ("from_address", ""),
        ("contact_address", "help desk"),
        ("database_url", "mysql://localhost/paperboy"),
        ("database_url", "rubbish"),
        ("database_url", "sqlite:paperboy.db"),
        ("database_url", "sqlite://paperboy.db"),
        ("database_url", "sqlite://"),
        ("database_url", "sqlite:///"),
        ("database_url", "sqlite:///:memory:"),
        ("search_dir", ""),
        ("journal_dir", " "),
        ("database_url", "postgresql+psycopg://me@db:abc/paperboy"),
        ("trusted_proxies", "10.0.0.0/8,proxy.local"),
        ("trusted_proxies", "10.0.0.1;10.0.0.2"),
        ("arxiv_categories", "cs.AI cs.CL"),
        ("arxiv_categories", "cs.AI,Computer Vision"),
        ("arxiv_categories", ",".join(["cs.AI"] * 51)),
        ("log_level", "verbose"),
        ("smtp_port", "0"),
        ("smtp_security", "yes"),
        ("scheduler", "perhaps"),
        ("retention_days", "1"),
        ("retention_days", "1000000"),
        ("warm_up_start", "9999-12-30"),
        ("summary_url", "model.test/v1"),
        ("summary_key", "sk-abc…"),
        ("user_agent_contact", "mailto:anna.müller@uni.example"),
        ("user_agent_contact", "papers@uni.example\nX-Other: 1"),
        ("pages_per_minute", "0"),
        ("api_requests_per_minute", "many"),
        ("source_timeout_seconds", "241"),
        ("unconfirmed_days", "0"),
        ("admin_session_hours", "0"),
        ("pastes_per_hour", "0"),
    ],
)
def test_error_names_the_environment_variable(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"PAPERBOY_{name.upper()}", value)
    with pytest.raises(InvalidSettings, match=f"^PAPERBOY_{name.upper()}: ") as refused:
        settings.load(secret_keys=(GOOD,))
    assert not re.search("Value error|should", str(refused.value))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("admin_addresses", "a@uni.example b@uni.example", "comma-separated email addresses without names"),
        ("from_address", "nonsense", "an email address without a name, such as papers@example.org"),
        ("from_address", "Ours <a@uni.example>", ".*; the sender's name is PAPERBOY_SITE_NAME"),
        (
            "arxiv_categories",
            "cs.AI;cs.CL",
            "at most 50 comma-separated arXiv categories, such as cs.CL,stat.ML",
        ),
        (
            "trusted_proxies",
            "10.0.0.1 ::1",
            "comma-separated addresses or networks, such as ::1,10.0.0.0/8",
        ),
        (
            "base_url",
            "https://uni.example?a=1",
            ".* if needed, without . or #, such as https://papers.example.org",
        ),
        ("otel_endpoint", "http://:4318", ".* if needed, without #, such as http://collector:4318"),
        ("contact_address", "Ada <a@uni.example>", "an email address without a name, such as papers@.*org"),
    ],
)
def test_error_describes_a_valid_value(
    name: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the error for a From address with a name says where the name belongs."""
    monkeypatch.setenv(f"PAPERBOY_{name.upper()}", value)
    with pytest.raises(InvalidSettings, match=f"^PAPERBOY_{name.upper()}: must be {problem}$"):
        settings.load(secret_keys=(GOOD,))


def test_domains_are_encoded_as_idna() -> None:
    """Relays without SMTPUTF8 accept only ASCII in headers."""
    encoded = settings.load(
        secret_keys=(GOOD,), from_address="digest@bücher.example", contact_address="help@bücher.example"
    )
    assert (encoded.from_address, encoded.contact_address) == (
        "digest@xn--bcher-kva.example",
        "help@xn--bcher-kva.example",
    )
    assert encoded.mail_domain == "xn--bcher-kva.example"


def test_letters_of_domains_are_not_replaced() -> None:
    """As strasse.example, the domain would belong to somebody else."""
    encoded = settings.load(
        secret_keys=(GOOD,), from_address="digest@straße.example", admin_addresses=("admin@straße.example",)
    )
    assert encoded.mail_domain == "xn--strae-oqa.example"
    assert encoded.admin_addresses == ("admin@xn--strae-oqa.example",)
    with pytest.raises(InvalidSettings, match="PAPERBOY_FROM_ADDRESS: has an invalid domain"):
        settings.load(secret_keys=(GOOD,), from_address="digest@☕.example")


def test_summary_endpoint_requires_a_model() -> None:
    with pytest.raises(InvalidSettings, match="PAPERBOY_SUMMARY_MODEL is not"):
        settings.load(secret_keys=(GOOD,), summary_url="https://model.test/v1")
    loaded = settings.load(secret_keys=(GOOD,), summary_url="https://model.test/v1/", summary_model="small-1")
    assert loaded.summary_url == "https://model.test/v1"


def test_comma_separated_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable with commas becomes a tuple."""
    monkeypatch.setenv("PAPERBOY_ARXIV_CATEGORIES", "cs.CL, stat.ML,,")
    monkeypatch.setenv("PAPERBOY_SECRET_KEYS", f"{GOOD},{GOOD[::-1]}")
    loaded = settings.load()
    assert loaded.arxiv_categories == ("cs.CL", "stat.ML")
    assert loaded.secret_keys == (GOOD, GOOD[::-1])


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_file_in_another_encoding(encoding: str, tmp_path: Path) -> None:
    """Older editors for Windows save such files."""
    (tmp_path / ".env").write_text("PAPERBOY_SITE_NAME=Zürich\n", encoding=encoding)
    with pytest.raises(InvalidSettings, match=r"^\.env is not encoded in UTF-8: save it as UTF-8$"):
        settings.load(secret_keys=(GOOD,))


def test_byte_order_mark(tmp_path: Path) -> None:
    """Editors for Windows may write one at the beginning of UTF-8. It is not a part of the first name."""
    (tmp_path / ".env").write_text("PAPERBOY_SITE_NAME=Zürich\n", encoding="utf-8-sig")
    assert settings.load(secret_keys=(GOOD,)).site_name == "Zürich"
    assert not list(configuration.unknown_settings({}, tmp_path / ".env"))


@pytest.mark.parametrize("password", ["hunter2", "p%40ss%2Fword%23"])
def test_mailbox_url_with_encoded_password(password: str) -> None:
    """Any percent-encoded password is accepted."""
    url = f"imaps://bounces%40paperboy.test:{password}@mail.paperboy.test:993/INBOX/Bounces"
    assert settings.load(secret_keys=(GOOD,), bounce_mailbox=url).bounce_mailbox == url


@pytest.mark.parametrize("login", ["", "me@", "me:@", "me:hunter2/x@", "me:p@hunter2/x@", "me:hunter2#x@"])
def test_unencoded_password_is_refused_and_not_shown(login: str) -> None:
    """Parts of it would be parsed as host, port or folder, and displayed."""
    with pytest.raises(InvalidSettings, match="written as %40") as refused:
        settings.load(secret_keys=(GOOD,), bounce_mailbox=f"imaps://{login}mail.paperboy.test/INBOX")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("folder", "contains"),
    [
        (".", "."),
        ("var", "var/paperboy.db"),
        ("var/../var/", "var/paperboy.db"),
        ("link", "var/paperboy.db"),
        ("keys", "keys/dkim.pem"),
        ("maildir", "maildir/new/key.pem"),
        ("var/search", "var/search"),
        ("var/journal", "var/journal"),
        ("mine/templates", "mine/templates"),
    ],
)
def test_bounce_folder_with_other_files_is_refused(folder: str, contains: str, tmp_path: Path) -> None:
    """Paperboy would move the database to `kept`."""
    (tmp_path / "var").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "var")
    keys = ("s1:keys/dkim.pem", "s2:maildir/new/key.pem")
    problem = f"^PAPERBOY_BOUNCE_FOLDER must not be or contain {re.escape(contains)} \\(.*\\), because"
    with pytest.raises(InvalidSettings, match=problem):
        settings.load(
            secret_keys=(GOOD,), dkim_keys=keys, templates_dir="mine/templates", bounce_folder=folder
        )


def test_bounce_folder_with_the_database_of_a_uri_is_refused() -> None:
    url = "sqlite:///file:/srv/b/paperboy.db?uri=true"
    with pytest.raises(InvalidSettings, match=r"PAPERBOY_BOUNCE_FOLDER .* /srv/b/paperboy\.db \("):
        settings.load(secret_keys=(GOOD,), database_url=url, bounce_folder="/srv/b")


@pytest.mark.parametrize("folder", ["..", "/", "mine", "var/bounces", "var/journal/bounces", "/srv/var"])
def test_bounce_folder_with_other_files_in_subfolders(folder: str) -> None:
    """The bounce job does not look into them, or into the folders around the bounce folder."""
    loaded = settings.load(secret_keys=(GOOD,), templates_dir="mine/templates", bounce_folder=folder)
    assert loaded.bounce_folder == folder


def test_database_on_a_server_is_in_no_folder() -> None:
    url = "postgresql+psycopg://me:pw@db/srv"
    loaded = settings.load(secret_keys=(GOOD,), database_url=url, bounce_folder="/")
    assert loaded.bounce_folder == "/"


def test_current_folder_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    assert settings.load(secret_keys=(GOOD,), bounce_folder="/srv/bounces").bounce_folder == "/srv/bounces"


@pytest.mark.parametrize("wrong", ["http://wiki.lab", "wiki lab", "10.0.0.0/99", "-", "wiki.lab:80"])
def test_private_sources_are_hosts_and_networks(wrong: str) -> None:
    """An invalid entry is refused, because it would never match."""
    good = settings.load(secret_keys=(GOOD,), allow_private_sources="wiki.lab, 10.0.0.0/8,fd00::/8,10.1.2.3")
    assert good.allow_private_sources == ("wiki.lab", "10.0.0.0/8", "fd00::/8", "10.1.2.3")
    with pytest.raises(InvalidSettings, match="PAPERBOY_ALLOW_PRIVATE_SOURCES"):
        settings.load(secret_keys=(GOOD,), allow_private_sources=f"10.0.0.0/8,{wrong}")


@pytest.mark.parametrize(
    "wrong",
    ["mail.lab:587", "10.0.0.1:25", "[::1]", "[::1]:25", "smtp://mail.lab", "mail.lab/", "mail lab", ""],
)
def test_relay_is_a_host(wrong: str) -> None:
    """A port or a scheme would be looked up as a part of the name."""
    for good in ("mail.lab", "mail_1", "müller.example", "10.0.0.1", "::1", "fe80::1%eth0"):
        assert settings.load(secret_keys=(GOOD,), smtp_host=good).smtp_host == good
    with pytest.raises(
        InvalidSettings, match=r"PAPERBOY_SMTP_HOST: must be only a host name .* PAPERBOY_SMTP_PORT"
    ):
        settings.load(secret_keys=(GOOD,), smtp_host=wrong)


def test_repr_contains_no_secrets() -> None:
    text = repr(
        Settings(_env_file=None, secret_keys=(GOOD,), smtp_password="hunter2hunter2", summary_key="hunter2")
    )
    assert GOOD not in text
    assert "hunter2" not in text


def limits(end: str) -> dict[str, Any]:
    """Return the lower limits ("ge") or the upper limits ("le") of all numbers and dates, by setting."""
    return {
        name: getattr(limit, end)
        for name, field in Settings.model_fields.items()
        for limit in field.metadata
        if hasattr(limit, end)
    }


def test_all_numbers_have_limits() -> None:
    """Without an upper limit, calculations with the number could overflow."""
    numbers = [
        name
        for name, field in Settings.model_fields.items()
        if {int, float, date} & {field.annotation, *get_args(field.annotation)}
    ]
    assert len(numbers) > 30
    assert [*limits("ge")] == [*limits("le")] == numbers


@pytest.mark.parametrize("end", ["ge", "le"])
def test_limits_work(end: str, mail_server: MailServer, app: Application, now: datetime) -> None:
    """Jobs, the doctor and pages work if all numbers have their lowest, or all have their highest, values."""
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents", now.date(), now)
        factories.add_subscriber(session, "alice@example.org", ["language agents"], now)
    port = app.settings.smtp_port
    extreme = main.build(app.settings.model_copy(update=limits(end) | {"smtp_port": port}))
    assert pipeline.plan_and_send(extreme, now)["planned"] == 1
    maintenance.prune(extreme, now)
    for finding in local_checks.all_findings(extreme, now):
        assert not re.search(r"[a-z](Error|Exception)\b|overflow", str(finding))
    with TestClient(main.create_app(extreme), base_url="https://paperboy.test") as client:
        assert client.get("/").status_code == 200
    extreme.db.dispose()


def test_limits_are_applied(database_url: str) -> None:
    """Each limit of a visitor or a key holds for the number that is set."""
    limits = {f"{name}_per_minute": number for number, name in enumerate(("pages", "searches", "feeds"), 10)}
    loaded = settings.load(secret_keys=(GOOD,), database_url=database_url, source_timeout_seconds=7, **limits)
    app = main.build(loaded)
    assert app.http.response_seconds == 7
    assert "PAPERBOY_SOURCE_TIMEOUT_SECONDS" in app.http.timeout_fix
    capacity = Capacity(loaded)
    for limiter, most in (
        (capacity.visitors.pages, 10),
        (capacity.visitors.searches, 11),
        (capacity.visitors.feeds, 12),
        (capacity.visitors.previews, loaded.previews_per_minute),
    ):
        for _ in range(most):
            limiter.hit("visitor")
        with pytest.raises(TooManyRequests):
            limiter.hit("visitor")
    app.db.dispose()
