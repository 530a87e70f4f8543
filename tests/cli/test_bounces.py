"""Test `paperboy bounces` and `paperboy suppressions`."""

import json
from pathlib import Path

import pytest
from sqlmodel import select
from typer.testing import CliRunner

from app import subscribers
from app.application import Application
from app.cli.commands import cli
from app.delivery import suppression
from app.storage.models import AuditEntry, Subscriber, SubscriberState
from tests.bounces.mails import PERSONAL_MAIL, dsn, vacation
from tests.conftest import NOW, SECRET
from tests.support import factories

US = "bounce+00112233445566778899aabbccddeeff01234567@paperboy.test"
ALICE = "alice@example.org"


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """Write a folder with three emails, one of them hostile."""
    diagnostic = "smtp; 550 5.1.1 \x1b[31m[bold]no such user"
    for name, mail in (
        ("gone", dsn(US, diagnostic=diagnostic)),
        ("away", vacation(US)),
        ("letter", PERSONAL_MAIL),
    ):
        (tmp_path / f"{name}.eml").write_bytes(mail)
    return tmp_path


def test_bounces_json_has_one_line_per_file(mails: Path) -> None:
    """It needs no configuration and no database."""
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
    assert [result["action"] for result in results] == ["suppress", "ignore", "ignore"]
    assert [result["reported"] for result in results] == ["failed", "", ""]


def test_several_recipients_in_one_line(mails: Path) -> None:
    """The first one decides; the others follow."""
    two = dsn(US).replace(
        b"\r\n\r\n--=_b--", b"\r\n\r\nFinal-Recipient: rfc822; b@example.org\r\nStatus: 5.2.2\r\n\r\n--=_b--"
    )
    (mails / "two.eml").write_bytes(two)
    (line,) = CliRunner().invoke(cli, ["bounces", str(mails / "two.eml"), "--json"]).stdout.splitlines()
    assert [each["reason"] for each in json.loads(line)["others"]] == ["mailboxfull"]


def test_unreadable_file_is_reported(mails: Path) -> None:
    """The other files are read, and the exit code reports a failure."""
    files = [str(mails / "missing.eml"), str(mails), str(mails / "gone.eml")]
    ran = CliRunner().invoke(cli, ["bounces", *files, "--json"])
    assert ran.exit_code == 1
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [result.get("error") for result in results] == [
        "No such file or directory",
        "Is a directory",
        None,
    ]


def test_bounces_table(mails: Path) -> None:
    """Untrusted text is printed without control characters and markup."""
    ran = CliRunner().invoke(cli, ["bounces", str(mails / "gone.eml"), str(mails / "missing.eml")])
    assert ran.exit_code == 1
    assert "\x1b" not in ran.stdout
    assert "[bold]no such user" in ran.stdout
    assert "No such file" in ran.stdout


def test_missing_argument_is_wrong_usage() -> None:
    assert CliRunner().invoke(cli, ["bounces"]).exit_code == 2


@pytest.fixture
def run(app: Application, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Return a runner of commands on the test's database."""
    monkeypatch.setenv("PAPERBOY_DATABASE_URL", app.settings.database_url)
    monkeypatch.setenv("PAPERBOY_SECRET_KEYS", SECRET)
    return CliRunner()


def test_list_and_lift_suppressions(app: Application, run: CliRunner) -> None:
    """Known addresses are shown. Lifting one reactivates its reader and is in the audit log."""
    with app.db.write() as session:
        reader = session.get_one(Subscriber, factories.add_subscriber(session, ALICE, ["agents"], NOW))
        reader.state, reader.confirmed_at = SubscriberState.BOUNCING, NOW
        suppression.suppress(session, ALICE, "bounced: 550 \x1b[31mgone", NOW)
        suppression.suppress(session, "bob@example.org", "asked for it", NOW)
    result = run.invoke(cli, ["suppressions", "list"])
    assert ALICE in result.stdout
    assert "bob@example.org" not in result.stdout
    assert "\x1b" not in result.stdout
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


def test_add_suppression(app: Application, run: CliRunner) -> None:
    """A reason is required, and invalid addresses are refused."""
    assert run.invoke(cli, ["suppressions", "add", ALICE, "--reason", "asked by telephone"]).exit_code == 0
    with app.db.read() as session:
        assert suppression.reasons_for(session, [ALICE]) == {ALICE: "asked by telephone"}
    assert run.invoke(cli, ["suppressions", "add", "nobody", "--reason", "x"]).exit_code == 1
