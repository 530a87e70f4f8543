"""Run another process that uses a database, for tests of operations that must refuse to run meanwhile."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CODE = """
import sys
from app.storage.database import Database
db = Database(sys.argv[1])
db.presence.announce()
print('ready', flush=True)
sys.stdin.read()
"""


@contextmanager
def using(database_url: str) -> Iterator[None]:
    """Run a process that uses the database, such as a sender, until the block ends."""
    command_line = [sys.executable, "-c", _CODE, database_url]
    with subprocess.Popen(command_line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield
        process.stdin.close()
