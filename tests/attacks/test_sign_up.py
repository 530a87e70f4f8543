"""Test abuse of sign-up: no mailbox is flooded, no data overwritten or revealed, and nobody locked out."""

import base64
import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timedelta

import altcha
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlmodel import Session, col, func, select
from starlette.types import Message, Receive, Scope, Send

from app import main, maintenance, pipeline, subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import Conflict
from app.storage import hit_counters
from app.storage.models import Delivery, FormSubmission, JobRun, RateLimit, Subscriber, SubscriberState
from app.subscribers import MatchedReferences, Preferences, SignUp
from app.types import Interest, MailKind, PaperRecord
from app.web.form_throttle import FormThrottle
from app.web.proof_of_work import Challenge
from app.web.visitors import network
from tests.support import factories
from tests.support.mail_server import MailServer

ALICE, BOB = "alice@example.org", "bob@example.org"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WANTED = Preferences(interests=(Interest("robotics"),))
STRANGE = Preferences(interests=(Interest("something else"),))
PER_VISITOR = 20
FORM = {"email": ALICE, "interest": "robotics", "cadence": "daily", "hour": "8", "zone": "UTC"}


@pytest.fixture
def limits(app: Application) -> FormThrottle:
    """Return limits for sign-ups with a minimal proof of work."""
    return FormThrottle(app.db, PER_VISITOR, app.settings.secret_keys, attempts=1)


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """Return a visitor of a service that requires minimal work from the second sign-up on."""
    site = main.create_app(app)
    site.state.form_throttle = FormThrottle(app.db, 1, app.settings.secret_keys, attempts=2)
    with TestClient(site, base_url="https://paperboy.test") as visitor:
        yield visitor


def solve_challenge(proof: str) -> str:
    """Return what the script would send."""
    challenge = altcha.Challenge.from_dict(json.loads(base64.b64decode(proof))["challenge"])
    solution = altcha.solve_challenge(challenge)
    assert solution is not None
    return altcha.Payload(challenge, solution).to_base64()


def requires_work(limits: FormThrottle, ip: str, email: str, now: datetime, proof: str = "") -> Challenge:
    challenge = limits.admit(ip, email, proof, now)
    assert challenge is not None
    return challenge


def proof_on(page: str) -> str:
    field = re.search(r'name="proof" value="([^"]+)"', page)
    assert field is not None
    return field[1]


def mails(session: Session) -> int:
    return session.exec(select(func.count()).select_from(Delivery)).one()


def sign_up_and_confirm(session: Session, email: str, now: datetime) -> int:
    factories.sign_up(session, SignUp(email, WANTED), "", now)
    reader = session.exec(select(Subscriber).where(Subscriber.email == email)).one()
    return subscribers.confirm(session, reader.id or 0, "", now).id or 0


# --- one mailbox


def test_at_most_five_confirmations_in_three_days(app: Application, now: datetime) -> None:
    """It was 72 emails. Each request comes from another network."""
    with app.db.write() as session:
        for hour in range(72):
            factories.sign_up(session, SignUp(ALICE, STRANGE), f"192.0.2.{hour}", now + hour * HOUR)
        assert mails(session) == 5
        for day in range(3, 30, 4):
            subscribers.send_link(session, ALICE, "", now + day * DAY, factories.CONFIRMABLE)
            factories.sign_up(session, SignUp(ALICE, STRANGE), "", now + day * DAY)
        assert mails(session) == 8


def test_declined_address_gets_no_mail_for_ninety_days(app: Application, now: datetime) -> None:
    """It was five emails within an hour. Other spellings of the address are included."""
    spellings = [ALICE, "alice+news@example.org", "alice+x@example.org"]
    with app.db.write() as session:
        request_id = factories.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = session.get_one(Delivery, request_id).subscriber_id
        subscribers.decline(session, alice, now, request_id)
        for hour in range(1, 24 * 89, 24 * 8):
            for email in spellings:
                factories.sign_up(session, SignUp(email, STRANGE), "", now + hour * HOUR)
        assert mails(session) == 1
        assert session.exec(select(Subscriber.state)).all() == [SubscriberState.ERASED]
        subscribers.prune_form_submissions(session, now + 89 * DAY, 7 * DAY)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 89 * DAY) is None
        subscribers.prune_form_submissions(session, now + 91 * DAY, 7 * DAY)
        assert (
            session.exec(select(FormSubmission.id).where(col(FormSubmission.declined_at).is_not(None))).all()
            == []
        )
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 91 * DAY) is not None


def test_decline_can_be_undone_by_its_mailed_link(mail_server: MailServer, client: TestClient) -> None:
    """The link proves ownership of the mailbox. Sign-up responses do not change meanwhile."""
    answers = [client.post("/subscribe", data=FORM)]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    decline = re.search(r"https://paperboy\.test(/decline/\S+)", text)
    confirm = re.search(r"https://paperboy\.test(/confirm/\S+)", text)
    assert decline is not None
    assert confirm is not None
    client.post(decline[1])
    for declined in (client.get(confirm[1]), client.post(confirm[1])):
        assert "You declined this sign-up" in declined.text, "it suggested a newer link, which did not exist"
        assert "Allow sign-ups again" in declined.text

    def sign_up() -> None:
        again = client.post("/subscribe", data=FORM)
        answers.append(
            client.post("/subscribe", data={**FORM, "proof": solve_challenge(proof_on(again.text))})
        )

    sign_up()
    assert len(mail_server.messages) == 1
    assert "Allow sign-ups again" in client.get(decline[1]).text, "the link itself takes it back"
    assert "allowed again" in client.post(declined.url.path, data={"action": "allow"}).text
    sign_up()
    assert len(mail_server.messages) == 2
    assert len({answer.text for answer in answers}) == 1


def test_operator_can_add_a_declined_address(app: Application, now: datetime) -> None:
    """The owner agreed elsewhere, and may sign up again later."""
    with app.db.write() as session:
        request_id = factories.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        subscribers.decline(session, session.get_one(Delivery, request_id).subscriber_id, now, request_id)
        alice = subscribers.add(session, ALICE, WANTED, now)
        subscribers.erase(session, alice, now, suppress=False)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + HOUR) is not None


@pytest.mark.parametrize("former", [True, False], ids=["a former reader", "a stranger"])
def test_decline_after_the_sign_up_expired(app: Application, now: datetime, former: bool) -> None:
    """The link is valid for 30 days, the sign-up for a week; the decline was forgotten."""
    with app.db.write() as session:
        if former:
            subscribers.unsubscribe(
                session, sign_up_and_confirm(session, ALICE, now - 60 * DAY), now - 60 * DAY
            )
        request_id = factories.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = session.get_one(Delivery, request_id).subscriber_id
    maintenance.prune(app, now + 10 * DAY)
    with app.db.write() as session:
        assert subscribers.decline(session, alice, now + 10 * DAY, request_id)
        assert factories.sign_up(session, SignUp(ALICE, STRANGE), "", now + 20 * DAY) is None


def test_active_reader_who_declines_is_told_how_to_unsubscribe(
    mail_server: MailServer, client: TestClient
) -> None:
    """The page said that the address was deleted, but digests continued."""
    client.post("/subscribe", data=FORM)
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    confirm, decline = re.findall(r"https://paperboy\.test(/(?:confirm|decline)/\S+)", text)
    client.post(confirm)
    assert "This sign-up has already been confirmed" in client.post(decline).text


def test_older_sign_up_does_not_resubscribe(app: Application, now: datetime) -> None:
    """After an operator's add and an unsubscription, its link changed preferences and resubscribed."""
    with app.db.write() as session:
        request_id = factories.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = subscribers.add(session, ALICE, WANTED, now)
        subscribers.unsubscribe(session, alice, now)
        with pytest.raises(Conflict):
            subscribers.confirm(session, alice, "", now + HOUR, request_id)


@pytest.mark.once
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (ALICE, "alice+papers@example.org", True),
        ("ada.lovelace@gmail.com", "adalovelace+x@googlemail.com", True),
        ("ada.lovelace@example.org", "adalovelace@example.org", False),
        ("+alice@example.org", "+bob@example.org", False),
        (ALICE, "alice@example.com", False),
    ],
)
def test_spellings_of_one_mailbox_share_its_limits(first: str, second: str, same: bool) -> None:
    """They are normalised only for limits, so both may subscribe."""
    assert (subscribers.mailbox_hash(first) == subscribers.mailbox_hash(second)) is same


@pytest.mark.once
def test_address_tags_from_one_network_are_limited(
    app: Application, limits: FormThrottle, now: datetime
) -> None:
    """494 emails came from one IPv6 /56, and nobody else could sign up for an hour."""
    admitted = 0
    for number in range(494):
        ip, email = f"2001:db8:0:{number % 256:x}::{number:x}", f"alice+{number}@example.org"
        if limits.admit(ip, email, "", now) is None:
            admitted += 1
            with app.db.write() as session:
                factories.sign_up(session, SignUp(email, STRANGE), ip, now)
    with app.db.read() as session:
        assert mails(session) == 2
    assert admitted == 5, "of one mailbox, whatever the tag"
    assert limits.admit("2001:db8:1::1", BOB, "", now) is None


# --- many visitors


@pytest.mark.once
def test_many_people_behind_one_ip_can_sign_up(app: Application, limits: FormThrottle, now: datetime) -> None:
    """300 people share an IP address: all are admitted, some after work; every tenth gets an email."""
    worked = 0
    for number in range(300):
        email, at = f"member{number}@example.org", now + number * timedelta(seconds=10)
        if challenge := limits.admit("192.0.2.1", email, "", at):
            worked += 1
            assert limits.admit("192.0.2.1", email, solve_challenge(challenge.proof), at) is None
        if number % 10 == 9:
            with app.db.write() as session:
                factories.sign_up(session, SignUp(email, WANTED), "192.0.2.1", at)
    assert worked == 280
    with app.db.read() as session:
        recipients = select(Subscriber.email).join(Delivery).where(Delivery.kind == MailKind.CONFIRM)
        assert len(set(session.exec(recipients))) == 30


def test_work_grows_with_the_number_of_sign_ups(app: Application, now: datetime) -> None:
    """It grows to 16 times the minimum, so that it is expensive for robots."""
    limits = FormThrottle(app.db, PER_VISITOR, app.settings.secret_keys, attempts=10)
    for number in range(PER_VISITOR):
        assert limits.admit("192.0.2.1", f"{number}@example.org", "", now) is None
    work = [requires_work(limits, "192.0.2.1", f"x{n}@example.org", now).attempts for n in range(PER_VISITOR)]
    assert work == sorted(work)
    assert (work[0], work[-1]) == (11, 20)


def test_distributed_flood_requires_minimal_work(app: Application, now: datetime) -> None:
    """Nobody is refused, and each visitor gets the easiest challenge."""
    limits = FormThrottle(app.db, 1, app.settings.secret_keys, attempts=2)
    for number in range(25):
        assert limits.admit(f"198.51.100.{number}", f"{number}@example.org", "", now) is None
    challenge = requires_work(limits, "203.0.113.1", ALICE, now)
    assert challenge.attempts == 2
    assert limits.admit("203.0.113.1", ALICE, solve_challenge(challenge.proof), now) is None
    assert limits.admit("203.0.113.2", BOB, "", now + HOUR) is None, "an hour later it is over"


@pytest.mark.once
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:ff::1", True),
        ("2001:db8:0:1::1", "2001:db8:0:100::1", False),
        ("2002:c000:201::1", "2002:c000:202::1", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_limits_are_per_network(first: str, second: str, same: bool) -> None:
    """IPv4 addresses mapped to ::ffff:… all shared one limit."""
    assert (network(first) == network(second)) is same


def test_limits_are_shared_and_persistent(app: Application, now: datetime) -> None:
    """Each process had its own limits and lost them at its end."""
    for number in range(PER_VISITOR):
        other = main.build(app.settings)
        first = FormThrottle(other.db, PER_VISITOR, app.settings.secret_keys)
        assert first.admit("192.0.2.1", f"{number}@example.org", "", now) is None
        other.db.dispose()
    limits = FormThrottle(app.db, PER_VISITOR, app.settings.secret_keys, attempts=2)
    proof = solve_challenge(requires_work(limits, "192.0.2.1", ALICE, now).proof)
    other = main.build(app.settings)
    elsewhere = FormThrottle(other.db, PER_VISITOR, app.settings.secret_keys, attempts=2)
    assert elsewhere.admit("192.0.2.1", ALICE, proof, now) is None
    other.db.dispose()
    assert limits.admit("192.0.2.1", ALICE, proof, now), "solved once, used once, in whatever process"


# --- the challenge


def test_without_scripts_a_wait_replaces_the_work(limits: FormThrottle, now: datetime) -> None:
    """The same form is accepted once, a minute later; sent too early, it keeps its place."""
    for number in range(PER_VISITOR):
        limits.admit("192.0.2.1", f"{number}@example.org", "", now)
    first = requires_work(limits, "192.0.2.1", ALICE, now)
    assert first.pause == 60
    early = requires_work(limits, "192.0.2.1", ALICE, now + timedelta(seconds=20), first.proof)
    assert (early.pause, early.proof) == (40, first.proof)
    ready = now + timedelta(seconds=60)
    assert limits.admit("192.0.2.1", ALICE, first.proof, ready) is None
    assert limits.admit("192.0.2.1", ALICE, first.proof, ready), "only once"
    late = requires_work(limits, "192.0.2.1", BOB, now)
    assert late.pause == 80, "one after the other: ten seconds apart"
    assert limits.admit("192.0.2.1", ALICE, late.proof, now + HOUR / 2), "for Bob alone"
    assert limits.admit("192.0.2.1", BOB, late.proof, now + 0.9 * HOUR), "it has expired"


def test_wait_is_at_most_an_hour(app: Application, limits: FormThrottle, now: datetime) -> None:
    """A visitor who would wait longer needs a script, or returns when the hour is over."""
    with app.db.write() as session:
        session.add(RateLimit(name="visitor 192.0.2.1", hits=PER_VISITOR + 354, expires_at=now + HOUR))
    assert requires_work(limits, "192.0.2.1", BOB, now).pause == 3600
    challenge = requires_work(limits, "192.0.2.1", ALICE, now)
    assert challenge.pause is None
    assert limits.admit("192.0.2.1", ALICE, challenge.proof, now + HOUR / 2) is not None
    assert limits.admit("192.0.2.1", ALICE, solve_challenge(challenge.proof), now) is None


@pytest.mark.once
def test_invalid_proofs_are_refused(app: Application, now: datetime) -> None:
    """Test forged, truncated, deeply nested, huge and wrongly typed ones, and another secret."""
    limits = FormThrottle(app.db, 1, app.settings.secret_keys, attempts=2)
    foreign = FormThrottle(app.db, 1, ("another secret",), attempts=2)
    limits.admit("192.0.2.1", BOB, "", now)
    good = requires_work(limits, "192.0.2.1", ALICE, now).proof
    payload = json.loads(base64.b64decode(solve_challenge(good)))
    easier = json.loads(json.dumps(payload))
    easier["challenge"]["parameters"]["data"]["ready"] = 1
    bad = [
        payload | {"solution": {"counter": 0, "derivedKey": "00"}},
        payload | {"solution": {"counter": [], "derivedKey": {}}},
        payload | {"challenge": []},
        easier,
        {"challenge": {"parameters": {"algorithm": "SCRYPT", "nonce": "", "salt": "", "cost": 2**60}}},
        [], 7, None, "text",
    ]  # fmt: skip
    forged = [base64.b64encode(json.dumps(each).encode()).decode() for each in bad]
    foreign_proof = solve_challenge(requires_work(foreign, "192.0.2.1", ALICE, now).proof)
    for proof in [*forged, foreign_proof, "", "%%%", good[:-8], "A" * 100_000, "W" * 1999, "ü" * 50]:
        assert limits.admit("192.0.2.1", ALICE, proof, now) is not None, proof[:80]


def test_delayed_form_keeps_its_fields(app: Application, client: TestClient) -> None:
    """Interests and the paste are kept, and nothing is stored before it is sent again."""
    client.post("/subscribe", data=FORM)
    form = {**FORM, "email": BOB, "interest": ['"a" & <b>', "second"], "liked": "\nLine one\nLine two"}
    answer = client.post("/subscribe", data=form)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert "wait <strong>60 seconds</strong>" in answer.text
    for value in ("&#34;a&#34; &amp; &lt;b&gt;", "second", "Line one\nLine two", BOB):
        assert f"{value}</textarea>" in answer.text
    with app.db.read() as session:
        assert session.exec(select(func.count()).select_from(FormSubmission)).one() == 1
    link = client.post("/manage", data={"email": BOB})
    assert (link.status_code, 'action="/manage"' in link.text) == (429, True)


# --- nobody is found out


def test_sign_up_runs_the_same_statements_for_every_address(app: Application, now: datetime) -> None:
    """Response times could reveal readers; they once did with an AUC of .69."""
    with app.db.write() as session:
        sign_up_and_confirm(session, "reader@example.org", now)
        unsubscribed = sign_up_and_confirm(session, "gone@example.org", now)
        subscribers.unsubscribe(session, unsubscribed, now)
        suppression.suppress(session, "blocked@example.org", "complained", now)
        asked = factories.sign_up(session, SignUp("declined@example.org", WANTED), "", now)
        subscribers.decline(session, session.get_one(Delivery, asked).subscriber_id, now, asked)
        factories.sign_up(session, SignUp("waiting@example.org", WANTED), "", now)
    # Count only the request's own work. Background tasks send the emails.
    statements: ContextVar[list[str] | None] = ContextVar("statements", default=None)
    before_response: list[tuple[str, ...]] = []
    site = main.create_app(app)

    def note_statement(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        noted = statements.get()
        if noted is not None and not statement.startswith("PRAGMA busy_timeout"):
            noted.append(statement)

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        noted: list[str] = []

        async def note_response(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                before_response.append(tuple(noted))

        statements.set(noted)
        await site(scope, receive, note_response)

    event.listen(app.db.engine, "before_cursor_execute", note_statement)
    names = ("new", "reader", "gone", "blocked", "declined", "waiting", "other")
    with TestClient(watched, base_url="https://paperboy.test") as visitor:
        for path in ("/subscribe", "/manage"):
            for name in names:
                visitor.post(path, data={**FORM, "email": f"{name}@example.org"})
            assert len(before_response) == len(names)
            assert len(set(before_response)) == 1
            assert any("INSERT INTO form_submission" in text for text in before_response[0])
            before_response.clear()


# --- nothing is overwritten


def test_sign_up_by_a_stranger_does_not_change_an_unsubscribed_reader(
    app: Application, now: datetime
) -> None:
    """Interests were replaced immediately, and declining did not restore them."""
    with app.db.write() as session:
        alice = sign_up_and_confirm(session, ALICE, now)
        subscribers.unsubscribe(session, alice, now)
        own = MatchedReferences(own=(PaperRecord(title="Pasted by a HostileServer"),))
        asked = factories.sign_up(session, SignUp(ALICE, STRANGE, own), "203.0.113.9", now + HOUR)
        reader = subscribers.get(session, alice)
        assert reader.state is SubscriberState.UNSUBSCRIBED
        assert subscribers.preferences_of(session, reader) == WANTED
        link = subscribers.send_link(session, ALICE, "", now + 2 * HOUR, factories.CONFIRMABLE)
        assert session.get_one(Delivery, link).kind is MailKind.MANAGE, "the owner still gets their own link"
        subscribers.decline(session, alice, now + 2 * HOUR, asked)
        reader = subscribers.get(session, alice)
        assert reader.state is SubscriberState.UNSUBSCRIBED
        assert subscribers.preferences_of(session, reader) == WANTED
        assert subscribers.feedback_for_ranking(session, [alice]) == {}


def test_confirmation_uses_the_preferences_of_its_mail(
    mail_server: MailServer, app: Application, client: TestClient
) -> None:
    for interest in ("a stranger's interest", "her own interest"):
        client.app.state.form_throttle = FormThrottle(app.db, 9, app.settings.secret_keys)  # type: ignore[attr-defined]
        client.post("/subscribe", data={**FORM, "interest": interest})
    texts = [mail.parsed().get_body(("plain",)).get_content() for mail in mail_server.messages]  # type: ignore[union-attr]
    links = [link for text in texts for link in re.findall(r"https://paperboy\.test(/confirm/\S+)", text)]
    assert len(links) == 2
    assert "a stranger&#39;s interest" in client.get(links[0]).text
    assert "her own interest" in client.get(links[1]).text
    client.post(links[1])
    with app.db.read() as session:
        alice = session.exec(select(Subscriber)).one()
        assert [wish.text for wish in subscribers.preferences_of(session, alice).interests] == [
            "her own interest"
        ]
    assert "You are already subscribed" in client.get(links[0]).text
    assert "what you chose in that sign-up applies" in client.get(links[0]).text
    assert "Welcome. You are subscribed." in client.get(links[1]).text


def test_pending_preferences_expire_after_a_week(app: Application, now: datetime) -> None:
    """They are exported and erased with the reader; hashes and times are kept for the limits for a month."""
    own = MatchedReferences(own=(PaperRecord(title="A Pasted Paper"),))
    with app.db.write() as session:
        for email in (ALICE, BOB):
            factories.sign_up(session, SignUp(email, STRANGE, own), "192.0.2.1", now)
        alice = session.exec(select(Subscriber.id).where(Subscriber.email == ALICE)).one() or 0
        (pending,) = subscribers.export(session, alice, now)["unconfirmed"]
        assert pending["preferences"]["interests"][0]["text"] == "something else"
        assert pending["liked"]["own"][0]["title"] == "A Pasted Paper"
        subscribers.erase(session, alice, now)
        assert subscribers.export(session, alice, now)["unconfirmed"] == []
    maintenance.prune(app, now + 7 * DAY - HOUR)
    assert [bool(row.preferences) for row in rows(app)] == [False, True]
    maintenance.prune(app, now + 7 * DAY + HOUR)
    assert not any(row.preferences or row.liked or row.email or row.visitor for row in rows(app))
    maintenance.prune(app, now + 31 * DAY)
    assert rows(app) == []


def test_unprocessed_sign_up_is_deleted_after_a_day(app: Application, now: datetime) -> None:
    """Its address and network were stored for a week."""
    with app.db.write() as session:
        subscribers.request_sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
    maintenance.prune(app, now + DAY + HOUR)
    assert [(row.email, row.visitor, row.preferences) for row in rows(app)] == [("", "", {})]


def test_export_does_not_reveal_the_number_of_sign_ups(app: Application, now: datetime) -> None:
    """The edition of a confirmation ended with its row id."""
    with app.db.write() as session:
        session.add(FormSubmission(id=4711, kind="link", mailbox="", created_at=now, processed_at=now))
        alice = sign_up_and_confirm(session, ALICE, now)
        assert "4712" not in str(subscribers.export(session, alice, now)["deliveries"])


def rows(app: Application) -> list[FormSubmission]:
    with app.db.read() as session:
        return list(session.exec(select(FormSubmission).order_by(col(FormSubmission.id))))


# --- what a crash leaves


def test_sign_up_left_by_a_crash_is_processed_by_the_job(
    mail_server: MailServer, app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is processed once within a minute; invalid ones do not block the others, and the run counts all."""
    with app.db.write() as session:
        invalid = subscribers.request_sign_up(session, SignUp(BOB, WANTED), "", now)
        subscribers.request_sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
        session.get_one(FormSubmission, invalid).email = ""
        broken = subscribers.request_sign_up(session, SignUp("carol@example.org", WANTED), "192.0.2.2", now)
    process = subscribers.process

    def process_or_fail(
        session: Session, request_id: int, at: datetime, confirmable: timedelta
    ) -> int | None:
        if request_id == broken:
            raise ValueError("carol@example.org")
        return process(session, request_id, at, confirmable)

    monkeypatch.setattr(subscribers, "process", process_or_fail)
    for minute in range(1, 4):
        pipeline.answer_requests(app, now + timedelta(minutes=minute))
    assert [mail.recipient for mail in mail_server.messages] == [ALICE]
    with app.db.read() as session:
        runs = session.exec(select(JobRun).where(JobRun.job == "requests").order_by(col(JobRun.id))).all()
    assert runs[0].counts == {"requests": 3, "sent": 1, "failed": 1}
    assert runs[0].error == f"request {broken}: ValueError", "without the address"


def test_expired_counts_are_deleted(app: Application, now: datetime) -> None:
    """They contain networks of visitors, and are deleted the next night."""
    with app.db.write() as session:
        hit_counters.hit(session, "visitor 192.0.2.1", now, HOUR)
        assert hit_counters.hit(session, "visitor 192.0.2.1", now + HOUR / 2, HOUR) == (2, now + HOUR)
        assert hit_counters.hit(session, "visitor 192.0.2.1", now + HOUR, HOUR) == (1, now + 2 * HOUR)
    maintenance.prune(app, now + DAY)
    with app.db.read() as session:
        assert session.exec(select(RateLimit)).all() == []


def test_sign_up_with_a_real_challenge(app: Application, client: TestClient) -> None:
    """The challenge is solved at once, as the script does, with the real clock."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    response = client.post("/subscribe", data={**FORM, "email": BOB})
    form = {**FORM, "email": BOB, "proof": solve_challenge(proof_on(response.text))}
    assert client.post("/subscribe", data=form).status_code == 200
    assert client.post("/subscribe", data=form).status_code == 429, "a proof admits once"
    assert len(rows(app)) == 2
