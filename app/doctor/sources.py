"""Check the sources of papers: polls that failed or stopped, silent sources, and the arXiv categories."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from app.doctor.findings import Finding, Remedy, RemedyAction, error, ok, warning
from app.papers import poll_schedule, silent_sources, source_registry
from app.settings import Settings
from app.storage import schema
from app.storage.database import Database
from app.storage.models import Source
from app.types import SourceKind

CLOCK_TOLERANCE = timedelta(minutes=5)
STALE = timedelta(days=3)  # longer than a weekend, when sources publish nothing


def check(session: Session, now: datetime) -> Iterator[Finding]:
    """Check that sources are polled, and on time."""
    sources = source_registry.all_sources(session)
    if not sources:
        yield warning("sources", "there are none", "run `paperboy sources add`")
    for source in sources:
        name, polled_at = f"source {source.name}", source.polled_at
        poll = Remedy(RemedyAction.POLL_SOURCE, str(source.id))
        if source_registry.is_read_from_files(source):
            continue
        if source.paused:
            fix = f"run `paperboy sources resume {shlex.quote(source.name)}` to poll it again"
            resume = Remedy(RemedyAction.RESUME_SOURCE, str(source.id))
            yield warning(name, "it is paused", fix, remedy=resume)
        elif has_failed(source):
            times = "once" if source.failures == 1 else f"{source.failures} times in a row"
            message = f"it failed {times}: {source.last_error or 'the reason is unknown'}"
            fix = "Paperboy will try again; if it keeps failing, check its address and the network"
            if "PAPERBOY_ALLOW_PRIVATE_SOURCES" in (source.last_error or ""):
                fix = "restart the service after you change the setting: it reads settings only at its start"
            is_failing = source.failures >= poll_schedule.FAILING_AFTER
            yield (error if is_failing else warning)(name, message, fix, remedy=poll)
        elif polled_at and polled_at - now > CLOCK_TOLERANCE:
            message = f"its last poll is dated {polled_at:%Y-%m-%d %H:%M} UTC, which is in the future"
            yield warning(name, message, "check the clocks of this machine and the database", remedy=poll)
        elif source.next_poll_at and polled_at and now - polled_at > STALE:
            message = f"it was last polled at {polled_at:%Y-%m-%d %H:%M} UTC"
            fix = "make sure that `paperboy serve` or `paperboy worker` is running"
            yield warning(name, message, fix, remedy=poll)
        elif message := silent_sources.describe_silence(session, source, now):
            fix = "look at its page; if there are new papers, run `paperboy sources list` and report a bug"
            yield warning(name, message, fix, urgent=True, remedy=poll)
        else:
            yield ok(
                name,
                f"it was polled at {polled_at:%Y-%m-%d %H:%M} UTC"
                if polled_at
                else "it has not been polled yet",
            )


def has_failed(source: Source) -> bool:
    """Return whether a source's last polls failed. Ignore a first failure while its retry is running."""
    return source.failures > source_registry.is_unfinished(source)


def check_categories(db: Database, settings: Settings) -> Iterator[Finding]:
    """Warn if PAPERBOY_ARXIV_CATEGORIES was set when the database existed, because it has no effect then.

    Yield nothing if the database cannot be used. `service_state` reports database errors.
    """
    categories, defaults = settings.arxiv_categories, Settings.model_fields["arxiv_categories"].default
    with suppress(SQLAlchemyError):
        if {*categories} == {*defaults} or schema.revision_fault(db):
            return
        with db.read() as session:
            for source in source_registry.all_sources(session):
                if source.kind is SourceKind.ARXIV_FEED and source.config.get("categories") == [*defaults]:
                    message = (
                        f"it has no effect, because the source “{source.name}” was created with the default "
                        "categories"
                    )
                    options = "".join(f" --category {category}" for category in categories)
                    name = shlex.quote(source.name)
                    fix = f"run `paperboy sources edit {name}{options}`" if options else "remove the source"
                    yield warning("arxiv_categories", message, f"{fix}, or remove the setting")
