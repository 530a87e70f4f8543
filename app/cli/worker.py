"""worker: run the schedule without the web app."""

from __future__ import annotations

import signal
import threading

from app import scheduler
from app.cli import output
from app.web import connection_limits


def worker() -> None:
    """Run the schedule without the web app. Several workers may run; each mail is sent by only one."""
    connection_limits.raise_descriptor_limit()
    with output.open_application(log_level=None) as app:
        stop = threading.Event()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, lambda *_: stop.set())
        background = scheduler.start(app)
        stop.wait()
        scheduler.stop(app, background)
