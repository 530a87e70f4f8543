"""Build the web application from its parts: pages, feeds, webhooks, the admin API, limits and caches."""

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from threading import Lock

from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from app import clock
from app.application import Application
from app.relevance.archive_search import ArchiveSearch
from app.web import (
    admin,
    api,
    background,
    bounce_webhooks,
    capacity,
    errors,
    form_throttle,
    http_cache,
    monitoring,
    preview,
    request_traces,
    security,
    templating,
)
from app.web.admin.timing import Timing
from app.web.pages import (
    archive,
    confirmation,
    digest_links,
    feedback,
    feeds,
    home,
    leaving,
    mute_and_follow,
    preferences,
    robots_and_sitemaps,
)

# `mute_and_follow` must precede `feedback`, whose routes match any action. The routes are added directly:
# FastAPI would rebuild included routes for each app, which takes 0.1 s.
PAGES = (
    home, archive, confirmation, preferences, digest_links, leaving, mute_and_follow, feedback, feeds,
    robots_and_sitemaps, monitoring,
)  # fmt: skip

# The paths that accept large files. They authenticate the sender before they read the body.
UPLOADS = ("/api/v1/subscribers/import", "/admin/subscribers/import")

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create(app: Application, lifespan: Lifespan, *, is_public: bool) -> FastAPI:
    """Build the web app. See `main.create_app` for `is_public`."""
    site = FastAPI(
        title=app.settings.site_name,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,  # a redirect would contain the client's Host header
        telemetry=request_traces.telemetry(app.settings.otel_endpoint),
    )
    site.state.paperboy = app
    site.state.clock = clock.utcnow
    site.state.timing = Timing()
    site.state.templates = templating.environment(app.settings)
    site.state.capacity = limits = capacity.Capacity(app.settings)
    site.state.form_throttle = form_throttle.FormThrottle(
        app.db, app.settings.signups_per_hour, app.settings.secret_keys
    )
    site.state.answer_delay = background.ANSWER_DELAY if is_public else 0.0
    site.state.previews = preview.Previews(app)
    site.state.feed_cache = http_cache.ResponseCache()
    site.state.sitemap_cache = http_cache.ResponseCache(slots=limits.pages, size=http_cache.MAX_SITEMAPS)
    site.state.match_cache = http_cache.ResponseCache(http_cache.KEEP_MATCHES, stale=http_cache.STALE_MATCHES)
    site.state.page_cache = http_cache.ResponseCache(
        http_cache.KEEP_PAGES, limits.pages, http_cache.STALE_PAGES
    )
    site.state.archive_search = ArchiveSearch(app.db, app.models, Path(app.settings.search_dir), app.stopping)
    site.state.cached_values = {}
    names = "feed_cache", "sitemap_cache", "match_cache", "page_cache", "cached_values"
    app.on_paper_hidden.extend(getattr(site.state, name).clear for name in names)
    site.state.cache_locks = defaultdict(Lock)
    # Compressed sizes do not leak secrets (BREACH): browsers send the only cookie only with requests from our
    # own pages. After a link on another site, operators must press a button, see `admin.sign_in`. So other
    # sites cannot make a browser request a page that contains a secret.
    site.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    uploads = dict.fromkeys(UPLOADS, app.settings.max_import_bytes + security.MAX_FORM_BYTES)
    site.add_middleware(security.SecurityMiddleware, common=security.headers(app.settings), uploads=uploads)
    errors.install(site)
    for module in PAGES:
        site.router.routes.extend(module.router.routes)
    admin.install(site)
    for path, mounted in (("/api", api.create(app, limits)), ("/hooks", bounce_webhooks.create(app, limits))):
        mount = Mount(path, mounted)
        # By default, a mount does not match a path with a newline, and the client would get an HTML page.
        mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
        site.router.routes.append(mount)
    site.mount("/static", templating.Static(directory=templating.STATIC), name="static")
    return site
