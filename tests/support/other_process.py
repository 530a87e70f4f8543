"""Run another process that uses a database, for tests of operations that must refuse to run meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support import fork_server
from tests.support.fork_server import ForkServer

_CODE = """
    from app.storage.database import Database
    db = Database(url)
    db.presence.announce()
    ready.send(True)
    until.recv()
    db.dispose()
"""


@contextmanager
def using(processes: ForkServer, database_url: str) -> Iterator[None]:
    """Run a process that uses the database, such as a sender, until the block ends."""
    (is_ready, ready), (until, end) = (fork_server.context.Pipe(duplex=False) for _ in range(2))
    process = processes.start(_CODE, url=database_url, ready=ready, until=until)
    assert is_ready.recv()
    yield
    end.send(True)
    process.join()
    for connection in (is_ready, ready, until, end):
        connection.close()
