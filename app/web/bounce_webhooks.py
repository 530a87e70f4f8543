"""Webhooks for bounces and complaints: POST /hooks/bounces/{provider}.

Requests need a key with the `bounces` scope. Send the key as a bearer token or, because many providers accept
only a URL, as the password in the URL, with any user name. The signatures of SNS, SendGrid and Mailgun are
verified if their topics or keys are configured. A notice is applied only if it identifies a message by our
return path, or by our Message-ID and the recipient.
"""

from enum import StrEnum
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from app import bounces, clock, pipeline
from app.application import Application
from app.errors import InvalidInput, ParsingTooExpensive, SourceError
from app.runtime import sandbox
from app.storage import job_runs
from app.storage.api_keys import Scope
from app.storage.figure_cache import FigureReader
from app.types import Rejection
from app.web import request_traces
from app.web.api import auth, problems
from app.web.capacity import Capacity

router = APIRouter()
log = structlog.get_logger(__name__)

_basic = HTTPBasic(auto_error=False)
SMALL = 100_000  # bytes; larger bodies are parsed in a child process
_AUTHENTICATE = 'Basic realm="paperboy hooks", Bearer realm="paperboy hooks"'

Provider = StrEnum("Provider", {name.upper(): name for name in bounces.PROVIDERS})  # type: ignore[misc]


def create(app: Application, capacity: Capacity) -> FastAPI:
    """Return the webhooks as an application to mount at /hooks. Its errors are problem documents."""
    hooks = FastAPI(openapi_url=None, redirect_slashes=False, telemetry=request_traces.NO_TELEMETRY)
    hooks.state.paperboy = app
    hooks.state.clock = clock.utcnow
    hooks.state.capacity = capacity
    contact = app.settings.user_agent_contact or app.settings.contact_address or app.settings.base_url
    hooks.state.certificates = bounces.CertificateCache(app.http, contact)
    problems.install(hooks)
    hooks.router.routes.extend(router.routes)
    return hooks


def _caller(
    request: Request,
    app: auth.Paperboy,
    limits: auth.Limited,
    now: auth.Now,
    bearer: auth.Given,
    basic: Annotated[HTTPBasicCredentials | None, Depends(_basic)],
) -> auth.Caller:
    """Return the holder of a key with the `bounces` scope.

    Raise HTTPException (401 or 403) if there is no such key, or TooManyRequests if a limit is exceeded.
    """
    given = bearer.credentials if bearer else basic.password if basic else ""
    holder = auth.authenticate(request, given, now) if given else None
    if holder is None:
        missing = "a key with the “bounces” scope is needed: send it as a bearer token or as the password"
        detail = auth.WRONG_KEY if given else missing
        raise HTTPException(401, detail, {"WWW-Authenticate": _AUTHENTICATE})
    if Scope.BOUNCES not in holder.scopes:
        raise HTTPException(403, "this key lacks the “bounces” scope: use a key that has it")
    auth.note_use(app, holder, now)
    return auth.Caller(app, limits, holder, now, FigureReader(app.db.figures))


Reporter = Annotated[auth.Caller, Depends(_caller)]


async def _body(request: Request, _caller: Reporter) -> bytes:
    return await request.body()


def _verify_signature(request: Request, provider: str, caller: auth.Caller, body: bytes) -> None:
    """Verify the signature of a request if the topics or the key of its provider are configured.

    Raise HTTPException (403 if the signature is invalid, 503 if the certificate cannot be fetched).
    """
    settings, now = caller.settings, caller.now
    try:
        match provider:
            case "ses" if settings.sns_topics:
                url = bounces.sns_certificate_url(settings.sns_topics, body)
                bounces.verify_sns(request.app.state.certificates.get(url, now), body, now)
            case "sendgrid" if settings.sendgrid_key:
                bounces.verify_sendgrid(settings.sendgrid_key, request.headers, body, now)
            case "mailgun" if settings.mailgun_key:
                bounces.verify_mailgun(settings.mailgun_key, body, now)
    except bounces.RefusedSignature as error:
        log.warning("webhook refused", provider=provider, signature=str(error))
        raise HTTPException(403, f"the webhook signature is not valid: {error}") from None
    except SourceError as error:  # the 503 response makes the provider send the notice again
        log.warning("the signing certificate could not be fetched", provider=provider, error=str(error))
        detail = "the signing certificate could not be fetched: send the notice again later"
        raise HTTPException(503, detail) from None


@router.post("/bounces/{provider}")
def receive_bounces(
    request: Request, provider: Provider, caller: Reporter, body: Annotated[bytes, Depends(_body)]
) -> JSONResponse:
    """Process a provider's notices, and return their number by outcome.

    If the request asks to confirm an Amazon SNS subscription, store the link in a job run for the operator.
    Raise HTTPException if the signature cannot be verified, or InvalidInput if the body cannot be parsed.
    """
    with caller.capacity.api.take():
        _verify_signature(request, provider.value, caller, body)
        if url := bounces.sns_confirmation_url(body):
            # Do not fetch the link, because the holder of a key can send any URL. The operator must open it.
            reason = "Amazon SNS asks you to confirm a subscription: if you created it, open this link"
            with job_runs.record(caller.db, "bounces", caller.now) as run:
                run.add({"subscriptions": 1})
                run.reject([Rejection(reason, detail=url)])
            notice = "the operator must confirm the subscription: see the runs of the job “bounces”"
            return JSONResponse({"subscription": notice})
        try:
            if len(body) <= SMALL:
                notices = bounces.parse_webhook(provider.value, body)
            else:
                notices = sandbox.run(bounces.parse_webhook, provider.value, body)
        except bounces.InvalidPayload as error:
            raise InvalidInput(str(error)) from None
        except ParsingTooExpensive:
            raise InvalidInput("these events take too long to parse: please send fewer at once") from None
        counts = pipeline.apply_bounces(caller.app, notices, caller.now)
        log.info("bounces received by webhook", provider=provider.value, counts=dict(counts))
        return JSONResponse({"counts": dict(counts)})
