"""The demo: the whole service on a sample of real papers, without network access.

sample_subscribers  the subscribers, and the feature that each one shows
replay              send the emails that become due between two files
smtp_server         a mail server on a free port
summary             a summary of the outcome and any problems
inbox               web pages that show each email
workspace           lock the demo's folder; delete the files of an earlier demo
"""

import secrets
import socket
import sys
import webbrowser
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

import uvicorn
from rich.console import Console
from rich.progress import track

from app import clock, logs, main, pipeline, subscribers
from app.application import Application
from app.cli import sample
from app.cli.demo import inbox, replay, sample_subscribers, summary, workspace
from app.cli.demo.smtp_server import DemoMailServer
from app.doctor.smtp_sink import HOST
from app.papers import poll_schedule, source_registry
from app.settings import IGNORE_ENVIRONMENT, LogLevel, Settings, SmtpSecurity
from app.storage import api_keys, demo_clock, schema
from app.storage.api_keys import Scope
from app.text.in_words import count_of
from app.types import IngestSummary

FOLDER = Path("var") / "demo"
SIGN_UP_LEAD = timedelta(hours=1)  # subscribers are added this long before the first file is read


def run(
    *,
    once: bool = False,
    live: bool = False,
    port: int = 8000,
    templates_dir: str = "",
    console: Console | None = None,
) -> int:
    """Run the demo on a new database, print a report, and serve the web app unless `once` is set.

    Return the exit code.
    """
    console, url = console or Console(), f"http://{HOST}:{free_port(port)}"
    with (
        workspace.hold(FOLDER, url),
        DemoMailServer(
            unknown=[sample_subscribers.UNKNOWN], greylisted=[sample_subscribers.GREYLISTED]
        ) as mail_server,
    ):
        app = build(FOLDER, mail_server.port, url, templates_dir)
        try:
            end, summaries = run_live(app, clock.utcnow(), console) if live else replay_sample(app, console)
            with app.db.read() as session:
                outcome = summary.gather(session, end, summaries, mail_server.mails)
            summary.print_report(outcome, console)
            print_explain_command(outcome, console)
            demo_clock.travel(app.db, end)
            if not once:
                serve(app, mail_server, end, console)
        finally:
            app.db.dispose()
    return 1 if outcome.problems() else 0


def build(folder: Path, smtp_port: int, base_url: str, templates_dir: str = "") -> Application:
    """Build the real application on its own database. Settings in the environment are ignored."""
    workspace.clear(folder)
    values = {
        "base_url": base_url,
        "templates_dir": str(Path(templates_dir).resolve()) if templates_dir else "",
        "from_address": "paperboy@paperboy.example.org",
        "contact_address": "help@paperboy.example.org",
        "postal_address": "Paperboy, 1 Example Street, Springfield",
        "secret_keys": secrets.token_hex(32),
        "database_url": f"sqlite:///{folder.resolve() / 'paperboy.db'}",
        "search_dir": str(folder.resolve() / "search"),
        "journal_dir": str(folder.resolve() / "journal"),
        "smtp_host": HOST,
        "smtp_port": str(smtp_port),
        "smtp_security": SmtpSecurity.NONE.value,
        "scheduler": "false",
    }
    env_file = folder / ".env"
    write_env_file(env_file, values)
    settings = Settings(_env_file=env_file, log_level=LogLevel.CRITICAL)  # the report shows the errors
    logs.configure(settings)
    schema.migrate(settings.database_url)
    return main.build(settings)


def write_env_file(file: Path, values: Mapping[str, str]) -> None:
    """Write settings to a file that also makes Paperboy ignore the environment."""
    escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in values.items()}
    lines = [f"PAPERBOY_{name.upper()}='{value}'\n" for name, value in escaped.items()]
    comment = "# The settings of the demo, for commands in this folder.\n"
    file.touch(mode=0o600)
    file.write_text("".join([comment, f"{IGNORE_ENVIRONMENT}=true\n", *lines]), encoding="utf-8")


def replay_sample(app: Application, console: Console) -> tuple[datetime, dict[str, IngestSummary]]:
    """Read the sample file by file, and send the emails due in between. Return the end time and summaries."""
    files = sample.sample_files()
    moment = files[0].at - SIGN_UP_LEAD
    sign_up(app, moment)
    summaries: dict[str, IngestSummary] = {}
    for file in track(files, "Replaying ten working days …", console=console, transient=True):
        replay.deliver_between(app, moment, file.at)
        moment = file.at
        result = pipeline.read_files(app, [file.path], moment)
        summaries[file.folder] = summaries.get(file.folder, IngestSummary()) + result.summary
    with app.db.write() as session:  # the files are the responses to polls
        for source in source_registry.all_sources(session):
            if not source_registry.is_read_from_files(source):
                poll_schedule.record_success(source, moment)
    end = moment + replay.AFTERWARDS
    replay.deliver_between(app, moment, end)
    return end, summaries


def run_live(app: Application, now: datetime, console: Console) -> tuple[datetime, dict[str, IngestSummary]]:
    """Poll the real sources now, and send the emails due within a day. Return the end time and a summary."""
    sign_up(app, now)
    with console.status("Polling the sources …"):
        result = pipeline.refresh(app, now)
    end = now + timedelta(days=1)
    replay.deliver_between(app, now, end)
    return end, {count_of(len(result.polled), "source"): result.summary}


def sign_up(app: Application, now: datetime) -> None:
    """Add the subscribers, as an operator would for people who consented elsewhere."""
    with app.db.write() as session:
        for subscriber in sample_subscribers.SUBSCRIBERS:
            subscribers.add(session, subscriber.email, subscriber.preferences, now)


def print_explain_command(outcome: summary.Report, console: Console) -> None:
    """Print an `explain` command that uses the demo's settings, for a paper that was sent."""
    mailbox = next((mailbox for mailbox in outcome.mailboxes if mailbox.latest), None)
    if mailbox:
        explain = f"../../.venv/bin/paperboy explain {mailbox.email} {mailbox.latest}"
        console.print(f"Commands run in {FOLDER} use the demo's database. To see why a paper was sent:")
        console.print(f"(cd {FOLDER} && {explain})", soft_wrap=True, highlight=False)


def serve(app: Application, mail_server: DemoMailServer, moment: datetime, console: Console) -> None:
    """Serve the web app and the inbox. `moment` is the end of the demo."""
    site = main.create_app(app)
    inbox.install(site, mail_server)
    url = app.settings.base_url
    with app.db.write() as session:
        _, key = api_keys.create(session, "demo", [Scope.READ, Scope.WRITE, Scope.SEND], moment)
    console.print(
        f"\nThe service     [link={url}/]{url}/[/link]\nThe mailboxes   [link]{url}{inbox.INBOX}[/link]"
        f"\nThe admin pages [link]{url}/admin[/link], with the key {key}",
        soft_wrap=True,
        highlight=False,
    )
    console.print("Sign up, then open the confirmation email in the mailboxes. Press Ctrl-C to stop.")
    console.print(
        f"The demo's date is {moment.day} {moment:%B %Y}. A button on the mailboxes page adds a day."
    )
    if sys.stdout.isatty():
        webbrowser.open(f"{url}{inbox.INBOX}")
    host, _, port = url.removeprefix("http://").partition(":")
    uvicorn.run(site, host=host, port=int(port), log_level="warning", proxy_headers=False)


def free_port(preferred: int) -> int:
    """Return the preferred port if it is free, otherwise a port that the system chooses."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise OSError("no port is free")
