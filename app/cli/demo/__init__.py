"""The demo: everything that Paperboy does, on a sample of real papers, without a network.

sample_subscribers  the subscribers, and what each shows
replay              send what was due at each moment between two files
smtp_server         a mail server of its own, on a free port
report              what happened, and whether it is right
inbox               a page on which each mail can be read
"""

from __future__ import annotations

import secrets
import shutil
import socket
import sys
import webbrowser
from datetime import datetime, timedelta
from pathlib import Path

import uvicorn
from rich.console import Console
from rich.progress import track

from app import clock, logs, main, pipeline, subscribers
from app.application import Application
from app.cli import sample
from app.cli.demo import inbox, replay, report, sample_subscribers
from app.cli.demo.smtp_server import HOST, Postbox
from app.settings import LogLevel, Settings, SmtpSecurity
from app.storage import database
from app.types import IngestSummary

FOLDER = Path("var") / "demo"
SETTLING = timedelta(hours=1)  # the readers are there before the first file is


def run(*, once: bool = False, live: bool = False, port: int = 8000, console: Console | None = None) -> int:
    """Make a fresh service, let it live through its days, tell what happened, and serve it unless `once`."""
    console = console or Console()
    with Postbox(unknown=[sample_subscribers.UNKNOWN], greylisted=[sample_subscribers.GREYLISTED]) as postbox:
        app = build(FOLDER, postbox.port, f"http://{HOST}:{free_port(port)}")
        try:
            end, brought = live_today(app, clock.utcnow(), console) if live else relive(app, console)
            with app.db.read() as session:
                told = report.gather(session, end, brought, postbox.letters)
            report.show(told, console)
            tell_how_to_ask(told, end, console)
            if not once:
                serve(app, postbox, told, end, console)
        finally:
            app.db.dispose()
    return 1 if told.problems() else 0


def build(folder: Path, smtp_port: int, base_url: str) -> Application:
    """The real application on a database of its own. What the environment says of a relay is not asked."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    settings = Settings(
        _env_file=None,
        base_url=base_url,
        from_address="paperboy@paperboy.example.org",
        contact_address="help@paperboy.example.org",
        postal_address="Paperboy, 1 Example Street, Springfield",
        secret_keys=(secrets.token_hex(32),),
        database_url=f"sqlite:///{folder.resolve() / 'paperboy.db'}",
        smtp_host=HOST,
        smtp_port=smtp_port,
        smtp_username="",
        smtp_password="",
        smtp_security=SmtpSecurity.NONE,
        scheduler=False,
        log_level=LogLevel.CRITICAL,  # what went wrong is in the report
    )
    logs.configure(settings)
    database.migrate(settings.database_url)
    return main.build(settings)


def relive(app: Application, console: Console) -> tuple[datetime, dict[str, IngestSummary]]:
    """Read the sample file by file, and deliver in between what was due: the last moment, and what came."""
    files = sample.sample_files()
    moment = files[0].at - SETTLING
    sign_up(app, moment)
    brought: dict[str, IngestSummary] = {}
    for file in track(files, "Reliving ten days …", console=console, transient=True):
        replay.deliver_between(app, moment, file.at)
        moment = file.at
        read = pipeline.read_files(app, [file.path], moment)
        brought[file.folder] = brought.get(file.folder, IngestSummary()) + read.summary
    end = moment + replay.A_WHILE
    replay.deliver_between(app, moment, end)
    return end, brought


def live_today(
    app: Application, now: datetime, console: Console
) -> tuple[datetime, dict[str, IngestSummary]]:
    """Ask the real sources now, and deliver what comes due within a day."""
    sign_up(app, now)
    with console.status("Asking the sources, politely …"):
        refreshed = pipeline.refresh(app, now)
    end = now + timedelta(days=1)
    replay.deliver_between(app, now, end)
    return end, {f"{len(refreshed.polled)} sources": refreshed.summary}


def sign_up(app: Application, now: datetime) -> None:
    """The readers, as an operator adds people whose consent was given elsewhere."""
    with app.db.write() as session:
        for person in sample_subscribers.SUBSCRIBERS:
            subscribers.add(session, person.email, person.wants, now)


def tell_how_to_ask(told: report.Report, moment: datetime, console: Console) -> None:
    """A command that asks the demo's own database, as it stands at the end of the demo's days."""
    asked = next((box for box in told.mailboxes if box.latest), None)
    if asked:
        explain = f".venv/bin/paperboy explain {asked.email} {asked.latest} --at {moment:%Y-%m-%dT%H:%M}"
        console.print("Ask why a reader was sent a paper; preview and backtest can be asked like this, too:")
        database = f"PAPERBOY_DATABASE_URL=sqlite:///{FOLDER / 'paperboy.db'}"
        console.print(f"{database} {explain}", soft_wrap=True, highlight=False)


def serve(
    app: Application, postbox: Postbox, told: report.Report, moment: datetime, console: Console
) -> None:
    """The web app, at the moment where the days ended, with the inbox beside it."""
    clock.travel(moment)
    site = main.create_app(app)
    inbox.install(site, postbox, told.mailboxes)
    url = app.settings.base_url
    console.print(
        f"\nThe service   [link={url}/]{url}/[/link]\nThe mailboxes [link]{url}{inbox.INBOX}[/link]"
    )
    console.print("Sign up there, and your confirmation arrives in the mailboxes. Ctrl-C ends it.")
    console.print(
        f"It is {moment.day} {moment:%B %Y} there. A button in the mailboxes sends what is due within a day."
    )
    if sys.stdout.isatty():
        webbrowser.open(f"{url}{inbox.INBOX}")
    host, _, port = url.removeprefix("http://").partition(":")
    uvicorn.run(site, host=host, port=int(port), log_level="warning", proxy_headers=False)


def free_port(wished: int) -> int:
    """The wished port, or, where something is listening on it already, one that the system chooses."""
    for port in (wished, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")
