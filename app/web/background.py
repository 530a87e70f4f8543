"""Send mail and run jobs after the response, so that response times do not reveal whether mail was sent."""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog
from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from app import clock, pipeline
from app.application import Application
from app.delivery import ledger
from app.errors import TooManyRequests
from app.web.capacity import WorkSlots
from app.web.site_state import application, capacity, db

log = structlog.get_logger(__name__)

ANSWER_DELAY = 2.0  # seconds on average before a public service processes a form
_RANDOM = random.SystemRandom()


def send_mails(request: Request, delivery_ids: list[int]) -> None:
    """Send these deliveries now if a slot is free. Otherwise the next run of the scheduler sends them."""
    _with_mail_slot(request, lambda app, now: pipeline.send_now(app, now, ids=delivery_ids))


async def answer_form(request: Request, request_id: int) -> None:
    """Process a stored form submission after a random delay. If no slot is free, the scheduler processes it.

    Without the delay, the visitor's next request could coincide with the sending of the email. The slower
    response would reveal that the address gets an email.
    """
    await asyncio.sleep(request.app.state.answer_delay * _RANDOM.uniform(0.5, 1.5))
    await run_in_threadpool(
        _with_mail_slot, request, lambda app, now: pipeline.answer_requests(app, now, [request_id])
    )


def is_paused(request: Request) -> bool:
    """Return whether emails requested now have to wait because all sending is paused."""
    with db(request).read() as session:
        return ledger.is_paused(session)


def run_job(
    slots: WorkSlots, name: str, job: Callable[..., object], app: Application, **options: Any
) -> None:
    """Run a requested job, or log that no slot is free. Errors of the job are in its run and in the log."""
    try:
        with slots.take():
            job(app, clock.utcnow(), **options)
    except Exception:
        log.exception(f"{name} failed", **options)


def _with_mail_slot(request: Request, send: Callable[[Application, datetime], object]) -> None:
    try:
        with capacity(request).mails.take():
            send(application(request), clock.utcnow())
    except TooManyRequests:
        log.info("no capacity to send emails now; the scheduler will send them")
    except Exception:
        log.exception("could not send emails after the response; the scheduler will retry")
