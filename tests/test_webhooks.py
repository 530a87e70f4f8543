"""Test webhooks: events are stored with what causes them, signed, retried as data, and given up."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, select, update

from app import bounces, maintenance, pipeline, subscribers, webhooks
from app.application import Application
from app.delivery import ledger
from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome, SendResult
from app.doctor import service_state
from app.doctor.findings import Finding
from app.errors import Conflict, InvalidInput
from app.papers import polling
from app.storage import webhook_endpoints, webhook_outbox
from app.storage.models import (
    Delivery,
    DeliveryState,
    Subscriber,
    WebhookEndpoint,
    WebhookEvent,
    WebhookMessage,
    WebhookState,
)
from app.storage.webhook_outbox import WebhookAttempt
from app.subscribers import Preferences, SignUp
from app.types import Cadence, Interest
from tests.support import factories
from tests.support.interleaving import before_statement
from tests.support.mail_server import MailServer
from tests.support.webhook_receiver import WebhookReceiver

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
ALL = list(WebhookEvent)
AGENTS = Preferences(interests=(Interest("agents"),))
# The example of the specification: https://github.com/standard-webhooks/standard-webhooks
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as server:
        yield server


@pytest.fixture
def app(app: Application) -> Application:
    """Return the application, which may reach the receiver on this machine."""
    return replace(app, settings=app.settings.model_copy(update={"allow_private_sources": ("127.0.0.0/8",)}))


@pytest.fixture
def add(app: Application, receiver: WebhookReceiver, now: datetime) -> Callable[..., WebhookEndpoint]:
    """Return a function that adds a webhook at the receiver."""

    def add_endpoint(*events: WebhookEvent, addresses: bool = False) -> WebhookEndpoint:
        with app.db.write() as session:
            return webhook_endpoints.add(session, receiver.url, events or ALL, addresses, now - DAY)

    return add_endpoint


def messages(app: Application) -> list[WebhookMessage]:
    with app.db.read() as session:
        return list(session.exec(select(WebhookMessage).order_by(col(WebhookMessage.id))))


def endpoint(app: Application) -> WebhookEndpoint:
    with app.db.read() as session:
        return session.exec(select(WebhookEndpoint)).one()


def emit(app: Application, now: datetime, count: int = 1) -> None:
    with app.db.write() as session:
        for number in range(count):
            webhook_outbox.emit(session, WebhookEvent.PAUSED, {"number": number}, now)


def webhook_findings(app: Application, now: datetime) -> list[Finding]:
    findings = service_state.check(app.db, app.models, now)
    return [finding for finding in findings if finding.check.startswith("webhook")]


def add_alice(session: Session, now: datetime) -> int:
    return factories.add_subscriber(session, "alice@example.org", ["language agents"], now)


def test_signature_of_the_specification() -> None:
    """The signature is that of the example in the Standard Webhooks specification."""
    at = datetime.fromtimestamp(1614265330).astimezone()
    headers = webhooks.sign([SECRET], "msg_p5jXN8AQM9LWM0D4loKWxJek", at, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == SIGNED
    assert headers["webhook-timestamp"] == "1614265330"


def test_confirmation_reaches_the_receiver(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """A subscriber signs up, confirms and leaves: two signed events, with an id and no address."""
    secret = add().secret
    with app.db.write() as session:
        factories.sign_up(session, SignUp("alice@example.org", AGENTS), "", now)
        alice = session.exec(select(Subscriber.id)).one() or 0
    assert webhooks.send_events(app, now) == {}
    with app.db.write() as session:
        subscribers.confirm(session, alice, "", now)
        subscribers.unsubscribe(session, alice, now)
    assert webhooks.send_events(app, now) == {"accepted": 2}
    confirmed, left = receiver.received
    assert confirmed.event == {
        "type": "subscriber.confirmed", "timestamp": "2026-11-20T09:30:00+00:00",
        "data": {"subscriber_id": alice},
    }  # fmt: skip
    assert left.event["type"] == "subscriber.unsubscribed"
    assert confirmed.headers["content-type"] == "application/json"
    assert confirmed.headers["webhook-id"] != left.headers["webhook-id"]
    assert all(request.is_signed_by(secret) for request in receiver.received)
    assert not confirmed.is_signed_by(webhook_endpoints.new_secret())
    assert webhooks.send_events(app, now + DAY) == {}
    assert [row.state for row in messages(app)] == [WebhookState.ACCEPTED] * 2


def test_addresses_are_sent_only_on_request(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """The address is looked up when the event is sent, so none is left after an erasure."""
    add(addresses=True)
    with app.db.write() as session:
        alice = add_alice(session, now)
        subscribers.unsubscribe(session, alice, now)
    assert "alice" not in repr(messages(app))
    webhooks.send_events(app, now)
    with app.db.write() as session:
        subscribers.erase(session, alice, now)
    webhooks.send_events(app, now)
    left, erased = [request.event for request in receiver.received]
    assert left["data"] == {"subscriber_id": alice, "email": "alice@example.org"}
    assert erased == {
        "type": "subscriber.erased",
        "timestamp": left["timestamp"],
        "data": {"subscriber_id": 1},
    }


def test_bounces_and_complaints_are_sent_once(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """A notice that is reported twice causes one event."""
    add(WebhookEvent.BOUNCED, WebhookEvent.COMPLAINED)
    with app.db.write() as session:
        alice = add_alice(session, now)
        facts = {"subscriber_id": alice, "edition": "2026-11-20", "due_at": now, "created_at": now}
        session.add(Delivery(**facts, state=DeliveryState.SENT, id=7))
        session.flush()
        for _ in range(2):
            refusal = SendResult(SendOutcome.HARD_BOUNCE, 550, "5.1.1 no such user")
            bounces.record_refusal(session, AttemptResult(7, refusal, now.timestamp()), alice, now)
            bounces.record_complaint(session, 7, alice, "spam", now)
    webhooks.send_events(app, now)
    about = {"subscriber_id": alice, "delivery_id": 7}
    assert [(each.event["type"], each.event["data"]) for each in receiver.received] == [
        ("delivery.bounced", about | {"permanent": True}),
        ("delivery.complained", about),
    ]


def test_failing_source_and_pause(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """A source is reported after its third failure in a row; a pause once, until it has ended."""
    add(WebhookEvent.SOURCE_FAILED, WebhookEvent.PAUSED)
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for _ in range(5):
            polling.record_failure(session, source, "HTTP 500.", now, None)
        ledger.pause(session, "the relay moves", now)
        ledger.pause(session, "again", now)
        ledger.pause(session, "look at it", now, "2026-11-20")
    webhooks.send_events(app, now)
    failed, *paused = [request.event["data"] for request in receiver.received]
    assert (failed["failures"], failed["error"], failed["source_id"]) == (3, "HTTP 500.", source.id)
    assert paused == [
        {"edition": None, "reason": "the relay moves"},
        {"edition": "2026-11-20", "reason": "look at it"},
    ]


def test_event_is_rolled_back_with_its_cause(
    app: Application, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """An event that did not happen is not sent."""
    add()
    with pytest.raises(ZeroDivisionError), app.db.write() as session:  # noqa: PT012 - both must be rolled back
        ledger.pause(session, "a mistake", now)
        assert 1 / 0
    assert messages(app) == []


def test_edition_is_reported_when_all_have_got_it(
    app: Application,
    receiver: WebhookReceiver,
    add: Callable[..., WebhookEndpoint],
    mail_server: MailServer,
    now: datetime,
) -> None:
    """Once, with its counts, and not while somebody in a later time zone is still due."""
    add(WebhookEvent.EDITION_SENT)
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now, abstract="Plans.")
        midnight = now.replace(hour=0, minute=0)
        for name, interest, hour in (("alice", "language agents", 9), ("bob", "quantum chess", 18)):
            due = midnight + hour * HOUR
            factories.add_subscriber(
                session, f"{name}@example.org", [interest], due, hour=hour, due_since=due
            )
    pipeline.plan_and_send(app, now)
    webhooks.report_editions(app, now)
    assert messages(app) == []
    pipeline.plan_and_send(app, now + 9 * HOUR)
    for _ in range(2):
        webhooks.report_editions(app, now + 9 * HOUR)
    assert webhooks.send_events(app, now + 9 * HOUR) == {"accepted": 1}
    (request,) = receiver.received
    facts = request.event["data"]
    assert (facts["edition"], facts["due"], facts["sent"], facts["skipped"]) == ("2026-11-20", 2, 1, 1)
    assert facts["consistent"]


def test_edition_is_reported_when_it_is_approved_late(
    app: Application, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """A weekly digest may wait for its approval until the next one is composed."""
    add(WebhookEvent.EDITION_SENT)
    weekly = {"cadence": Cadence.WEEKLY, "weekday": now.weekday(), "hour": now.hour}
    with app.db.write() as session:
        reader = factories.add_subscriber(session, "a@example.org", ["agents"], now + 7 * DAY, **weekly)
        facts = {"subscriber_id": reader, "edition": "2026-11-20", "due_at": now, "created_at": now}
        session.add(Delivery(**facts, state=DeliveryState.PENDING))
    webhooks.report_editions(app, now + 6 * DAY)
    assert messages(app) == []
    with app.db.write() as session:
        session.execute(update(Delivery).values(state=DeliveryState.SENT, sent_at=now + 6 * DAY))
    webhooks.report_editions(app, now + 6 * DAY)
    assert [message.data["sent"] for message in messages(app)] == [1]


@pytest.mark.postgres
@pytest.mark.parametrize("statement", ["SELECT delivery.state, delivery.due_at", "SELECT subscriber.cadence"])
def test_edition_is_not_reported_while_its_last_digests_are_planned(
    app: Application, add: Callable[..., WebhookEndpoint], now: datetime, statement: str
) -> None:
    """They are planned after the query for waiting digests, and before the one for unplanned digests."""
    add(WebhookEvent.EDITION_SENT)
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, "Language Agents that Plan", now.date(), now, abstract="Plans.")
        for name, hour in (("alice", 9), ("bob", 18)):
            due = now.replace(hour=hour, minute=0)
            factories.add_subscriber(
                session, f"{name}@example.org", ["agents"], due, hour=hour, due_since=due
            )
    pipeline.plan(app, now)
    factories.record_sent(app)
    with before_statement(app.db.engine, statement, lambda: pipeline.plan(app, now + 9 * HOUR)):
        webhooks.report_editions(app, now + 9 * HOUR)
    assert messages(app) == []
    factories.record_sent(app)
    webhooks.report_editions(app, now + 9 * HOUR)
    (message,) = messages(app)
    assert (message.data["due"], message.data["sent"]) == (2, 2)


def test_failed_event_is_sent_again_with_growing_delays(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """With the same id. The next attempt is data, so it survives a restart."""
    add()
    emit(app, now)
    receiver.status, receiver.answer = 500, b"no POST /hooks/s3cret"  # what may be secret is not recorded
    delays, at = [], now
    for _ in range(4):
        assert webhooks.send_events(app, at) == {"failed": 1}
        assert webhooks.send_events(app, at + 30 * timedelta(seconds=1)) == {}
        (row,) = messages(app)
        assert row.next_attempt_at
        delays.append(row.next_attempt_at - at)
        at = row.next_attempt_at
    assert MINUTE / 2 < delays[0] < 2 * MINUTE
    assert all(3 < later / earlier < 5 for earlier, later in itertools.pairwise(delays))
    assert (row.status, row.error, row.attempts) == (500, "HTTP 500. no POST /…", 4)
    assert endpoint(app).error == "HTTP 500. no POST /…"
    receiver.status = 200
    assert webhooks.send_events(app, at) == {"accepted": 1}
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 1
    assert len({request.headers["webhook-timestamp"] for request in receiver.received}) == 5
    assert endpoint(app).error == ""


@pytest.mark.parametrize(
    ("path", "answer", "error"),
    [
        ("/webhook/5f2b-S3CRET", 'The webhook "POST 5f2b-s3cret" is unknown', 'The … "POST …" is unknown'),
        ("/in?list=7&token=S3%2BCRET", "wrong token S3+CRET for list 7", "wrong token … for list 7"),
        ("/in?S3CRET", "unknown: S3CRET", "unknown: …"),
        ("/in?key=S3CRET", "x" * 195 + " S3CRET", "x" * 195 + " …"),
    ],
)
@pytest.mark.once
def test_errors_contain_no_secret_of_the_url(
    app: Application, receiver: WebhookReceiver, now: datetime, path: str, answer: str, error: str
) -> None:
    """Some servers repeat a part of the path or a value of the query. Only its beginning may fit."""
    with app.db.write() as session:
        url = receiver.url.removesuffix("/hooks/s3cret") + path
        webhook_endpoints.add(session, url, ALL, False, now - DAY)
    emit(app, now)
    receiver.status, receiver.answer = 404, answer.encode()
    webhooks.send_events(app, now)
    assert (messages(app)[0].error, endpoint(app).error) == (f"HTTP 404. {error}", f"HTTP 404. {error}")


@pytest.mark.parametrize(("before", "after"), [("", " is not in list 12"), ("x" * 190 + " ", "")])
def test_errors_contain_no_address(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime,
    before: str, after: str,
) -> None:  # fmt: skip
    """Some servers repeat it. The error is kept for months, also after an erasure."""
    add(addresses=True)
    receiver.status, receiver.answer = 422, f"{before}alice@example.org{after}".encode()
    with app.db.write() as session:
        subscribers.unsubscribe(session, add_alice(session, now), now)
    webhooks.send_events(app, now)
    assert "alice@example.org" in receiver.received[0].body.decode()
    error = f"HTTP 422. {before}…{after}"
    assert (messages(app)[0].error, endpoint(app).error) == (error, error)


def test_error_in_utf_16_is_recorded(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """Without its NUL characters, which PostgreSQL rejects. The event waits for its next attempt."""
    add()
    emit(app, now)
    receiver.status, receiver.answer = 500, "busy".encode("utf-16-le")
    assert webhooks.send_events(app, now) == {"failed": 1}
    assert webhooks.send_events(app, now + timedelta(seconds=20)) == {}
    (row,) = messages(app)
    assert (row.attempts, row.error) == (1, "HTTP 500. b u s y")


def test_others_wait_after_a_failure(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """An endpoint that is down gets one request per run, not one for each event that waits."""
    add()
    emit(app, now, 5)
    receiver.status = 503
    assert webhooks.send_events(app, now) == {"failed": 1}
    first, second, *_ = messages(app)
    assert (first.attempts, second.attempts, second.next_attempt_at) == (1, 0, now)


def test_all_events_wait_if_the_endpoint_asks_for_a_pause(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """It gets no requests until the pause ends, also not for events that are stored during the pause."""
    add()
    emit(app, now, 2)
    receiver.status = 429
    receiver.headers = {"Retry-After": "7200"}
    assert webhooks.send_events(app, now) == {"failed": 1}
    emit(app, now + MINUTE)
    assert webhooks.send_events(app, now + MINUTE) == {}
    assert webhooks.send_events(app, now + 2 * HOUR - MINUTE) == {}
    assert [row.attempts for row in messages(app)] == [1, 0, 0]
    receiver.status, receiver.headers = 200, {}
    assert webhooks.send_events(app, now + 2 * HOUR) == {"accepted": 3}
    assert endpoint(app).paused_until is None


def test_enabling_a_webhook_ends_the_pause(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """An operator who enables it, or gives it a new URL, expects its events at once."""
    add()
    emit(app, now)
    receiver.status, receiver.headers = 429, {"Retry-After": "7200"}
    assert webhooks.send_events(app, now) == {"failed": 1}
    receiver.status, receiver.headers = 200, {}
    with app.db.write() as session:
        webhook_endpoints.change(session, session.exec(select(WebhookEndpoint)).one(), enabled=True, now=now)
    emit(app, now + MINUTE)
    assert webhooks.send_events(app, now + MINUTE) == {"accepted": 1}


def test_endpoint_is_disabled_after_three_days(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """Then the doctor says so, and an operator can enable it and have its events sent again."""
    add()
    emit(app, now)
    receiver.status = 404
    at, attempts = now, 0
    while (row := messages(app)[0]).next_attempt_at:
        at, attempts = row.next_attempt_at, attempts + 1
        assert webhooks.send_events(app, at) == {"failed": 1}
    assert (row.state, row.next_attempt_at) == (WebhookState.FAILED, None)
    assert 2.5 * DAY < at - now < 3 * DAY
    assert 10 < attempts < 20
    assert endpoint(app).disabled_at == at
    emit(app, at)
    assert len(messages(app)) == 1
    findings = {each.check: each for each in service_state.check(app.db, app.models, at)}
    finding = findings[f"webhook 1 ({webhook_endpoints.origin(receiver.url)})"]
    assert finding.urgent
    assert "it was disabled at 2026-11-2" in finding.message
    assert "HTTP 404" in finding.message

    receiver.status = 200
    with app.db.write() as session:
        stored = session.exec(select(WebhookEndpoint)).one()
        with pytest.raises(Conflict):
            webhook_outbox.resend_failed(session, stored, at)
        webhook_endpoints.change(session, stored, enabled=True, now=at)
        assert webhook_outbox.resend_failed(session, stored, at) == 1
    assert webhooks.send_events(app, at) == {"accepted": 1}
    assert webhook_findings(app, at) == []


def test_endpoint_that_works_stays_enabled(
    app: Application, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """An event that it never accepts is given up, and others go on. The doctor reports it for a week."""
    url = add().url
    emit(app, now, 2)
    refused, other = messages(app)
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, other.id or 0, url, WebhookAttempt(200), now + HOUR)
        refusal = WebhookAttempt(422, "HTTP 422.")
        webhook_outbox.record_attempt(session, refused.id or 0, url, refusal, now + 3 * DAY)
    assert [row.state for row in messages(app)] == [WebhookState.FAILED, WebhookState.ACCEPTED]
    assert endpoint(app).disabled_at is None
    emit(app, now + 3 * DAY)
    later = messages(app)[-1]
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, later.id or 0, url, WebhookAttempt(200), now + 3 * DAY)
    findings = [webhook_findings(app, now + number * DAY) for number in (3, 10, 11)]
    assert [len(each) for each in findings] == [1, 1, 0]
    assert "gave up on 1 event" in findings[0][0].message
    with app.db.write() as session:
        webhook_outbox.resend_failed(session, webhook_endpoints.get(session, 1), now + 3 * DAY)
    assert webhook_findings(app, now + 3 * DAY) == []


def test_endpoint_that_is_gone_is_disabled_at_once(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    add()
    emit(app, now, 2)
    receiver.status = 410
    webhooks.send_events(app, now)
    assert endpoint(app).disabled_at == now
    assert {(row.state, row.next_attempt_at) for row in messages(app)} == {(WebhookState.FAILED, None)}


@pytest.mark.parametrize("enabled_again", [False, True])
@pytest.mark.parametrize("attempt", [WebhookAttempt(error="timeout"), WebhookAttempt(410, "HTTP 410")])
def test_endpoint_is_disabled_during_an_attempt(
    app: Application,
    add: Callable[..., WebhookEndpoint],
    now: datetime,
    attempt: WebhookAttempt,
    enabled_again: bool,
) -> None:
    """The event is given up like the others, and is not sent again."""
    row = add()
    number, url = row.id or 0, row.url
    emit(app, now, 2)
    accepted, refused = messages(app)
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, accepted.id or 0, url, WebhookAttempt(200), now)
        for enabled in [False, True] if enabled_again else [False]:
            row = webhook_endpoints.get_for_update(session, number)
            webhook_endpoints.change(session, row, enabled=enabled, now=now + MINUTE)
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, refused.id or 0, url, attempt, now + HOUR)
    message = messages(app)[1]
    assert (message.state, message.next_attempt_at, message.attempts) == (WebhookState.FAILED, None, 1)
    assert endpoint(app).disabled_at == (None if enabled_again else now + MINUTE)


@pytest.mark.parametrize(("status", "error"), [(410, "HTTP 410."), (503, "HTTP 503.")])
def test_url_is_changed_during_an_attempt(
    app: Application, add: Callable[..., WebhookEndpoint], now: datetime, status: int, error: str
) -> None:
    """The failure of the old URL does not affect the new one, which gets the event at once."""
    row = add()
    emit(app, now)
    (message,) = messages(app)
    with app.db.write() as session:
        stored = webhook_endpoints.get_for_update(session, row.id or 0)
        webhook_endpoints.change(session, stored, url="https://new.example.org/hook", now=now)
    attempt = WebhookAttempt(status, error, wait=HOUR)
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, message.id or 0, row.url, attempt, now)
    changed = endpoint(app)
    assert (changed.disabled_at, changed.paused_until, changed.error) == (None, None, "")
    assert messages(app)[0].next_attempt_at == now
    with app.db.write() as session:
        webhook_outbox.record_attempt(session, message.id or 0, row.url, WebhookAttempt(200), now)
    assert messages(app)[0].state is WebhookState.ACCEPTED


def test_old_secret_signs_for_one_more_day(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    old = add().secret
    with app.db.write() as session:
        row = session.exec(select(WebhookEndpoint)).one()
        webhook_endpoints.rotate(session, row, now)
        new = row.secret
    for at in (now, now + 25 * HOUR):
        emit(app, at)
        webhooks.send_events(app, at)
    both, only_new = receiver.received
    assert (both.is_signed_by(old), both.is_signed_by(new)) == (True, True)
    assert (only_new.is_signed_by(old), only_new.is_signed_by(new)) == (False, True)


def test_last_two_replaced_secrets_sign_for_one_more_day(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """The receiver has one of them: the operator may have lost the other. The one before them has ended."""
    secrets = [add().secret]
    for at in (now - HOUR, now, now + HOUR):
        with app.db.write() as session:
            row = session.exec(select(WebhookEndpoint)).one()
            webhook_endpoints.rotate(session, row, at)
            secrets.append(row.secret)
    for at in (now + 24 * HOUR, now + 26 * HOUR):
        emit(app, at)
        webhooks.send_events(app, at)
    several, only_new = receiver.received
    assert [several.is_signed_by(secret) for secret in secrets] == [False, True, True, True]
    assert [only_new.is_signed_by(secret) for secret in secrets] == [False, False, False, True]


@pytest.mark.postgres
def test_additions_wait_for_each_other(app: Application, now: datetime) -> None:
    """Otherwise, simultaneous requests could exceed the limit, or fail because of equal URLs."""
    with app.db.write() as session:
        webhook_endpoints.add(session, "https://example.org/1", ["edition.sent"], False, now)
        with Session(app.db.engine) as other:
            other.execute(text("SET LOCAL lock_timeout = '1ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                webhook_endpoints.add(other, "https://example.org/2", ["edition.sent"], False, now)


def test_test_event_is_sent_once(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """Also to a disabled endpoint. A failure is reported, not repeated."""
    number = add().id or 0
    with app.db.write() as session:
        webhook_endpoints.change(session, webhook_endpoints.get(session, number), enabled=False, now=now)
    sent = webhooks.send_test(app, number, now)
    assert (sent.state, sent.status) == (WebhookState.ACCEPTED, 204)
    assert receiver.received[0].event == {
        "type": "webhook.test", "timestamp": "2026-11-20T09:30:00+00:00", "data": {},
    }  # fmt: skip
    receiver.status = 401
    failed = webhooks.send_test(app, number, now)
    assert (failed.state, failed.error, failed.next_attempt_at) == (WebhookState.FAILED, "HTTP 401.", None)
    assert endpoint(app).disabled_at == now


@pytest.mark.parametrize("url", ["https://10.0.0.7/x", "https://localhost/x", "http://93.184.215.14/x"])
@pytest.mark.once
def test_private_and_unencrypted_urls_are_refused(app: Application, url: str) -> None:
    with pytest.raises(InvalidInput, match="PAPERBOY_ALLOW_PRIVATE_SOURCES"):
        webhooks.check_url(app.settings, url)


@pytest.mark.parametrize(
    "url", ["ftp://a.test/", "https://user:word@a.test/", "https://a.test/#x", "https://"]
)
def test_malformed_urls_are_refused(app: Application, now: datetime, url: str) -> None:
    with pytest.raises(InvalidInput), app.db.write() as session:
        webhook_endpoints.add(session, url, ALL, False, now)


def test_error_for_a_long_url(app: Application, now: datetime) -> None:
    """It does not complain about the syntax."""
    with app.db.write() as session, pytest.raises(InvalidInput, match="must have at most 2,000 characters"):
        webhook_endpoints.add(session, f"https://a.test/{'x' * 2000}", ALL, False, now)


IMPOSSIBLE_URLS = ["https://a.test:abc/", "https://a..test/", f"https://{'a' * 70}.test/"]


@pytest.mark.parametrize("url", IMPOSSIBLE_URLS)
@pytest.mark.once
def test_impossible_hosts_are_refused(app: Application, url: str) -> None:
    with pytest.raises(InvalidInput):
        webhooks.check_url(app.settings, url)


@pytest.mark.parametrize("url", [*IMPOSSIBLE_URLS, "https://xn--/"])
def test_impossible_host_does_not_stop_others(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime, url: str
) -> None:
    """Such a URL may come from an older release. Its event fails, and the other endpoint gets its own."""
    add()
    with app.db.write() as session:
        webhook_endpoints.add(session, url, ALL, False, now - DAY)
    emit(app, now)
    assert webhooks.send_events(app, now) == {"accepted": 1, "failed": 1}
    assert len(receiver.received) == 1
    assert [row.attempts for row in messages(app)] == [1, 1]


def test_private_address_is_refused_when_it_is_sent(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """A name may resolve to a private address later. No request reaches it. Redirects are not followed."""
    add()
    emit(app, now)
    closed = replace(app, settings=app.settings.model_copy(update={"allow_private_sources": ()}))
    assert webhooks.send_events(closed, now) == {"failed": 1}
    assert receiver.received == []
    assert "private address" in messages(app)[0].error
    receiver.status, receiver.headers = 302, {"Location": receiver.url}
    assert webhooks.send_events(app, now + HOUR) == {"failed": 1}
    assert len(receiver.received) == 1


def test_slow_endpoint_does_not_delay_others(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each endpoint has its own queue, and an answer has a time limit."""
    add()
    closed_port = "http://127.0.0.1:1/hook"
    with app.db.write() as session:
        webhook_endpoints.add(session, closed_port, ALL, False, now - DAY)
    emit(app, now, 3)
    assert webhooks.send_events(app, now) == {"accepted": 3, "failed": 1}


def test_events_of_removed_endpoints_and_old_events_are_deleted(
    app: Application, receiver: WebhookReceiver, add: Callable[..., WebhookEndpoint], now: datetime
) -> None:
    """An event that still waits is kept, however old it is."""
    add()
    emit(app, now - 400 * DAY)
    webhooks.send_events(app, now)
    emit(app, now - 400 * DAY)
    maintenance.prune(app, now)
    (waiting,) = messages(app)
    assert waiting.state is WebhookState.PENDING
    with app.db.write() as session:
        webhook_endpoints.remove(session, session.exec(select(WebhookEndpoint)).one())
    assert messages(app) == []


def test_number_of_endpoints_is_limited(app: Application, now: datetime) -> None:
    with app.db.write() as session:
        for number in range(webhook_endpoints.MAX_ENDPOINTS):
            webhook_endpoints.add(session, f"https://a.test/{number}", ALL, False, now)
        with pytest.raises(Conflict):
            webhook_endpoints.add(session, "https://a.test/more", ALL, False, now)
