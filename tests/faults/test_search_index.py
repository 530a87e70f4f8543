"""Kill the process that writes the search index, at any moment: searches work, and nothing is missing."""

import random
from pathlib import Path
from threading import Event

import pytest

from app.application import Application
from app.papers.archive_lists import PaperFilter
from app.relevance import query_language
from app.relevance.archive_search import ArchiveSearch
from tests.conftest import NOW
from tests.support import factories, fork_server
from tests.support.fork_server import ForkServer

PAPERS, KILLS = 600, 4
WRITER = """
    from pathlib import Path
    from threading import Event
    from app.relevance import search_index_updates, search_index
    from app.relevance.archive_search import ArchiveSearch
    from app.relevance.model_store import ModelStore
    from app.storage.database import Database

    search_index_updates.PAPERS_PER_BATCH = 20
    search_index_updates.WINDOW = search_index_updates.FIRST_PAPERS = 20
    search_index.PAPERS_PER_COMMIT = 20
    put = search_index.IndexWriter.put
    def put_and_tell(writer, papers):
        put(writer, papers)
        told.send("batch")
    search_index.IndexWriter.put = put_and_tell
    ArchiveSearch(Database(url), ModelStore(), Path(folder), Event()).refresh()
    told.send("done")
"""


@pytest.mark.timeout(600)
def test_killed_writer_leaves_a_usable_index(app: Application, processes: ForkServer) -> None:
    """After each kill, what was committed is found, once; and in the end, every paper is."""
    with app.db.write() as session:
        factories.add_unlisted_papers(session, PAPERS, NOW)
    url, chance = app.db.url.render_as_string(hide_password=False), random.Random(0)  # noqa: S311
    query, found = query_language.parse("zebrafish"), 0
    for _ in range(KILLS):
        hears, told = fork_server.context.Pipe(duplex=False)
        writer = processes.start(WRITER, url=url, folder=app.settings.search_dir, told=told)
        for _ in range(chance.randint(1, 3)):
            hears.recv()
        writer.kill()
        writer.join()
        search = ArchiveSearch(app.db, app.models, Path(app.settings.search_dir), Event())
        with app.db.read() as session:
            opened = search._open(session)
        if opened:
            page = search.search(query, PaperFilter(), 0, 20)
            assert page.total >= found
            assert page.searchable
            found = page.total
            assert opened[0].papers <= PAPERS
    assert found
    search = ArchiveSearch(app.db, app.models, Path(app.settings.search_dir), Event())
    search.refresh()
    page = search.search(query, PaperFilter(), 0, 20)
    assert (page.total, page.searchable) == (PAPERS, 0)
    with app.db.read() as session:
        opened = search._open(session)
    assert opened
    assert opened[0].papers == PAPERS
