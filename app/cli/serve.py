"""serve: run the web app, and by default the schedule."""

import errno
import shlex
import signal
import socket
import sys
import threading
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.parse import urlsplit

import structlog
import typer
import uvicorn

from app import main
from app.application import Application
from app.cli import output
from app.settings import Settings
from app.storage import api_keys
from app.web import connection_limits

log = structlog.get_logger(__name__)


def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8000,
) -> None:
    """Migrate the database, serve the web app and, if PAPERBOY_SCHEDULER is on, run the schedule.

    Exit code 3 if the web app could not start.
    """
    _require_free_port(host, port)
    with output.open_application(log_level=None, migrate=True) as app:
        output.log_unknown_settings()
        log_first_steps(app)
        warn_about_port(app.settings, port)
        site = main.create_app(app, is_public=True)
        # Build slow caches before the first request. A daemon thread does not delay the exit of the process.
        threading.Thread(target=main.warm_up, args=(site,), name="warm-up", daemon=True).start()
        config = uvicorn.Config(
            site,
            host=host,
            port=port,
            log_config=None,  # our own logging redacts subscribers' links
            forwarded_allow_ips=list(app.settings.trusted_proxies),
            timeout_graceful_shutdown=20,
            **connection_limits.options(app.settings),
        )
        server = Server(config, app.stopping)
        if signal.SIGHUP in output.stop_signals():  # uvicorn handles the others
            signal.signal(signal.SIGHUP, server.handle_exit)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again after a clean shutdown
            server.run()
        if not server.started:
            raise typer.Exit(3)


def log_first_steps(app: Application) -> None:
    """Log how to sign in to the admin pages, if there is no key yet."""
    with app.db.read() as session:
        if not api_keys.list_keys(session):
            started = Path(sys.argv[0])  # such as .venv/bin/paperboy, which need not be in PATH
            program = shlex.quote(str(started)) if started.name == "paperboy" else "paperboy"
            command = f'{program} key create "Your Name" --scope read --scope write --scope send'
            url = f"{app.settings.base_url}/admin"
            log.info("create a key to sign in to the admin pages", url=url, command=command)


def warn_about_port(settings: Settings, port: int) -> None:
    """Log a warning if links lead to another port of this machine, where probably nothing listens.

    Say nothing if a proxy is configured, because it may listen there, or if the system chooses the port.
    """
    url = urlsplit(settings.base_url)
    linked_port = url.port or (443 if url.scheme == "https" else 80)
    if port and port != linked_port and _is_this_machine(url.hostname or "") and not settings.trusted_proxies:
        log.warning(
            "links lead to a port on which the web app does not listen",
            base_url=settings.base_url,
            port=port,
            fix=f"use --port {linked_port} (make serve SERVE_ARGS='--port {linked_port}'), or change "
            "PAPERBOY_BASE_URL; if a proxy listens there, set PAPERBOY_TRUSTED_PROXIES",
        )


def _is_this_machine(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", socket.gethostname().lower())


class Server(uvicorn.Server):
    """A uvicorn server that sets `stopping` as soon as a signal arrives.

    uvicorn ends the lifespan only after all open requests. Setting `stopping` interrupts a long refresh that
    an operator requested through the API.
    """

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stopping.set()
        super().handle_exit(sig, frame)


def _require_free_port(host: str, port: int) -> None:
    """Exit with a one-line error if the port is in use. uvicorn would report it in the middle of the log."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            problem = f"port {port} of {host} is in use, perhaps by a demo or another Paperboy"
            output.fail(
                f"{problem}: choose another port with --port (make serve SERVE_ARGS='--port {port + 1}')"
            )
