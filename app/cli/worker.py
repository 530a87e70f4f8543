"""worker: run jobs without the web app."""

import time

from app import main
from app.cli import output
from app.web import connection_limits

STOP_CHECK_SECONDS = 0.2


def worker() -> None:
    """Run jobs without the web app. With PostgreSQL, several workers share the jobs."""
    connection_limits.raise_descriptor_limit()
    with (
        output.open_application(log_level=None, migrate=True) as app,
        output.graceful_shutdown(app),
    ):
        output.log_unknown_settings()
        with main.running_jobs(app):
            # Poll. Python runs signal handlers in the main thread, but does not wake it if another thread
            # receives the signal.
            while not app.stopping.is_set():
                time.sleep(STOP_CHECK_SECONDS)
