"""Test the import of subscribers on the admin pages: upload, preview, confirmation and report."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlmodel import Session, col, select

from app import clock, main, maintenance, subscribers
from app.application import Application
from app.delivery import ledger
from app.errors import NotFound
from app.settings import Settings
from app.storage import admin_sessions, api_keys, locks, uploads
from app.storage.api_keys import Scope
from app.storage.models import AuditEntry, JobRun, Subscriber
from app.web import capacity
from app.web.admin.sign_in import COOKIE
from tests.web.admin.conftest import ALL, Desk

PATH = "/admin/subscribers/import"
FILE = b"""email,interests,weights,hour,colour
alice@example.org,<b>agents</b>; robotics,2; 1,7,red
nobody,robotics,,,
bob@example.org,robotics,,seven,
carol@example.org,robotics,,,
alice@example.org,robotics,,,
"""


def upload(desk: Desk, content: bytes = FILE, token: str | None = None) -> httpx2.Response:
    fields = {"form_token": desk.form_token if token is None else token}
    files = {"file": ("readers.csv", content, "text/csv")}
    return desk.browser.post(PATH, data=fields, files=files, follow_redirects=False)


def files(app: Application) -> list[Path]:
    return [*uploads.folder(app.settings.journal_dir).glob("*")]


def emails(app: Application) -> list[str]:
    with app.db.read() as session:
        return list(session.exec(select(Subscriber.email).order_by(col(Subscriber.id))))


def test_file_is_imported_after_a_preview(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The preview says what will be stored and skipped. The run's page says what was."""
    desk = sign_in()
    uploaded = upload(desk)
    assert uploaded.status_code == 303
    preview = desk.get(uploaded.headers["location"]).text
    assert "alice@example.org" in preview
    assert "&lt;b&gt;agents&lt;/b&gt; × 2<br>" in preview
    assert "07:00" in preview
    assert "Unknown columns are ignored: colour." in preview
    assert (
        '<td data-label="Address">bob@example.org</td><td data-label="Reason">hour must be a full' in preview
    )
    assert "<dt>invalid or repeated</dt><dd>3</dd>" in preview
    assert "this row has the same address as row 2" in preview
    assert "Add 2 subscribers" in preview
    assert "hold only their first digests" not in preview, "no digest was ever sent"
    assert emails(app) == []
    (file,) = files(app)
    assert file.stat().st_mode & 0o777 == 0o600
    confirmed = desk.post(uploaded.headers["location"])
    assert (confirmed.status_code, emails(app), files(app)) == (
        303,
        ["alice@example.org", "carol@example.org"],
        [],
    )
    report = desk.get(confirmed.headers["location"]).text
    assert "Subscribers added: 2. All sending is paused" in report
    assert "hour must be a full hour, such as 8 or 08:00, not “seven”" in report
    assert 'http-equiv="refresh"' not in report
    with app.db.read() as session:
        assert ledger.is_paused(session)
        imports = select(AuditEntry).where(AuditEntry.action == "subscriber.import")
        entries = session.exec(imports.order_by(col(AuditEntry.id))).all()
    assert [(entry.actor, entry.subject) for entry in entries] == [
        ("desk 0", "5 rows"),
        ("desk 0", "2 subscribers"),
    ]
    assert desk.post(uploaded.headers["location"]).status_code == 422  # it is imported once
    following = desk.get("/admin/subscribers/next").text
    assert "carol@example.org" in following


def test_preview_says_when_a_pause_ends(sign_in: Callable[..., Desk]) -> None:
    """The day is that of the subscriber's time zone."""
    day = (clock.utcnow() + timedelta(days=10)).date()
    row = f"alice@example.org,robotics,America/Los_Angeles,paused,{day}T12:00Z"
    desk = sign_in()
    uploaded = upload(desk, f"email,interests,zone,state,paused_until\n{row}\n".encode())
    assert f"paused until {day}</td>" in desk.get(uploaded.headers["location"]).text


def test_hold_after_the_first_digest(
    app: Application, sign_in: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first choice is to hold only the first digests of the new subscribers."""
    monkeypatch.setattr(ledger, "any_sent", lambda _: True)
    desk = sign_in()
    name = upload(desk).headers["location"]
    assert '<option value="">hold only their first digests</option>' in desk.get(name).text
    desk.post(name, hold="")
    with app.db.read() as session:
        assert (ledger.is_paused(session), ledger.is_paused(session, ledger.FIRST_DIGESTS)) == (False, True)


def test_hold_can_be_chosen(app: Application, sign_in: Callable[..., Desk]) -> None:
    desk = sign_in()
    desk.post(upload(desk).headers["location"], hold="no")
    with app.db.read() as session:
        assert not ledger.is_paused(session)


def test_running_import_shows_its_progress(app: Application, sign_in: Callable[..., Desk]) -> None:
    with app.db.write() as session:
        session.add(JobRun(job="import", started_at=clock.utcnow(), counts={"rows": 500, "total": 9000}))
    page = sign_in().get("/admin/runs/1").text
    assert "Rows done: 500 of 9000." in page
    assert '<meta http-equiv="refresh" content="3">' in page


def test_interrupted_import_may_be_incomplete(
    app: Application, sign_in: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of an import whose outcome could not be stored does not claim that nothing was imported."""
    errors = iter([OSError("the disk is full")])
    write = app.db.write

    @contextmanager
    def fail_at_the_end() -> Iterator[Session]:
        with write() as session:
            yield session
            if any(isinstance(row, JobRun) and row.ended_at for row in session.dirty):
                for error in errors:
                    raise error

    monkeypatch.setattr(app.db, "write", fail_at_the_end)
    desk = sign_in()
    run = desk.post(upload(desk).headers["location"]).headers["location"]
    assert len(emails(app)) == 2
    assert "the disk is full: the import may be incomplete; import the file again" in desk.get(run).text


def test_import_without_a_free_slot_changes_nothing(
    app: Application, sign_in: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job may take the slot that was free when the import was confirmed."""
    desk = sign_in()
    jobs = desk.browser.app.state.capacity.jobs  # type: ignore[attr-defined]
    monkeypatch.setattr(jobs, "check", lambda: None)
    preview = upload(desk).headers["location"]
    with ExitStack() as others:
        for _ in range(capacity.JOBS):
            others.enter_context(jobs.take())
        run = desk.post(preview).headers["location"]
    assert emails(app) == []
    text = desk.get(run).text
    assert "the file was not imported, because other jobs were running: import it again" in text
    assert "incomplete" not in text


def test_second_import_is_refused(app: Application, sign_in: Callable[..., Desk]) -> None:
    """The run says why nothing was imported."""
    desk = sign_in()
    preview = upload(desk).headers["location"]
    with locks.hold(app.db, "import", clock.utcnow(), timedelta(days=1)):
        run = desk.post(preview).headers["location"]
    assert emails(app) == []
    assert "another import is running: wait until it has ended" in desk.get(run).text


def test_file_belongs_to_one_session(app: Application, sign_in: Callable[..., Desk]) -> None:
    """Nobody else can see it or import it."""
    desk, other = sign_in(), sign_in()
    name = upload(desk).headers["location"]
    assert other.get(name).status_code == other.post(name).status_code == 422
    assert "upload it again" in other.get(name).text
    assert emails(app) == []
    assert len(files(app)) == 1


def test_upload_needs_a_form_of_the_session_and_both_scopes(
    app: Application, sign_in: Callable[..., Desk]
) -> None:
    desk = sign_in()
    assert upload(desk, token="").status_code == upload(desk, token=sign_in().form_token).status_code == 403
    name = upload(desk).headers["location"]
    assert desk.browser.post(name, data={}, follow_redirects=False).status_code == 403
    reader = sign_in(Scope.READ, Scope.WRITE)
    assert upload(reader).status_code == reader.get(PATH).status_code == 403
    assert PATH not in reader.get("/admin/subscribers").text
    assert emails(app) == []


@pytest.mark.parametrize("content", [b"", b"name,age\nalice,7\n", b"email,interests\n\xff,x\n"])
def test_unreadable_file_is_refused(content: bytes, app: Application, sign_in: Callable[..., Desk]) -> None:
    desk = sign_in()
    answer = upload(desk, content)
    page = desk.get(answer.headers["location"])
    assert (page.status_code, 'role="alert"' in page.text) == (422, True)
    assert desk.post(answer.headers["location"]).status_code == 422
    with app.db.read() as session:
        assert session.exec(select(JobRun)).all() == []


def test_form_without_a_file_is_refused(sign_in: Callable[..., Desk]) -> None:
    desk = sign_in()
    for answer in (
        desk.post(PATH),
        desk.browser.post(PATH, data={"form_token": desk.form_token}, files={"file": ("", b"")}),
    ):
        assert (answer.status_code, "Choose a file." in answer.text) == (422, True)


@pytest.mark.once
@pytest.mark.parametrize("size", [2000, 2_000_000])
def test_file_that_is_too_large(app: Application, settings: Settings, size: int) -> None:
    """The form says so, even if the server stops reading before the end of the file."""
    limited = replace(app, settings=settings.model_copy(update={"max_import_bytes": 1000}))
    with app.db.write() as session:
        key = api_keys.create(session, "desk", ALL, clock.utcnow())[1]
    with TestClient(main.create_app(limited), base_url="https://paperboy.test") as browser:
        browser.post("/admin/sign-in", data={"key": key})
        desk = Desk(browser, admin_sessions.form_token(browser.cookies[COOKIE]))
        answer = upload(desk, b"x" * size)
    assert answer.status_code == 422
    assert "The file is too large. Split it into several files." in answer.text


def test_unconfirmed_files_are_deleted(app: Application, sign_in: Callable[..., Desk]) -> None:
    """After an hour they cannot be imported, and the nightly job deletes them, but no other files."""
    desk = sign_in()
    name = upload(desk).headers["location"]
    (file,) = files(app)
    other = file.with_name("of another program.upload")
    other.touch()
    long_ago = (clock.utcnow() - uploads.LIFETIME - timedelta(seconds=1)).timestamp()
    for path in (file, other):
        os.utime(path, (long_ago, long_ago))
    assert desk.get(name).status_code == 422
    maintenance.prune(app, clock.utcnow())
    assert files(app) == [other]
    with pytest.raises(NotFound):
        uploads.find(file.parent, "../../etc/passwd", desk.form_token, clock.utcnow())


def test_export_has_all_subscribers(app: Application, sign_in: Callable[..., Desk]) -> None:
    desk = sign_in()
    desk.post(upload(desk).headers["location"])
    exported = sign_in(Scope.READ).get("/admin/subscribers/export")
    assert exported.headers["content-type"].startswith("text/csv")
    assert exported.headers["cache-control"] == "no-store"
    assert "<b>agents</b>; robotics,daily" in exported.text
    with app.db.read() as session:
        assert subscribers.find(session, "alice@example.org").hour == 7
