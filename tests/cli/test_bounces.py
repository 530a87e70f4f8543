"""`paperboy bounces` and `paperboy suppressions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlmodel import select
from typer.testing import CliRunner

from app import subscribers
from app.application import Application
from app.cli import cli
from app.delivery import suppression
from app.storage.models import AuditEntry, Subscriber, SubscriberState
from tests.bounces.mails import PERSONAL_MAIL, dsn, vacation
from tests.conftest import NOW, SECRET
from tests.support import factories

US = "bounce+00112233445566778899aabbccddeeff01234567@paperboy.test"
ALICE = "alice@example.org"


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """A folder with three mails, of which one is hostile."""
    diagnostic = "smtp; 550 5.1.1 \x1b[31m[bold]no such user"
    for name, mail in (
        ("gone", dsn(US, diagnostic=diagnostic)),
        ("away", vacation(US)),
        ("letter", PERSONAL_MAIL),
    ):
        (tmp_path / f"{name}.eml").write_bytes(mail)
    return tmp_path


def test_a_line_a_file(mails: Path) -> None:
    """JSON for machines, without any configuration or database."""
    files = [str(mails / f"{name}.eml") for name in ("gone", "away", "letter")]
    ran = CliRunner().invoke(cli, ["bounces", *files, "--json"], env={"PAPERBOY_SECRET_KEYS": "weak"})
    assert ran.exit_code == 0
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(result["file"], result["reason"], result["hard"], result["kind"]) for result in results] == [
        (files[0], "userunknown", True, "bounce"),
        (files[1], "vacation", None, "vacation"),
        (files[2], "undefined", None, "unknown"),
    ]
    assert (results[0]["recipient"], results[0]["status"]) == (ALICE, "5.1.1")


def test_several_recipients_stand_in_one_line(mails: Path) -> None:
    """The first decides, the others follow."""
    two = dsn(US).replace(
        b"\r\n\r\n--=_b--", b"\r\n\r\nFinal-Recipient: rfc822; b@example.org\r\nStatus: 5.2.2\r\n\r\n--=_b--"
    )
    (mails / "two.eml").write_bytes(two)
    (line,) = CliRunner().invoke(cli, ["bounces", str(mails / "two.eml"), "--json"]).stdout.splitlines()
    assert [each["reason"] for each in json.loads(line)["others"]] == ["mailboxfull"]


def test_a_file_that_cannot_be_read_has_its_own_line(mails: Path) -> None:
    """The others are read, and the exit code says that something failed."""
    files = [str(mails / "missing.eml"), str(mails), str(mails / "gone.eml")]
    ran = CliRunner().invoke(cli, ["bounces", *files, "--json"])
    assert ran.exit_code == 1
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [result.get("error") for result in results] == [
        "No such file or directory",
        "Is a directory",
        None,
    ]


def test_people_get_a_table(mails: Path) -> None:
    """Untrusted text is printed without control characters and markup."""
    ran = CliRunner().invoke(cli, ["bounces", str(mails / "gone.eml"), str(mails / "missing.eml")])
    assert ran.exit_code == 1
    assert "\x1b" not in ran.stdout
    assert "[bold]no such user" in ran.stdout
    assert "No such file" in ran.stdout


def test_without_a_file_there_is_nothing_to_read() -> None:
    """The command was used wrongly."""
    assert CliRunner().invoke(cli, ["bounces"]).exit_code == 2


@pytest.fixture
def run(app: Application, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """The command line on the test's own database."""
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", app.settings.database_url)
    monkeypatch.setenv("PAPERBOY_SECRET_KEYS", SECRET)
    return CliRunner()


def test_an_address_is_listed_and_lifted(app: Application, run: CliRunner) -> None:
    """By name where its reader is known; whose mail came back is a reader again; both are in the audit."""
    with app.db.write() as session:
        reader = session.get_one(Subscriber, factories.reader(session, ALICE, ["agents"], NOW))
        reader.state, reader.confirmed_at = SubscriberState.BOUNCING, NOW
        suppression.suppress(session, ALICE, "bounced: 550 \x1b[31mgone", NOW)
        suppression.suppress(session, "bob@example.org", "asked for it", NOW)
    shown = run.invoke(cli, ["suppressions", "list"])
    assert ALICE in shown.stdout
    assert "bob@example.org" not in shown.stdout
    assert "\x1b" not in shown.stdout
    listed = json.loads(run.invoke(cli, ["suppressions", "list", "--json"]).stdout)
    assert [(each["email"], each["reason"]) for each in listed][1] == ("", "asked for it")

    lifted = run.invoke(
        cli, ["suppressions", "lift", "Alice@example.org", "--reason", "she has a new server"]
    )
    assert lifted.exit_code == 0, lifted.output
    assert run.invoke(cli, ["suppressions", "lift", ALICE, "--reason", "again"]).exit_code == 1
    with app.db.read() as session:
        assert subscribers.find(session, ALICE).state is SubscriberState.ACTIVE
        assert [row.action for row in session.exec(select(AuditEntry))] == ["suppression.lift"]


def test_an_address_is_added(app: Application, run: CliRunner) -> None:
    """With the reason; one that is no address is refused."""
    assert run.invoke(cli, ["suppressions", "add", ALICE, "--reason", "asked by telephone"]).exit_code == 0
    with app.db.read() as session:
        assert suppression.reasons_for(session, [ALICE]) == {ALICE: "asked by telephone"}
    assert run.invoke(cli, ["suppressions", "add", "nobody", "--reason", "x"]).exit_code == 1
