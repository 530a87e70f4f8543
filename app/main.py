"""The composition root: `build` creates the application, and `create_app` creates the web app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import structlog
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from app import clock, jobs
from app.application import Application
from app.jobs import scheduler
from app.links import LIFETIMES, LinkSigner, Purpose
from app.mail.composer import Composer
from app.mail.render import Renderer
from app.papers.sources.http_client import HttpTransport
from app.relevance.archive_search import ArchiveSearch
from app.runtime import interpreter, tracing
from app.settings import Settings
from app.storage import workers
from app.storage.database import Database
from app.subscribers import Preferences
from app.types import Interest
from app.web import (
    admin,
    api,
    errors,
    http_cache,
    monitoring,
    paper_cards,
    preview,
    proof_of_work,
    rate_limits,
    security,
    telemetry,
    templating,
    webhooks,
)
from app.web.pages import (
    archive,
    feedback,
    feeds,
    home,
    leaving,
    paper_actions,
    robots,
    subscriber,
    subscription,
)

# `paper_actions` must precede `feedback`, whose routes match any action. The routes are added directly:
# FastAPI would rebuild included routes for each app, which takes 0.1 s.
PAGES = (
    home, archive, subscriber, subscription, leaving, paper_actions, feedback, feeds, robots, monitoring,
)  # fmt: skip

# The paths that accept large files. They read the body only after they have checked who sends it.
UPLOADS = ("/api/v1/subscribers/import", "/admin/subscribers/import")

log = structlog.get_logger(__name__)


def build(settings: Settings) -> Application:
    """Build the application. The caller must call `app.db.dispose()` when it is no longer needed."""
    interpreter.limit_malloc_arenas()
    tracing.configure(settings.otel_endpoint)
    lifetimes = {
        Purpose.CONFIRM: timedelta(days=settings.confirm_link_days),
        Purpose.PREFERENCES: timedelta(days=settings.preferences_link_days),
    }
    signer = LinkSigner(settings.secret_keys, settings.base_url, LIFETIMES | lifetimes)
    renderer = Renderer(settings, signer)
    return Application(
        settings=settings,
        db=Database(settings.database_url),
        signer=signer,
        renderer=renderer,
        composer=Composer(settings, signer, renderer),
        http=HttpTransport(answer_seconds=settings.source_timeout_seconds),
    )


def create_app(app: Application, answer_delay: float = 0.0) -> FastAPI:
    """Build the web app: public pages, subscribers' pages, feeds, webhooks and the admin API.

    A form that requests an e-mail is processed about `answer_delay` seconds after the response.
    """
    site = FastAPI(
        title=app.settings.site_name,
        openapi_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,  # the redirect would repeat the Host header
    )
    site.state.paperboy = app
    site.state.clock = clock.utcnow
    site.state.templates = templating.environment(app.settings)
    site.state.capacity = limits = rate_limits.Capacity(app.settings)
    site.state.admission = proof_of_work.Admission(
        app.db, app.settings.signups_per_hour, app.settings.secret_keys
    )
    site.state.answer_delay = answer_delay
    site.state.previews = preview.Previews(app)
    site.state.feed_cache = http_cache.ResponseCache()
    site.state.page_cache = http_cache.ResponseCache(
        http_cache.KEEP_PAGES, limits.pages, http_cache.STALE_PAGES
    )
    site.state.archive_search = ArchiveSearch(app.db, app.models, Path(app.settings.search_dir), app.stopping)
    site.state.suggestions = paper_cards.Suggestions(app.db)
    site.state.newest_day = paper_cards.NewestDay(app.db)
    # Compressed sizes do not leak secrets (BREACH): the only cookie is sent with no request that another site
    # causes, so other sites cannot request a page that contains a secret.
    site.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    uploads = dict.fromkeys(UPLOADS, app.settings.max_import_bytes + security.MAX_FORM_BYTES)
    site.add_middleware(security.SecurityMiddleware, common=security.headers(app.settings), uploads=uploads)
    errors.install(site)
    for module in PAGES:
        site.router.routes.extend(module.router.routes)
    admin.install(site)
    site.mount("/api", api.create(app, limits))
    site.mount("/hooks", webhooks.create(app, limits))
    site.mount("/static", templating.Static(directory=templating.STATIC), name="static")
    telemetry.install(site, app.settings)
    return site


def warm_up(site: FastAPI) -> None:
    """Build the index for the first preview, and bring the search index up to date in a thread of its own."""
    try:
        site.state.previews.build(Preferences(interests=(Interest("papers -draft"),)), clock.utcnow())
        site.state.archive_search.start_refresh()
    except Exception:  # the first request tries again
        log.warning("warm-up failed; the first preview or search will build its index", exc_info=True)


@contextmanager
def running_jobs(app: Application) -> Iterator[None]:
    """Run the jobs during the block: on SQLite in this process, on PostgreSQL shared with all others."""
    if app.db.url.get_backend_name() == "sqlite":
        engine = scheduler.running
    else:
        from app.jobs.worker import running as engine  # an extra
    with workers.registered(app.db), engine(app):
        log.info("jobs started", engine=engine.__module__, jobs=[job.name for job in jobs.JOBS])
        yield
    log.info("jobs stopped")


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """Run the jobs while the web app is running, if the settings enable it."""
    app: Application = site.state.paperboy
    with running_jobs(app) if app.settings.scheduler else nullcontext():
        yield
