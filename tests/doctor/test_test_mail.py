"""Test the digest that the doctor sends to itself from a temporary service."""

import shutil
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from app.application import Application
from app.cli.doctor import temporary_service
from app.doctor import templates, test_mail
from app.doctor.findings import Finding, Level
from app.doctor.smtp_sink import CapturedMail, Sink
from app.mail import template_folders
from app.settings import Settings, SmtpSecurity
from app.storage.database import ROOT

pytestmark = pytest.mark.once


def run_check(settings: Settings, sink: Sink | None = None) -> dict[str, Finding]:
    """Return the findings by check."""
    return {finding.check: finding for finding in test_mail.check(settings, temporary_service(), sink)}


def test_unsubscribe_address_is_tried_where_mails_are_read(settings: Settings) -> None:
    """The temporary service reads a folder of its own, not the mailbox of the settings."""
    findings = run_check(settings.model_copy(update={"bounce_mailbox": "imap://me:pw@192.0.2.1"}), Sink())
    assert findings["unsubscribe mail"].level is Level.OK
    assert "unsubscribe mail" not in run_check(settings, Sink())


def test_folder_for_notices_has_no_other_files(settings: Settings) -> None:
    """The database beside them would be taken for a notice once it is unchanged for some seconds."""
    service, files = temporary_service(), []

    def build(changed: Settings) -> Application:
        files.extend(Path(changed.bounce_folder).iterdir())
        return service.build(changed)

    with_folder = settings.model_copy(update={"bounce_folder": "/var/mail/bounces"})
    findings = list(test_mail.check(with_folder, replace(service, build=build), Sink()))
    assert (findings[-1].check, findings[-1].level, files) == ("unsubscribe mail", Level.OK, [])


def test_test_digest_is_sent_and_unsubscribed(settings: Settings) -> None:
    """It goes only to the sink, whatever relay and database the settings name."""
    sink = Sink()
    elsewhere = settings.model_copy(
        update={
            "database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none",
            "smtp_host": "192.0.2.1",
            "smtp_security": SmtpSecurity.TLS,
            "smtp_username": "me",
            "smtp_password": "secret",
        }
    )
    findings = run_check(elsewhere, sink)
    assert {finding.level for finding in findings.values()} == {Level.OK}
    (mail,) = sink.received
    assert mail.recipient == test_mail.RECIPIENT
    assert mail.raw.count(b"arxiv.org/abs/") > 10


@pytest.mark.parametrize(
    "base_url", ["https://example.org/paperboy", "https://papers.example.org/papers", "https://example.org/e"]
)
def test_base_url_with_a_path(settings: Settings, base_url: str) -> None:
    """The proxy removes the path, but not the same letters in the host name."""
    findings = run_check(settings.model_copy(update={"base_url": base_url}))
    assert findings["one-click"].level is Level.OK


def test_temporary_files_are_removed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file or journal stays."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    run_check(settings)
    assert list(folder.iterdir()) == []
    assert not Path(settings.journal_dir).exists()


def test_mail_that_cannot_be_composed(settings: Settings, tmp_path: Path) -> None:
    """The finding has the error of the settings or the ledger."""
    unusable = run_check(settings.model_copy(update={"dkim_keys": (f"s1:{tmp_path / 'none'}",)}))
    assert [*unusable] == ["mail"]
    assert (unusable["mail"].level, "s1" in unusable["mail"].message) == (Level.ERROR, True)
    new_settings = run_check(settings.model_copy(update={"from_address": "a\x7fb@paperboy.test"}))
    assert [*new_settings] == ["mail"]
    assert "the address is malformed" in new_settings["mail"].message


def test_mail_that_does_not_arrive(settings: Settings) -> None:
    class LosingSink(Sink):
        def receive(self, mail: CapturedMail) -> None:
            pass

    findings = run_check(settings, LosingSink())
    assert [*findings] == ["templates", "mail"]
    assert findings["mail"].level is Level.ERROR


def test_sink_stores_the_exact_bytes() -> None:
    """Test bare line ends, long lines and stuffed dots."""
    body = b"Subject: x\r\n\r\n..dot\r\nbare\nand\rmore \xff\r\n" + b"y" * 3000 + b"\r\n"
    with Sink() as sink, socket.create_connection(("127.0.0.1", sink.port), 10) as client:
        client.sendall(
            b"EHLO me\r\nMAIL FROM:<a@b.c> SIZE=9\r\nRCPT TO:<d@e.f>\r\nDATA\r\n" + body + b".\r\nQUIT\r\n"
        )
        answers = client.makefile("rb").read()
    assert sink.received == [CapturedMail("a@b.c", "d@e.f", body.replace(b"..dot", b".dot"))]
    assert answers.endswith(b"250 2.0.0 kept\r\n221 2.0.0 bye\r\n")


@pytest.mark.parametrize(
    ("name", "wrong", "problem"),
    [
        ("email/confirm/body.txt", "{{ site.nmae }}", "line 1: 'dict object' has no attribute 'nmae'"),
        ("email/report/body.txt", "{% if %}", "line 1: Expected an expression"),
        ("email/erase/body.mjml", "<mjml><mj-body>{{ foo }}</mj-body></mjml>", "'foo' is undefined"),
        ("email/digest/card.html", "{{ foo }}", "line 1: 'foo' is undefined"),
        ("web/home.html", "{% if foo %}{% endif %}", "line 1: 'foo' is undefined"),
        ("web/week.html", "{% endif %}", "line 1: Encountered unknown tag 'endif'"),
    ],
)
def test_broken_template(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, wrong: str, problem: str
) -> None:
    """The finding names the template and the line. Lines of compiled MJML are not those of the file."""
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    (tmp_path / "templates" / name).write_text(wrong)
    monkeypatch.setattr(template_folders, "SHIPPED", tmp_path / "templates")
    (finding,) = (each for each in run_check(settings).values() if each.level is Level.ERROR)
    assert finding.check == ("mail" if "/digest/" in name else "templates")
    assert f"templates/{name}" in finding.message
    assert problem in finding.message
    assert finding.fix == templates.FIX


def test_own_templates_that_are_only_compiled(settings: Settings, tmp_path: Path) -> None:
    """Included files are compiled or rendered with the page that includes them."""
    files = {
        "web/home.html": '{% include "rendered.html" %}',
        "web/rendered.html": "<p>Hello</p>",
        "web/week.html": '{% include "compiled.html" %}{{ foo }}',
        "web/compiled.html": "<p>Hello</p>",
        "email/confirm/subject.txt": "Confirm",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    finding = run_check(settings.model_copy(update={"templates_dir": str(tmp_path)}))["templates"]
    assert finding.level is Level.OK
    assert finding.fix.endswith("only compiled: web/compiled.html, web/week.html")
    assert run_check(settings)["templates"].fix == ""
