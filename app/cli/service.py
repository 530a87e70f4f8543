"""serve, worker and migrate: run the service."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from contextlib import suppress
from types import FrameType
from typing import Annotated

import typer
import uvicorn

from app import doctor, logs, main, scheduler
from app.cli import output
from app.storage import database
from app.web import connection_limits
from app.web.pages.home import ANSWER_DELAY


def serve(
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", min=0, max=65535)] = 8000,
) -> None:
    """Serve the web app and, by PAPERBOY_SCHEDULER, run the schedule. The database is migrated first."""
    _check_free(host, port)
    with output.open_application(log_level=None) as app:
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
            **connection_limits.options(app.settings),
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
            output.fail(f"{taken}: choose another with --port (make serve SERVE_ARGS='--port {port + 1}')")


def worker() -> None:
    """Run the schedule without the web app. Several may run: the ledger decides who sends what."""
    connection_limits.raise_descriptor_limit()
    with output.open_application(log_level=None) as app:
        asked = threading.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: asked.set())
        background = scheduler.start(app)
        asked.wait()
        scheduler.stop(app, background)


def migrate() -> None:
    """Bring the database to the newest revision. `serve` does so itself."""
    settings = output.load_settings(needs_secret=False)
    logs.configure(settings, level="WARNING")
    database.migrate(settings.database_url)
    migrated = database.Database(settings.database_url)
    current, _ = doctor.schema(migrated)
    migrated.dispose()
    output.out().print(f"The database is at revision {current}.")
