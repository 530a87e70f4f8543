"""Where relays tell by webhook of mails that came back: POST /hooks/bounces/{shape}, with a key of its own.

The key, of the scope `bounces`, comes as a bearer token or, since many relays can only be given a URL, as the
password in it (the name does not matter). It is all that is checked: signatures that SNS, SendGrid and
Mailgun add are not. What a webhook says counts only for a mail that it names by our return path, or by our
Message-ID together with the address that it went to.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from app import bounces, pipeline
from app.application import Application
from app.errors import InvalidInput, ParsingTooExpensive
from app.runtime import sandbox
from app.storage import api_keys, job_runs
from app.storage.models import Scope
from app.types import Rejection
from app.web.api import auth, problems
from app.web.work_limits import Capacity

router = APIRouter()
log = structlog.get_logger(__name__)

_basic = HTTPBasic(auto_error=False)
SMALL = 100_000  # bytes that may be read in this process
_WAYS_IN = 'Basic realm="paperboy hooks", Bearer realm="paperboy hooks"'

Shape = StrEnum("Shape", {name.upper(): name for name in bounces.PROVIDERS})  # type: ignore[misc]


def create(app: Application, capacity: Capacity) -> FastAPI:
    """The webhooks as an application of their own, to be mounted at /hooks: machines read its errors."""
    hooks = FastAPI(openapi_url=None, redirect_slashes=False)
    hooks.state.paperboy = app
    hooks.state.capacity = capacity
    problems.install(hooks)
    hooks.include_router(router)
    return hooks


def _caller(
    request: Request,
    app: auth.Paperboy,
    now: auth.Now,
    bearer: auth.Given,
    basic: Annotated[HTTPBasicCredentials | None, Depends(_basic)],
) -> api_keys.ApiKeyIdentity:
    """The holder of a key that may tell of bounces, or 401, or 403."""
    given = bearer.credentials if bearer else basic.password if basic else ""
    holder = auth.authenticate(request, given, now) if given else None
    if holder is None:
        detail = auth.WRONG_KEY if given else "a key is needed"
        raise HTTPException(401, detail, {"WWW-Authenticate": _WAYS_IN})
    if Scope.BOUNCES not in holder.scopes:
        raise HTTPException(403, "this key lacks the scope “bounces”")
    auth.note_use(app, holder, now)
    return holder


async def _body(request: Request, _caller: Annotated[api_keys.ApiKeyIdentity, Depends(_caller)]) -> bytes:
    return await request.body()


@router.post("/bounces/{shape}")
def take_bounces(
    shape: Shape,
    app: auth.Paperboy,
    now: auth.Now,
    body: Annotated[bytes, Depends(_body)],
    limits: auth.Limited,
) -> JSONResponse:
    """Process the notices of a relay and return how many of each kind there were."""
    with limits.api.take():
        return _process(app, shape, body, now)


def _process(app: Application, shape: Shape, body: bytes, now: datetime) -> JSONResponse:
    if url := bounces.sns_confirmation_url(body):
        _show_subscription(app, url, now)
        return JSONResponse({"subscription": "it waits for the operator: see the runs of the job “bounces”"})
    try:
        if len(body) <= SMALL:
            notices = bounces.parse_webhook(shape.value, body)
        else:
            notices = sandbox.run(bounces.parse_webhook, shape.value, body)
    except bounces.InvalidPayload as error:
        raise InvalidInput(str(error)) from None
    except ParsingTooExpensive:
        raise InvalidInput("to read these events takes too long: please send fewer at once") from None
    counts = pipeline.apply_bounces(app, notices, now)
    log.info("a webhook told of bounces", shape=shape.value, counts=dict(counts))
    return JSONResponse({"counts": dict(counts)})


def _show_subscription(app: Application, url: str, now: datetime) -> None:
    """Whoever confirms a subscription fetches a URL that somebody sent: that is for a person to judge."""
    with job_runs.record(app.db, "bounces", now) as run:
        run.add({"subscriptions": 1})
        run.reject(
            [Rejection("Amazon SNS asks to confirm a subscription: open this, if it is yours", detail=url)]
        )
