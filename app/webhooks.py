"""Send events to the URLs that operators registered, signed as specified by Standard Webhooks.

The events are rows of the outbox (`storage.webhook_outbox`). Each event is sent at least once, with the
same id in all attempts. See https://www.standardwebhooks.com.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import structlog
from sqlmodel import Session

from app.application import Application
from app.delivery import ledger
from app.digests import reconciliation
from app.errors import InvalidInput, SourceError
from app.papers import polling
from app.papers.sources import deadlines, http_client
from app.papers.sources.allowed_addresses import Allowed
from app.settings import Settings
from app.storage import job_runs, locks, webhook_endpoints, webhook_outbox
from app.storage.models import (
    DeliveryState,
    Subscriber,
    SubscriberState,
    WebhookEndpoint,
    WebhookEvent,
    WebhookMessage,
    WebhookState,
)
from app.storage.webhook_outbox import WebhookAttempt
from app.text.sanitize import redact_addresses

RESPONSE_SECONDS = 15.0  # for a whole response
RUN_SECONDS = 45.0  # after which a run starts no more attempts, because the job runs every minute
MAX_MESSAGES = 500  # per endpoint and run
LEASE = timedelta(minutes=5)
MIN_SECRET = 4  # characters; a shorter part of a URL is not a secret
RECENT = timedelta(days=8)  # a weekly digest waits for up to a week; older editions are not reported as sent
DAY = timedelta(days=1)

log = structlog.get_logger(__name__)
_OPEN = (DeliveryState.PENDING, DeliveryState.CLAIMED, DeliveryState.COMMITTING, DeliveryState.DEFERRED)


def check_url(settings: Settings, url: str) -> None:
    """Raise InvalidInput if a URL is malformed, or if it needs permission that the settings do not give.

    A private host or http:// needs permission. `webhook_endpoints` checks the rest of the URL.
    """
    try:
        parts = urlsplit(url.strip())
        host = (parts.hostname or "").lower()
        host.encode("idna")
        _ = parts.port  # raises ValueError if it is not a port
    except ValueError:
        raise InvalidInput("this is not a URL: enter one that begins with https://", field="url") from None
    allowed = Allowed.parse(settings.allow_private_sources)
    if not allowed.may_permit_host(host):
        raise InvalidInput(
            f"{host} is a private address: to allow it, add it to PAPERBOY_ALLOW_PRIVATE_SOURCES and restart "
            "the service",
            field="url",
        )
    if parts.scheme == "http" and not allowed.includes(host):
        raise InvalidInput(
            "the URL must begin with https://; to allow http:// for one of your own hosts, add the host to "
            "PAPERBOY_ALLOW_PRIVATE_SOURCES and restart the service",
            field="url",
        )


def send_events(app: Application, now: datetime) -> Counter[str]:
    """Send the events that are due. Return their number by outcome. Only one process does so at a time.

    Each endpoint gets its events one after the other. If an event fails, later events wait for the next
    run. No job run is recorded if nothing is due. Must not be called from a running event loop.
    """
    app.schema.require()
    with app.db.read() as session:
        if not webhook_outbox.due_endpoints(session, now):
            return Counter()
    with locks.hold(app.db, "webhooks", now, LEASE) as acquired:
        if not acquired:
            return Counter()
        with app.db.read() as session:
            endpoints = webhook_outbox.due_endpoints(session, now)
        with job_runs.record(app.db, "webhooks", now) as run:
            run.add(deadlines.run(_send_to_all(app, endpoints, now)))
    return run.counts


async def _send_to_all(app: Application, endpoints: Sequence[int], now: datetime) -> Counter[str]:
    async with _client_of(app, now) as client:
        counted = await asyncio.gather(*(_send_to(app, client, number, now) for number in endpoints))
    return sum(counted, Counter())


async def _send_to(app: Application, client: http_client.Client, number: int, now: datetime) -> Counter[str]:
    """Send an endpoint's due events in order, until one fails or time runs out."""
    counts, deadline = Counter[str](), monotonic() + RUN_SECONDS
    for message_id in await asyncio.to_thread(_due, app, number, now):
        if app.stopping.is_set() or monotonic() > deadline:
            break
        attempt = await asyncio.to_thread(_load, app, message_id)
        if attempt is None:
            break
        outcome = await _attempt(client, *attempt, now)
        await asyncio.to_thread(_record, app, message_id, attempt[0].url, outcome, now)
        counts["failed" if outcome.error else "accepted"] += 1
        if outcome.error:
            break
    return counts


def _due(app: Application, number: int, now: datetime) -> Sequence[int]:
    with app.db.read() as session:
        return webhook_outbox.due(session, number, now, MAX_MESSAGES)


def _load(app: Application, message_id: int) -> tuple[WebhookEndpoint, WebhookMessage, str] | None:
    """Return an event with its endpoint and the address to include, or None if it is no longer due."""
    with app.db.read() as session:
        row = session.get(WebhookMessage, message_id)
        if row is None or row.next_attempt_at is None:
            return None
        endpoint = session.get_one(WebhookEndpoint, row.endpoint_id)
        return endpoint, row, _address(session, endpoint, row.data)


def _address(session: Session, endpoint: WebhookEndpoint, data: Mapping[str, Any]) -> str:
    """Return the address of an event's subscriber, or "" if the endpoint does not get addresses."""
    subscriber = session.get(Subscriber, data.get("subscriber_id", 0)) if endpoint.include_addresses else None
    return "" if subscriber is None or subscriber.state is SubscriberState.ERASED else subscriber.email


def _record(app: Application, message_id: int, url: str, outcome: WebhookAttempt, now: datetime) -> None:
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, message_id, url, outcome, now)


def send_test(app: Application, endpoint_id: int, now: datetime) -> WebhookMessage:
    """Send a test event to an endpoint, once, even if the endpoint is disabled. Return the event's row.

    Raise NotFound if there is no such endpoint. Must not be called from a running event loop.
    """
    with app.db.read() as session:
        endpoint = webhook_endpoints.get(session, endpoint_id)
    row = WebhookMessage(**webhook_outbox.message(endpoint_id, webhook_outbox.TEST, now, {}))
    outcome = deadlines.run(_attempt_once(app, endpoint, row, now))
    with app.db.write() as session:
        webhook_outbox.set_outcome(row, webhook_endpoints.get(session, endpoint_id), outcome, now)
        row.state = WebhookState.FAILED if outcome.error else WebhookState.ACCEPTED
        row.next_attempt_at = None
        session.add(row)
        session.flush()
        session.refresh(row)
    return row


async def _attempt_once(
    app: Application, endpoint: WebhookEndpoint, row: WebhookMessage, now: datetime
) -> WebhookAttempt:
    async with _client_of(app, now) as client:
        return await _attempt(client, endpoint, row, "", now)


def _client_of(app: Application, now: datetime) -> AbstractAsyncContextManager[http_client.Client]:
    quick = replace(app.http, response_seconds=RESPONSE_SECONDS, timeout_fix="")
    return polling.client_of(replace(app.poll_context, http=quick), now)


async def _attempt(
    client: http_client.Client, endpoint: WebhookEndpoint, row: WebhookMessage, email: str, now: datetime
) -> WebhookAttempt:
    """Send an event, and return the outcome. Only a 2xx status means that the event was accepted."""
    body = body_of(row, email)
    secrets = webhook_endpoints.secrets_of(endpoint, now)
    headers = sign(secrets, row.message_id, now, body) | {"Content-Type": "application/json"}
    try:
        reply = await client.deliver(endpoint.url, body, headers)
    except SourceError as error:
        return WebhookAttempt(error=_redact(endpoint.url, str(error)))
    except Exception as error:  # the events of other endpoints must not wait for this endpoint
        log.exception("sending an event failed", endpoint=endpoint.id)
        return WebhookAttempt(error=_redact(endpoint.url, f"{type(error).__name__}: {error}"))
    if 200 <= reply.status < 300:
        return WebhookAttempt(reply.status)
    # Redact first: the beginning of a secret or an address could not be recognized.
    excerpt = _redact(endpoint.url, reply.excerpt)[: http_client.EXCERPT_LENGTH]
    return WebhookAttempt(reply.status, f"HTTP {reply.status}. {excerpt}".strip(), reply.wait)


def _redact(url: str, text: str) -> str:
    """Remove addresses and what may be secret in a URL, because some servers repeat what they received.

    The latter is its path and query, and each part of the path and each value of the query. The error of an
    endpoint outlives the erasure of a subscriber.
    """
    parts = urlsplit(url)
    pairs = [pair.partition("=") for pair in parts.query.split("&")]
    values = [value if separator else name for name, separator, value in pairs]
    secrets = {parts.query, parts.path.strip("/"), *parts.path.split("/"), *values}
    secrets |= {unquote_plus(secret) for secret in secrets}
    longest_first = sorted((each for each in secrets if len(each) >= MIN_SECRET), key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    text = re.sub(pattern, "…", text, flags=re.IGNORECASE) if pattern else text
    return redact_addresses(text)


def body_of(row: WebhookMessage, email: str = "") -> bytes:
    """Return the JSON document of an event."""
    data = row.data | ({"email": email} if email else {})
    content = {"type": row.event, "timestamp": row.at.astimezone(UTC).isoformat(), "data": data}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def sign(secrets: Sequence[str], message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message with each of these secrets."""
    timestamp = str(int(now.timestamp()))
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    signatures = []
    for secret in secrets:
        digest = hmac.new(base64.b64decode(secret.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        signatures.append(f"v1,{base64.b64encode(digest).decode()}")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(signatures),
    }


def report_editions(app: Application, now: datetime) -> None:
    """Store an event for each recent edition that is complete, unless it has been stored.

    An edition is complete when none of its digests is waiting or being sent, and no subscriber in any time
    zone is still due.
    """
    now = app.timeline(now).start
    # Use one snapshot, because the last digests may be planned between two of these queries.
    with app.db.read_snapshot() as session:
        listeners = webhook_endpoints.listeners(session, WebhookEvent.EDITION_SENT)
        since = max(now - RECENT, min((each.created_at for each in listeners), default=now))
        names = ledger.editions(session, RECENT.days + 2) if listeners else []
        names = [name for name in names if _end_of(name) > since]
        unreported = [name for name in names if not webhook_outbox.is_stored(session, _key(name))]
        totals = ledger.digest_totals_by_edition(session, unreported)
        done = [name for name in unreported if not any(totals[name][state] for state in _OPEN)]
        results = {name: reconciliation.reconcile(session, _end_of(name), name) for name in done}
    with app.db.write() as session:
        for name, result in results.items():
            if not result.unplanned:
                counts = {"edition": name, **result.as_dict()}
                webhook_outbox.emit(session, WebhookEvent.EDITION_SENT, counts, now, _key(name))


def _key(edition: str) -> str:
    return f"{WebhookEvent.EDITION_SENT} {edition}"


def _end_of(edition: str) -> datetime:
    """Return the time at which a local day has ended in every time zone."""
    return datetime.fromisoformat(edition).replace(tzinfo=UTC) + DAY + timedelta(hours=12)
