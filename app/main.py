"""The composition root: `build` creates the application, and `create_app` creates the web app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from app import clock
from app.application import Application
from app.jobs import schedule, scheduler
from app.links import LIFETIMES, LinkSigner, Purpose
from app.mail.composer import Composer
from app.mail.render import Renderer
from app.papers.sources.http_client import HttpTransport
from app.runtime import interpreter, tracing
from app.settings import Settings
from app.storage import worker_registry
from app.storage.database import Database
from app.subscribers import Preferences
from app.types import Interest

if TYPE_CHECKING:
    from fastapi import FastAPI


log = structlog.get_logger(__name__)


def build(settings: Settings) -> Application:
    """Build the application. The caller must call `app.db.dispose()` at the end."""
    interpreter.limit_malloc_arenas()
    tracing.configure(settings.otel_endpoint)
    signer = build_signer(settings)
    renderer = Renderer(settings, signer)
    return Application(
        settings=settings,
        db=Database(settings.database_url),
        signer=signer,
        renderer=renderer,
        composer=Composer(settings, signer, renderer),
        http=HttpTransport(
            response_seconds=settings.source_timeout_seconds,
            timeout_fix="if the host is slow, raise PAPERBOY_SOURCE_TIMEOUT_SECONDS and restart the service",
        ),
    )


def build_signer(settings: Settings) -> LinkSigner:
    """Build the signer of links, with the lifetimes that the settings define."""
    configured = {
        Purpose.CONFIRM: timedelta(days=settings.confirm_link_days),
        Purpose.PREFERENCES: timedelta(days=settings.preferences_link_days),
    }
    return LinkSigner(settings.secret_keys, settings.base_url, LIFETIMES | configured)


def create_app(app: Application, *, is_public: bool = False) -> FastAPI:
    """Build the web app.

    If `is_public` is true, a form that requests an email is processed after a random delay, so that response
    times do not reveal to strangers which addresses are known.
    """
    with interpreter.importing():
        from app.web import site  # a global import would double the start-up time of other commands
    return site.create(app, _lifespan, is_public=is_public)


def warm_up(site: FastAPI) -> None:
    """Build the index for the first preview, and update the search index in a separate thread."""
    try:
        site.state.previews.build(Preferences(interests=(Interest("papers -draft"),)), clock.utcnow())
        site.state.archive_search.start_refresh()
    except Exception:  # the first request tries again
        log.warning("warm-up failed; the first preview or search will build its index", exc_info=True)


@contextmanager
def running_jobs(app: Application) -> Iterator[None]:
    """Run the jobs during the block. On PostgreSQL, share them with all other processes."""
    if app.db.url.get_backend_name() == "sqlite":
        engine = scheduler.running
    else:
        from app.jobs.worker import running as engine  # needs an optional dependency
    with worker_registry.registered(app.db), engine(app):
        log.info("jobs started", engine=engine.__module__, jobs=[job.name for job in schedule.JOBS])
        yield
    log.info("jobs stopped")


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """Run the jobs while the web app is running, if the settings enable them."""
    app: Application = site.state.paperboy
    with running_jobs(app) if app.settings.scheduler else nullcontext():
        yield
