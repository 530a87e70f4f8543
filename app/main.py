"""The composition root: nothing is made on import; `build` makes everything once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from app import clock, scheduler
from app.application import Application
from app.links import LinkSigner
from app.mail.composer import Composer
from app.mail.render import Renderer
from app.relevance.archive_search import ArchiveSearch
from app.runtime import interpreter
from app.settings import Settings
from app.storage.database import Database
from app.subscribers import Preferences
from app.types import Interest
from app.web import (
    api,
    errors,
    http_cache,
    monitoring,
    paper_cards,
    preview,
    proof_of_work,
    security,
    telemetry,
    templating,
    webhooks,
    work_limits,
)
from app.web.pages import archive, feedback, feeds, home, paper_actions, robots, subscriber

log = structlog.get_logger(__name__)


def build(settings: Settings) -> Application:
    """Assemble the application. The caller calls `app.db.dispose()` when done."""
    interpreter.limit_malloc_arenas()
    signer = LinkSigner(settings.secret_keys, settings.base_url)
    renderer = Renderer(settings, signer)
    return Application(
        settings=settings,
        db=Database(settings.database_url),
        signer=signer,
        renderer=renderer,
        composer=Composer(settings, signer, renderer),
    )


def create_app(app: Application, answer_delay: float = 0.0) -> FastAPI:
    """The web application on top of it: public pages, readers' pages, the admin API.

    `answer_delay` is about how many seconds after the response a form that asks for mail is processed.
    """
    site = FastAPI(
        title=app.settings.site_name,
        openapi_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,  # the redirect would repeat the Host header
    )
    site.state.paperboy = app
    site.state.templates = templating.environment(app.settings)
    site.state.capacity = limits = work_limits.Capacity()
    site.state.admission = proof_of_work.Admission(
        app.db, app.settings.signups_per_hour, app.settings.secret_keys
    )
    site.state.answer_delay = answer_delay
    site.state.previews = preview.Previews(app)
    site.state.kept = http_cache.ResponseCache()
    site.state.pages = http_cache.ResponseCache(http_cache.KEEP_PAGES, limits.pages, http_cache.STALE_PAGES)
    site.state.library = ArchiveSearch(app.db, app.models)
    site.state.suggestions = paper_cards.Suggestions(app.db)
    site.state.newest = paper_cards.Newest(app.db)
    # A size tells no secret: without cookies, no other site can have a page with one answered.
    site.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    site.add_middleware(security.SecurityMiddleware, common=security.headers(app.settings))
    errors.install(site)
    site.include_router(home.router)
    site.include_router(archive.router)
    site.include_router(subscriber.router)
    site.include_router(paper_actions.router)  # before what takes any word in the same place
    site.include_router(feedback.router)
    site.include_router(feeds.router)
    site.include_router(robots.router)
    site.include_router(monitoring.router)
    site.mount("/api", api.create(app, limits))
    site.mount("/hooks", webhooks.create(app, limits))
    site.mount("/static", templating.Static(directory=templating.STATIC), name="static")
    telemetry.install(site, app.settings)
    return site


def warm_up(site: FastAPI) -> None:
    """Make what the first preview and the first search would wait for: that may take seconds."""
    try:
        site.state.previews.of(Preferences(interests=(Interest("papers -draft"),)), clock.utcnow())
        site.state.library.refresh()
    except Exception:  # it is made again when somebody asks for it
        log.warning("not warmed up", exc_info=True)


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """The schedule runs as long as the web app is served, where the settings want it here."""
    app: Application = site.state.paperboy
    if not app.settings.scheduler:
        yield
        return
    background = scheduler.start(app)
    try:
        yield
    finally:
        scheduler.stop(app, background)
