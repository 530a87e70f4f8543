"""Fork processes from a server that has imported the application and sent an email.

They start within some milliseconds, and compile neither templates nor SQL.
"""

import multiprocessing
import os
import textwrap
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from typing import Any

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["__main__", "uvloop", "psycopg", "tests.faults.prepared_processes"])
DATABASES = "PAPERBOY_TEST_PREPARED_DATABASES"  # the environment variable with their URLs
PATIENCE = 100.0  # seconds


class ForkServer:
    """The server. It sends an email with each of the databases, which must be migrated and empty."""

    def __init__(self, database_urls: Sequence[str]) -> None:
        os.environ[DATABASES] = " ".join(database_urls)
        assert self.run("") == 0  # when the server has prepared everything
        del os.environ[DATABASES]

    def start(self, code: str, **variables: Any) -> BaseProcess:
        """Execute Python code in a new process, with these variables."""
        process = context.Process(target=_execute, args=(textwrap.dedent(code), variables), daemon=True)
        process.start()
        return process

    def run(self, code: str, **variables: Any) -> int | None:
        """Do the same, wait for the end of the process, and return its exit code."""
        process = self.start(code, **variables)
        process.join(PATIENCE)
        return process.exitcode


def _execute(code: str, variables: dict[str, Any]) -> None:
    exec(code, variables)  # noqa: S102 - our own code
