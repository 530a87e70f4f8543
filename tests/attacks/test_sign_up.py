"""Strangers type other people's addresses: nobody is flooded, overwritten, found out or locked out."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

import altcha
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlmodel import Session, col, func, select
from starlette.types import Message, Receive, Scope, Send

from app import main, pipeline, subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import Conflict
from app.storage import rate_limits
from app.storage.models import Delivery, FormSubmission, RateLimit, Subscriber, SubscriberState
from app.subscribers import MatchedReferences, Preferences, SignUp
from app.types import Interest, MailKind, PaperRecord
from app.web.proof_of_work import Admission, Challenge
from app.web.security import network
from tests.support.mail_server import MailServer

ALICE, BOB = "alice@example.org", "bob@example.org"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WANTED = Preferences(interests=(Interest("robotics"),))
STRANGE = Preferences(interests=(Interest("something else"),))
PER_VISITOR = 20
FORM = {"email": ALICE, "interest": "robotics", "cadence": "daily", "hour": "8", "zone": "UTC"}


@pytest.fixture
def admission(app: Application) -> Admission:
    """The admission of sign-ups, with hardly any work in a challenge."""
    return Admission(app.db, PER_VISITOR, app.settings.secret_keys, attempts=1)


@pytest.fixture
def client(app: Application) -> Iterator[TestClient]:
    """A visitor of a service that asks for hardly any work, from the second sign-up on."""
    site = main.create_app(app)
    site.state.admission = Admission(app.db, 1, app.settings.secret_keys, attempts=2)
    with TestClient(site, base_url="https://paperboy.test") as visitor:
        yield visitor


def solved(proof: str) -> str:
    """What the script would send back."""
    challenge = altcha.Challenge.from_dict(json.loads(base64.b64decode(proof))["challenge"])
    solution = altcha.solve_challenge(challenge)
    assert solution is not None
    return altcha.Payload(challenge, solution).to_base64()


def asked_for_work(admission: Admission, ip: str, email: str, now: datetime, proof: str = "") -> Challenge:
    challenge = admission.admit(ip, email, proof, now)
    assert challenge is not None
    return challenge


def proof_on(page: str) -> str:
    field = re.search(r'name="proof" value="([^"]+)"', page)
    assert field is not None
    return field[1]


def mails(session: Session) -> int:
    return session.exec(select(func.count()).select_from(Delivery)).one()


def joined(session: Session, email: str, now: datetime) -> int:
    subscribers.sign_up(session, SignUp(email, WANTED), "", now)
    reader = session.exec(select(Subscriber).where(Subscriber.email == email)).one()
    return subscribers.confirm(session, reader.id or 0, "", now).id or 0


# --- one mailbox


def test_a_stranger_who_asks_every_hour_reaches_a_mailbox_five_times_in_three_days(
    app: Application, now: datetime
) -> None:
    """It was 72 times. The stranger comes from another network each time."""
    with app.db.write() as session:
        for hour in range(72):
            subscribers.sign_up(session, SignUp(ALICE, STRANGE), f"192.0.2.{hour}", now + hour * HOUR)
        assert mails(session) == 5
        for day in range(3, 30, 4):
            subscribers.send_link(session, ALICE, "", now + day * DAY)
            subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now + day * DAY)
        assert mails(session) == 8


def test_who_declined_is_left_alone_for_ninety_days(app: Application, now: datetime) -> None:
    """It was five mails within an hour. Another spelling of the address changes nothing."""
    spellings = [ALICE, "alice+news@example.org", "alice+x@example.org"]
    with app.db.write() as session:
        asked = subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = session.get_one(Delivery, asked).subscriber_id
        subscribers.decline(session, alice, now, asked)
        for hour in range(1, 24 * 89, 24 * 8):
            for email in spellings:
                subscribers.sign_up(session, SignUp(email, STRANGE), "", now + hour * HOUR)
        assert mails(session) == 1
        assert session.exec(select(Subscriber.state)).all() == [SubscriberState.ERASED]
        subscribers.prune_form_submissions(session, now + 89 * DAY)
        assert subscribers.sign_up(session, SignUp(ALICE, WANTED), "", now + 89 * DAY) is None
        subscribers.prune_form_submissions(session, now + 91 * DAY)
        assert (
            session.exec(select(FormSubmission.id).where(col(FormSubmission.declined_at).is_not(None))).all()
            == []
        )
        assert subscribers.sign_up(session, SignUp(ALICE, WANTED), "", now + 91 * DAY) is not None


def test_who_declined_may_take_it_back_by_the_link_in_that_mail(
    mail_server: MailServer, client: TestClient
) -> None:
    """The link proves that the mailbox is theirs. The page answers as ever meanwhile."""
    answers = [client.post("/subscribe", data=FORM)]
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    decline = re.search(r"https://paperboy\.test(/decline/\S+)", text)
    assert decline is not None
    client.post(decline[1])

    def sign_up() -> None:
        again = client.post("/subscribe", data=FORM)
        answers.append(client.post("/subscribe", data={**FORM, "proof": solved(proof_on(again.text))}))

    sign_up()
    assert len(mail_server.messages) == 1
    assert "Allow sign-ups again" in client.get(decline[1]).text, "the link itself takes it back"
    assert "allowed again" in client.post(decline[1], data={"action": "allow"}).text
    sign_up()
    assert len(mail_server.messages) == 2
    assert len({answer.text for answer in answers}) == 1


def test_an_operator_may_add_who_declined(app: Application, now: datetime) -> None:
    """They agreed elsewhere, and may sign up by themselves later on."""
    with app.db.write() as session:
        asked = subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        subscribers.decline(session, session.get_one(Delivery, asked).subscriber_id, now, asked)
        alice = subscribers.add(session, ALICE, WANTED, now)
        subscribers.erase(session, alice, now, suppress=False)
        assert subscribers.sign_up(session, SignUp(ALICE, WANTED), "", now + HOUR) is not None


@pytest.mark.parametrize("former", [True, False], ids=["a former reader", "a stranger"])
def test_a_decline_counts_after_the_sign_up_has_ended(app: Application, now: datetime, former: bool) -> None:
    """The link to decline lives 30 days, the sign-up a week: the page promised what was not remembered."""
    with app.db.write() as session:
        if former:
            subscribers.unsubscribe(session, joined(session, ALICE, now - 60 * DAY), now - 60 * DAY)
        asked = subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = session.get_one(Delivery, asked).subscriber_id
    pipeline.prune(app, now + 10 * DAY)
    with app.db.write() as session:
        assert subscribers.decline(session, alice, now + 10 * DAY, asked)
        assert subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now + 20 * DAY) is None


def test_a_reader_who_declines_is_told_how_to_leave(mail_server: MailServer, client: TestClient) -> None:
    """The page said that the address was forgotten, and digests went on."""
    client.post("/subscribe", data=FORM)
    text = mail_server.messages[0].parsed().get_body(("plain",)).get_content()  # type: ignore[union-attr]
    confirm, decline = re.findall(r"https://paperboy\.test(/(?:confirm|decline)/\S+)", text)
    client.post(confirm)
    assert "This sign-up was confirmed" in client.post(decline).text


def test_a_sign_up_from_before_an_operators_add_brings_nobody_back(app: Application, now: datetime) -> None:
    """Its link replaced the preferences of whoever had left since, and made them a reader again."""
    with app.db.write() as session:
        asked = subscribers.sign_up(session, SignUp(ALICE, STRANGE), "", now)
        alice = subscribers.add(session, ALICE, WANTED, now)
        subscribers.unsubscribe(session, alice, now)
        with pytest.raises(Conflict):
            subscribers.confirm(session, alice, "", now + HOUR, asked)


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
    """They are folded for limits alone: both may be readers of their own."""
    assert (subscribers.mailbox_hash(first) == subscribers.mailbox_hash(second)) is same


def test_tags_from_one_network_neither_fill_a_mailbox_nor_close_the_door(
    app: Application, admission: Admission, now: datetime
) -> None:
    """494 mails came from one IPv6 /56, and nobody else could sign up for an hour."""
    admitted = 0
    for number in range(494):
        ip, email = f"2001:db8:0:{number % 256:x}::{number:x}", f"alice+{number}@example.org"
        if admission.admit(ip, email, "", now) is None:
            admitted += 1
            with app.db.write() as session:
                subscribers.sign_up(session, SignUp(email, STRANGE), ip, now)
    with app.db.read() as session:
        assert mails(session) == 2
    assert admitted == 5, "of one mailbox, whatever the tag"
    assert admission.admit("2001:db8:1::1", BOB, "", now) is None


# --- many visitors


def test_a_laboratory_behind_one_address_signs_up_within_the_hour(
    app: Application, admission: Admission, now: datetime
) -> None:
    """300 people, one IP address: all are admitted, the later ones after some work; every tenth is mailed."""
    worked = 0
    for number in range(300):
        email, at = f"member{number}@example.org", now + number * timedelta(seconds=10)
        if challenge := admission.admit("192.0.2.1", email, "", at):
            worked += 1
            assert admission.admit("192.0.2.1", email, solved(challenge.proof), at) is None
        if number % 10 == 9:
            with app.db.write() as session:
                subscribers.sign_up(session, SignUp(email, WANTED), "192.0.2.1", at)
    assert worked == 280
    with app.db.read() as session:
        recipients = select(Subscriber.email).join(Delivery).where(Delivery.kind == MailKind.CONFIRM)
        assert len(set(session.exec(recipients))) == 30


def test_the_work_grows_with_the_flood(app: Application, now: datetime) -> None:
    """Up to 16 times as much: it does not stay cheap for a robot."""
    admission = Admission(app.db, PER_VISITOR, app.settings.secret_keys, attempts=10)
    for number in range(PER_VISITOR):
        assert admission.admit("192.0.2.1", f"{number}@example.org", "", now) is None
    work = [
        asked_for_work(admission, "192.0.2.1", f"x{n}@example.org", now).attempts for n in range(PER_VISITOR)
    ]
    assert work == sorted(work)
    assert (work[0], work[-1]) == (11, 20)


def test_a_flood_from_everywhere_costs_everybody_a_little_work(app: Application, now: datetime) -> None:
    """Nobody is refused, and what is asked of each is the least."""
    admission = Admission(app.db, 1, app.settings.secret_keys, attempts=2)
    for number in range(25):
        assert admission.admit(f"198.51.100.{number}", f"{number}@example.org", "", now) is None
    challenge = asked_for_work(admission, "203.0.113.1", ALICE, now)
    assert challenge.attempts == 2
    assert admission.admit("203.0.113.1", ALICE, solved(challenge.proof), now) is None
    assert admission.admit("203.0.113.2", BOB, "", now + HOUR) is None, "an hour later it is over"


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
def test_one_network_is_one_visitor(first: str, second: str, same: bool) -> None:
    """All visitors whose IPv4 address came as ::ffff:… shared one limit once."""
    assert (network(first) == network(second)) is same


def test_processes_share_their_limits_and_a_restart_keeps_them(app: Application, now: datetime) -> None:
    """Each process had a limit of its own, and forgot it when it ended."""
    for number in range(PER_VISITOR):
        other = main.build(app.settings)
        one = Admission(other.db, PER_VISITOR, app.settings.secret_keys)
        assert one.admit("192.0.2.1", f"{number}@example.org", "", now) is None
        other.db.dispose()
    admission = Admission(app.db, PER_VISITOR, app.settings.secret_keys, attempts=2)
    proof = solved(asked_for_work(admission, "192.0.2.1", ALICE, now).proof)
    other = main.build(app.settings)
    elsewhere = Admission(other.db, PER_VISITOR, app.settings.secret_keys, attempts=2)
    assert elsewhere.admit("192.0.2.1", ALICE, proof, now) is None
    other.db.dispose()
    assert admission.admit("192.0.2.1", ALICE, proof, now), "solved once, used once, in whatever process"


# --- the challenge


def test_without_scripts_a_pause_is_enough(admission: Admission, now: datetime) -> None:
    """The same form is taken a minute later, once; sent too early, it keeps its place."""
    for number in range(PER_VISITOR):
        admission.admit("192.0.2.1", f"{number}@example.org", "", now)
    first = asked_for_work(admission, "192.0.2.1", ALICE, now)
    assert first.pause == 60
    early = asked_for_work(admission, "192.0.2.1", ALICE, now + timedelta(seconds=20), first.proof)
    assert (early.pause, early.proof) == (40, first.proof)
    ready = now + timedelta(seconds=60)
    assert admission.admit("192.0.2.1", ALICE, first.proof, ready) is None
    assert admission.admit("192.0.2.1", ALICE, first.proof, ready), "only once"
    late = asked_for_work(admission, "192.0.2.1", BOB, now)
    assert late.pause == 80, "one after the other: ten seconds apart"
    assert admission.admit("192.0.2.1", ALICE, late.proof, now + HOUR / 2), "for Bob alone"
    assert admission.admit("192.0.2.1", BOB, late.proof, now + 0.9 * HOUR), "it has expired"


def test_a_pause_is_never_longer_than_an_hour(app: Application, admission: Admission, now: datetime) -> None:
    """Who would have to wait longer needs a script, or comes back when the hour is over."""
    with app.db.write() as session:
        session.add(RateLimit(name="visitor 192.0.2.1", hits=PER_VISITOR + 354, expires_at=now + HOUR))
    assert asked_for_work(admission, "192.0.2.1", BOB, now).pause == 3600
    challenge = asked_for_work(admission, "192.0.2.1", ALICE, now)
    assert challenge.pause is None
    assert admission.admit("192.0.2.1", ALICE, challenge.proof, now + HOUR / 2) is not None
    assert admission.admit("192.0.2.1", ALICE, solved(challenge.proof), now) is None


@pytest.mark.once
def test_a_proof_that_is_not_ours_admits_nobody(app: Application, now: datetime) -> None:
    """Forged, cut, deep, huge, of the wrong types, or signed with another secret."""
    admission = Admission(app.db, 1, app.settings.secret_keys, attempts=2)
    foreign = Admission(app.db, 1, ("another secret",), attempts=2)
    admission.admit("192.0.2.1", BOB, "", now)
    good = asked_for_work(admission, "192.0.2.1", ALICE, now).proof
    payload = json.loads(base64.b64decode(solved(good)))
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
    foreign_proof = solved(asked_for_work(foreign, "192.0.2.1", ALICE, now).proof)
    for proof in [*forged, foreign_proof, "", "%%%", good[:-8], "A" * 100_000, "W" * 1999, "ü" * 50]:
        assert admission.admit("192.0.2.1", ALICE, proof, now) is not None, proof[:80]


def test_a_form_that_has_to_wait_comes_back_whole(app: Application, client: TestClient) -> None:
    """Every interest, and what was pasted; nothing is stored before it is sent again."""
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


def test_whatever_is_known_of_an_address_the_same_is_done_before_the_answer(
    app: Application, now: datetime
) -> None:
    """The statements tell nothing, so their time cannot either. AUC .69 told readers from others once."""
    with app.db.write() as session:
        joined(session, "reader@example.org", now)
        gone = joined(session, "gone@example.org", now)
        subscribers.unsubscribe(session, gone, now)
        suppression.suppress(session, "blocked@example.org", "complained", now)
        asked = subscribers.sign_up(session, SignUp("declined@example.org", WANTED), "", now)
        subscribers.decline(session, session.get_one(Delivery, asked).subscriber_id, now, asked)
        subscribers.sign_up(session, SignUp("waiting@example.org", WANTED), "", now)
    heard: list[str] = []
    answered: list[tuple[str, ...]] = []
    site = main.create_app(app)

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        async def note_response(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.append(tuple(heard))

        await site(scope, receive, note_response)

    event.listen(app.db.engine, "before_cursor_execute", lambda _c, _u, text, *_: heard.append(text))
    names = ("new", "reader", "gone", "blocked", "declined", "waiting", "other")
    with TestClient(watched, base_url="https://paperboy.test") as visitor:
        for path in ("/subscribe", "/manage"):
            for name in names:
                heard.clear()
                visitor.post(path, data={**FORM, "email": f"{name}@example.org"})
            assert len(answered) == len(names)
            assert len(set(answered)) == 1
            assert any("INSERT INTO form_submission" in text for text in answered[0])
            answered.clear()


# --- nothing is overwritten


def test_a_stranger_leaves_an_unsubscribed_reader_as_they_were(app: Application, now: datetime) -> None:
    """Their interests were replaced at once, and a decline did not bring them back."""
    with app.db.write() as session:
        alice = joined(session, ALICE, now)
        subscribers.unsubscribe(session, alice, now)
        own = MatchedReferences(own=(PaperRecord(title="Pasted by a Stranger"),))
        asked = subscribers.sign_up(session, SignUp(ALICE, STRANGE, own), "203.0.113.9", now + HOUR)
        reader = subscribers.get(session, alice)
        assert reader.state is SubscriberState.UNSUBSCRIBED
        assert subscribers.preferences_of(session, reader) == WANTED
        link = subscribers.send_link(session, ALICE, "", now + 2 * HOUR)
        assert session.get_one(Delivery, link).kind is MailKind.MANAGE, "the owner still gets their own link"
        subscribers.decline(session, alice, now + 2 * HOUR, asked)
        reader = subscribers.get(session, alice)
        assert reader.state is SubscriberState.UNSUBSCRIBED
        assert subscribers.preferences_of(session, reader) == WANTED
        assert subscribers.feedback_for_ranking(session, [alice]) == {}


def test_the_choices_of_two_sign_ups_never_mix(
    mail_server: MailServer, app: Application, client: TestClient
) -> None:
    """Whoever confirms gets what that very mail was sent for."""
    for interest in ("a stranger's interest", "her own interest"):
        client.app.state.admission = Admission(app.db, 9, app.settings.secret_keys)  # type: ignore[attr-defined]
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
    assert "You are subscribed" in client.get(links[0]).text


def test_choices_wait_a_week_and_are_exported_and_erased(app: Application, now: datetime) -> None:
    """What nobody can confirm any more is deleted; hashes and times stay for the limits, a month."""
    own = MatchedReferences(own=(PaperRecord(title="A Pasted Paper"),))
    with app.db.write() as session:
        for email in (ALICE, BOB):
            subscribers.sign_up(session, SignUp(email, STRANGE, own), "192.0.2.1", now)
        alice = session.exec(select(Subscriber.id).where(Subscriber.email == ALICE)).one() or 0
        (held,) = subscribers.export(session, alice)["unconfirmed"]
        assert held["preferences"]["interests"][0]["text"] == "something else"
        assert held["liked"]["own"][0]["title"] == "A Pasted Paper"
        subscribers.erase(session, alice, now)
        assert subscribers.export(session, alice)["unconfirmed"] == []
    pipeline.prune(app, now + 7 * DAY - HOUR)
    assert [bool(row.preferences) for row in rows(app)] == [False, True]
    pipeline.prune(app, now + 7 * DAY + HOUR)
    assert not any(row.preferences or row.liked or row.email or row.visitor for row in rows(app))
    pipeline.prune(app, now + 31 * DAY)
    assert rows(app) == []


def test_a_form_that_nobody_processed_leaves_no_address(app: Application, now: datetime) -> None:
    """After a day nobody waits for its answer; the address and the visitor stood there for a week."""
    with app.db.write() as session:
        subscribers.request_sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
    pipeline.prune(app, now + DAY + HOUR)
    assert [(row.email, row.visitor, row.preferences) for row in rows(app)] == [("", "", {})]


def test_an_export_does_not_count_the_sign_ups_of_others(app: Application, now: datetime) -> None:
    """The edition of a confirmation ended with the number of its row."""
    with app.db.write() as session:
        session.add(FormSubmission(id=4711, kind="link", mailbox="", created_at=now, processed_at=now))
        alice = joined(session, ALICE, now)
        assert "4712" not in str(subscribers.export(session, alice)["deliveries"])


def rows(app: Application) -> list[FormSubmission]:
    with app.db.read() as session:
        return list(session.exec(select(FormSubmission).order_by(col(FormSubmission.id))))


# --- what a crash leaves


def test_a_form_that_a_crash_left_behind_is_answered_within_the_minute(
    mail_server: MailServer, app: Application, now: datetime
) -> None:
    """Once, however often the job runs; one that cannot be processed holds up nobody."""
    with app.db.write() as session:
        broken = subscribers.request_sign_up(session, SignUp(BOB, WANTED), "", now)
        subscribers.request_sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
        session.get_one(FormSubmission, broken).email = ""
    for minute in range(1, 4):
        pipeline.answer_requests(app, now + timedelta(minutes=minute))
    assert [mail.recipient for mail in mail_server.messages] == [ALICE]


def test_ended_counts_are_deleted(app: Application, now: datetime) -> None:
    """They hold visitors' networks: an hour's counts are gone after the next night."""
    with app.db.write() as session:
        rate_limits.hit(session, "visitor 192.0.2.1", now, HOUR)
        assert rate_limits.hit(session, "visitor 192.0.2.1", now + HOUR / 2, HOUR) == (2, now + HOUR)
        assert rate_limits.hit(session, "visitor 192.0.2.1", now + HOUR, HOUR) == (1, now + 2 * HOUR)
    pipeline.prune(app, now + DAY)
    with app.db.read() as session:
        assert session.exec(select(RateLimit)).all() == []


def test_a_visitor_of_the_real_clock_is_admitted(app: Application, client: TestClient) -> None:
    """Solved at once, as a script does it."""
    assert client.post("/subscribe", data=FORM).status_code == 200
    asked = client.post("/subscribe", data={**FORM, "email": BOB})
    form = {**FORM, "email": BOB, "proof": solved(proof_on(asked.text))}
    assert client.post("/subscribe", data=form).status_code == 200
    assert client.post("/subscribe", data=form).status_code == 429, "a proof admits once"
    assert len(rows(app)) == 2
