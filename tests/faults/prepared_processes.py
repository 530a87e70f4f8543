"""Prepare what each sender would otherwise do again: the fork server imports this once, before it forks."""

import gc
import os
import tempfile
import threading

from app import main, pipeline
from app.mail import render
from app.settings import Settings
from app.storage import database
from tests.faults import checks, relay_process, sender_process  # noqa: F401  (with all that they import)
from tests.support import compiled_templates, fork_server
from tests.support.compiled_statements import SharedStatements
from tests.support.mail_server import MailServer


def send_one(database_url: str) -> None:
    """Send an email, which compiles the templates and the SQL."""
    with tempfile.TemporaryDirectory() as journals, MailServer() as relay:
        settings = Settings(_env_file=None, secret_keys=("prepared" * 4,)).model_copy(
            update={
                "database_url": database_url, "journal_dir": journals, "smtp_security": "none",
                "smtp_port": relay.port,
            }
        )  # fmt: skip
        app = main.build(settings)
        checks.queue(app, checks.NOON, 1)
        assert pipeline.send_now(app, checks.NOON) == {"sent": 1}
        app.db.dispose()


render.template_environment = compiled_templates.sharing(render.template_environment)  # type: ignore[assignment]
statements = SharedStatements()
database._make_engine = statements.make_engine  # type: ignore[assignment]
for url in os.environ.get(fork_server.DATABASES, "").split():
    statements.begin(url)
    send_one(url)
assert threading.active_count() == 1, "a fork would copy only one of the threads"
gc.collect()
gc.freeze()  # else the first collection of each process copies all that it shares with the fork server
