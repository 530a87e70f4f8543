"""The admin API, below /api/v1. Each resource has a thin module that calls the same functions as the pages.

auth          keys, scopes, the caller and common parameters
pagination    paginated lists
problems      errors as problem+json
etags         ETags: omit unchanged responses; refuse changes based on an outdated version
idempotency   the Idempotency-Key header: carry out a repeated request only once
values        strict values: days, times, numbers, booleans; base classes of bodies and responses
query_parameters  refuse requests with unknown or repeated parameters
audit_log     changes made by operators
docs          the HTML documentation

The resources: deliveries, digests, editions, findings, interests, keys, papers, paper_changes,
relevance_models, report, runs, settings, sources, statistics, subscribers, subscriber_files, suppressions,
webhooks.
"""

from typing import Any

from fastapi import APIRouter, Depends, FastAPI

from app import clock
from app.application import Application
from app.web import request_traces, templating
from app.web.api import (
    audit_log,
    deliveries,
    digests,
    docs,
    editions,
    etags,
    findings,
    idempotency,
    interests,
    keys,
    paper_changes,
    papers,
    problems,
    query_parameters,
    relevance_models,
    report,
    runs,
    settings,
    sources,
    statistics,
    subscriber_files,
    subscribers,
    suppressions,
    webhooks,
)
from app.web.capacity import Capacity

RESOURCES = (
    subscriber_files,  # before `subscribers`, whose paths match any name
    subscribers,
    digests,
    interests,
    papers,
    paper_changes,
    sources,
    editions,
    deliveries,
    suppressions,
    relevance_models,
    runs,
    audit_log,
    keys,
    webhooks,
    settings,
    statistics,
    findings,
    report,
)
DESCRIPTION = """\
Everything that an operator can do. Create a key with `paperboy key create` and send it as
`Authorization: Bearer pb_…`. Each operation names the scope that its key needs: read, write or send.
Lists are paginated: pass `next_cursor` as `cursor` to get the next page. Every error is a problem document
(RFC 9457) that says what to change in the request."""


class Api(FastAPI):
    """A FastAPI application whose OpenAPI document describes the errors and the common headers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        document["components"]["schemas"].update(problems.schemas())
        problems.describe_bodies(document)
        idempotency.describe(document)
        etags.describe(document)
        return document


# Included once for all applications, because FastAPI takes 0.1 s to include a router.
_ROUTER = APIRouter(responses=problems.responses(401, 403, 422, 429, 500, 503))
for _resource in RESOURCES:
    _ROUTER.include_router(_resource.router, prefix="/v1", dependencies=[Depends(query_parameters.reject)])
_ROUTER.include_router(docs.router)


def create(app: Application, capacity: Capacity | None = None) -> FastAPI:
    """Return the API as an application to mount at /api."""
    api = Api(
        title=f"{app.settings.site_name}: admin API",
        version="1",
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=request_traces.NO_TELEMETRY,
    )
    api.state.paperboy = app
    api.state.clock = clock.utcnow
    api.state.capacity = capacity or Capacity(app.settings)
    api.state.templates = templating.environment(app.settings)
    problems.install(api)
    idempotency.install(api)
    etags.install(api)
    api.router.routes.extend(_ROUTER.routes)
    return api
