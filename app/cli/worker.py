"""worker: run jobs without the web app."""

import signal
import threading

from app import main
from app.cli import output
from app.web import connection_limits


def worker() -> None:
    """Run jobs without the web app. With PostgreSQL, several workers share the jobs."""
    connection_limits.raise_descriptor_limit()
    with output.open_application(log_level=None, migrate=True) as app:
        output.log_unknown_settings()
        stop = threading.Event()
        for number in output.stop_signals():
            signal.signal(number, lambda *_: stop.set())
        with main.running_jobs(app):
            stop.wait()
