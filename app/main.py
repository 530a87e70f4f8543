"""The composition root: nothing is made on import; `build` makes everything once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware

from app import clock, interpreter, jobs
from app.db import Database
from app.letters import Composer
from app.pipeline import App
from app.records import Wish
from app.render import Renderer
from app.search import Library
from app.settings import Settings
from app.subscribers import Preferences
from app.tokens import Signer
from app.web import (
    admission,
    api,
    capacity,
    conditional,
    crawlers,
    errors,
    feedback,
    feeds,
    following,
    hooks,
    ops,
    pages,
    papers,
    preview,
    public,
    reader,
    security,
    shelf,
    tracing,
)

log = structlog.get_logger(__name__)


def build(settings: Settings) -> App:
    """Assemble the application. The caller calls `app.db.dispose()` when done."""
    interpreter.limit_malloc_arenas()
    signer = Signer(settings.secret_keys, settings.base_url)
    renderer = Renderer(settings, signer)
    return App(
        settings=settings,
        db=Database(settings.database_url),
        signer=signer,
        renderer=renderer,
        composer=Composer(settings, signer, renderer),
    )


def create_app(app: App, answer_delay: float = 0.0) -> FastAPI:
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
    site.state.templates = pages.environment(app.settings)
    site.state.capacity = limits = capacity.Capacity()
    site.state.admission = admission.Admission(
        app.db, app.settings.signups_per_hour, app.settings.secret_keys
    )
    site.state.answer_delay = answer_delay
    site.state.previews = preview.Previews(app)
    site.state.kept = conditional.Kept()
    site.state.pages = conditional.Kept(conditional.KEEP_PAGES, limits.pages, conditional.STALE_PAGES)
    site.state.library = Library(app.db, app.lexicon)
    site.state.suggestions = shelf.Suggestions(app.db)
    site.state.newest = shelf.Newest(app.db)
    # A size tells no secret: without cookies, no other site can have a page with one answered.
    site.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    site.add_middleware(security.Guard, common=security.headers(app.settings))
    errors.install(site)
    site.include_router(public.router)
    site.include_router(papers.router)
    site.include_router(reader.router)
    site.include_router(following.router)  # before what takes any word in the same place
    site.include_router(feedback.router)
    site.include_router(feeds.router)
    site.include_router(crawlers.router)
    site.include_router(ops.router)
    site.mount("/api", api.create(app, limits))
    site.mount("/hooks", hooks.create(app, limits))
    site.mount("/static", pages.Static(directory=pages.STATIC), name="static")
    tracing.install(site, app.settings)
    return site


def warm_up(site: FastAPI) -> None:
    """Make what the first preview and the first search would wait for: that may take seconds."""
    try:
        site.state.previews.of(Preferences(interests=(Wish("papers -draft"),)), clock.utcnow())
        site.state.library.renew()
    except Exception:  # it is made again when somebody asks for it
        log.warning("not warmed up", exc_info=True)


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """The schedule runs as long as the web app is served, where the settings want it here."""
    app: App = site.state.paperboy
    if not app.settings.scheduler:
        yield
        return
    scheduler = jobs.start(app)
    try:
        yield
    finally:
        jobs.stop(app, scheduler)
