"""serve, worker, migrate and doctor: running the service, and seeing whether it is well."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from app import clock, db, doctor, jobs, logs, main
from app.cli import showing
from app.doctor import Finding, Level
from app.errors import InvalidSettings
from app.sources import client
from app.web import connections
from app.web.public import ANSWER_DELAY

_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", min=0, max=65535)] = 8000,
) -> None:
    """Serve the web app and, by PAPERBOY_SCHEDULER, run the schedule. The database is migrated first."""
    _check_free(host, port)
    with showing.opened(log_level=None) as app:
        site = main.create_app(app, ANSWER_DELAY)
        # What takes seconds is made before anybody asks for it. The process does not wait for it at its end.
        threading.Thread(target=main.warm_up, args=(site,), name="warm-up", daemon=True).start()
        config = uvicorn.Config(
            site,
            host=host,
            port=port,
            log_config=None,  # ours conceals readers' links
            forwarded_allow_ips=list(app.settings.trusted_proxies),
            timeout_graceful_shutdown=20,
            **connections.options(app.settings),
        )
        server = Server(config, app.stopping)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after it has ended in peace
            server.run()
        if not server.started:
            raise typer.Exit(3)


class Server(uvicorn.Server):
    """Set `stopping` as soon as a signal arrives, not when the last visitor was served.

    uvicorn waits for requests before the lifespan ends, and a refresh that was asked for by the API is one.
    """

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take SIGINT or SIGTERM."""
        self._stopping.set()
        super().handle_exit(sig, frame)


def _check_free(host: str, port: int) -> None:
    """End in one line where something listens at the port: uvicorn would say so in the middle of the log."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            taken = f"port {port} of {host} is taken, maybe by a demo or another Paperboy"
            showing.fail(f"{taken}: choose another with --port (make serve SERVE_ARGS='--port {port + 1}')")


def worker() -> None:
    """Run the schedule without the web app. Several may run: the ledger decides who sends what."""
    connections.raise_descriptor_limit()
    with showing.opened(log_level=None) as app:
        asked = threading.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: asked.set())
        scheduler = jobs.start(app)
        asked.wait()
        jobs.stop(app, scheduler)


def migrate() -> None:
    """Bring the database to the newest revision. `serve` does so itself."""
    settings = showing.configured(needs_secret=False)
    logs.configure(settings, level="WARNING")
    db.migrate(settings.database_url)
    database = db.Database(settings.database_url)
    current, _ = doctor.schema(database)
    database.dispose()
    showing.out().print(f"The database is at revision {current}.")


def doctor_command(
    online: Annotated[bool, typer.Option("--online", help="Ask PAPERBOY_BASE_URL by network, too.")] = False,
    as_json: showing.AsJson = False,
) -> None:
    """Look for what is wrong, and say how to mend it. Exit code 1 when something is.

    The relay is greeted and the DNS asked. A digest is sent to a mail server of the doctor's own, and left by
    its one click, in a second service that lives for this moment: no reader gets a mail.
    """
    findings = _findings(client.Wire() if online else None)
    if as_json:
        showing.say_json({"findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(1)


def _findings(online: client.Wire | None) -> list[Finding]:
    strange = list(doctor.strange(os.environ, Path(".env")))
    try:
        settings = showing.configured()
    except InvalidSettings as error:
        told = str(error).split("\n")
        return [*(Finding("settings", Level.ERROR, said, "see .env.example") for said in told), *strange]
    logs.configure(settings, level="CRITICAL")  # what would be logged is among the findings
    return [*strange, *doctor.examine(settings, clock.utcnow(), online=online)]


def _show(findings: list[Finding]) -> None:
    console = showing.out()
    for finding in findings:
        colour = _COLOURS[finding.level]
        said = showing.escaped(finding.said)
        console.print(f"[{colour}]{finding.level:7}[/] [bold]{showing.escaped(finding.check)}[/] {said}")
        if finding.fix:
            console.print(f"        → {showing.escaped(finding.fix)}")
