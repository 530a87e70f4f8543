"""Test subscribers: sign-up, preferences, unsubscribing and erasure, without revealing known addresses."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlmodel import Session, col, func, select

from app import bounces, maintenance, pipeline, subscribers
from app.application import Application
from app.delivery import ledger, suppression
from app.errors import AddressSuppressed, Conflict, InvalidAddress, InvalidPreference, NotFound
from app.storage.models import Delivery, DeliveryState, Event, FormSubmission, Subscriber, SubscriberState
from app.subscribers import Preferences, SignUp, event_log, mailbox_limits, pausing, repository, signup
from app.types import Cadence, EmptyDigestPolicy, Interest, MailKind
from tests.support import factories, sample_digest
from tests.support.interleaving import before_statement

ALICE, BOB = "alice@example.org", "bob@example.org"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
WANTED = Preferences(
    zone="Europe/Berlin", interests=(Interest("diffusion models"), Interest("robotics", 2.0, 3))
)


def add_confirmed_reader(
    app: Application, now: datetime, email: str = ALICE, preferences: Preferences = WANTED
) -> int:
    """Sign up and confirm a reader, and return the id."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(email, preferences), "192.0.2.1", now)
        reader = session.exec(select(Subscriber).where(Subscriber.email == email)).one()
        return subscribers.confirm(session, reader.id or 0, "192.0.2.2", now).id or 0


def reader_of(app: Application, identity: int) -> Subscriber:
    with app.db.read() as session:
        return subscribers.get(session, identity)


def kinds_of_mail(app: Application) -> list[MailKind]:
    with app.db.read() as session:
        return list(session.exec(select(Delivery.kind).order_by(col(Delivery.id))))


def enqueue_digest(session: Session, identity: int, edition: str, due_at: datetime) -> int:
    delivery_id = ledger.enqueue(
        session,
        subscriber_id=identity,
        kind=MailKind.DIGEST,
        edition=edition,
        due_at=due_at,
        now=due_at,
        digest=sample_digest.digest(edition),
    )
    assert delivery_id is not None
    return delivery_id


# --- preferences


@pytest.mark.parametrize(
    ("preferences", "field"),
    [
        (replace(WANTED, hour=24), "hour"),
        (replace(WANTED, weekday=-1), "weekday"),
        (replace(WANTED, zone="Mars/Olympus_Mons"), "zone"),
        (replace(WANTED, zone="../../etc/passwd"), "zone"),
        (replace(WANTED, max_papers=51), "max_papers"),
        (replace(WANTED, min_papers=11), "min_papers"),
        (replace(WANTED, max_trending=31), "max_trending"),
        (replace(WANTED, max_trending=-1), "max_trending"),
        (replace(WANTED, muted=("fine", "the")), "muted"),
        (replace(WANTED, muted=tuple(f"word {n}" for n in range(51))), "muted"),
        (replace(WANTED, interests=()), "interests"),
        (replace(WANTED, interests=tuple(Interest(f"topic {n}") for n in range(51))), "interests"),
        (replace(WANTED, interests=(Interest("ok"), Interest("x" * 10_000))), "interests.1"),
        (replace(WANTED, interests=(Interest("x" * 300),)), "interests.0"),
        (replace(WANTED, interests=(Interest("?!… — *"),)), "interests.0"),
        (replace(WANTED, interests=(Interest("ok", weight=0),)), "interests.0"),
        (replace(WANTED, interests=(Interest("ok", weight=float("nan")),)), "interests.0"),
        (replace(WANTED, interests=(Interest("ok", quota=0),)), "interests.0"),
    ],
)
def test_an_invalid_preference_names_its_field(preferences: Preferences, field: str) -> None:
    """The form shows the message beside the field."""
    assert list(subscribers.problems(preferences)) == [field]
    with pytest.raises(InvalidPreference) as raised:
        subscribers.check(preferences)
    assert raised.value.field == field


def test_all_problems_are_reported_at_once() -> None:
    preferences = Preferences(hour=99, zone="Nowhere", max_papers=0, interests=(Interest("…"),))
    assert set(subscribers.problems(preferences)) >= {"hour", "zone", "max_papers", "interests.0"}


def test_interests_are_optional_with_trending_papers() -> None:
    assert subscribers.problems(Preferences(when_empty=EmptyDigestPolicy.TRENDING)) == {}


def test_duplicate_interests_are_merged() -> None:
    """The first of two spellings stays in its place."""
    typed = (Interest("Graph  neural networks", 2.0), Interest("robotics"), Interest("graph neural Networks"))
    checked = subscribers.check(replace(WANTED, interests=typed))
    assert checked.interests == (Interest("Graph neural networks", 2.0), Interest("robotics"))
    acronyms = (Interest("CLIP"), Interest("clip"))
    assert subscribers.check(replace(WANTED, interests=acronyms, muted=("RAG", "rag", "Rag"))) == replace(
        WANTED, interests=acronyms, muted=("RAG", "rag")
    )


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        (" Alice@Example.ORG ", "alice@example.org"),
        ("a.b+papers@example.org", "a.b+papers@example.org"),
        ("bob@bücher.example.org", "bob@xn--bcher-kva.example.org"),
    ],
)
def test_addresses_are_normalized(typed: str, address: str) -> None:
    """Capitals do not make a second reader."""
    assert subscribers.normalize_address(typed) == address


def test_longest_local_part_is_accepted() -> None:
    """RFC 5321 allows 64 octets."""
    assert subscribers.normalize_address("a" * 64 + "@example.org").startswith("a" * 64)


@pytest.mark.parametrize(
    "typed",
    ["", "alice", "a@b", "alice@example.org\r\nBcc: eve@example.org", "alice@example.org\n",
     "a\x00@example.org", "Alice <alice@example.org>", "alice@example.org, bob@example.org",
     "a" * 400 + "@example.org", "a" * 65 + "@example.org", "ä" * 33 + "@example.org",
     "alice@localhost", "alice@[127.0.0.1]", "alice@exa mple.org"],
)  # fmt: skip
def test_invalid_addresses_are_refused(typed: str) -> None:
    """None could inject a header into an email."""
    with pytest.raises(InvalidAddress):
        subscribers.normalize_address(typed)


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        ("alice@gmail.con", "alice@gmail.com"),
        (" Alice@Gmial.com", "alice@gmail.com"),
        ("alice@outlok.com", "alice@outlook.com"),
        ("alice@gmail.com", ""),
        ("alice@mail.com", ""),
        ("alice@hotmail.ch", ""),
        ("alice@example.org", ""),
        ("alice", ""),
    ],
)
def test_mistyped_providers_are_corrected(typed: str, suggestion: str) -> None:
    """Other domains of the same and of similar providers are right."""
    assert subscribers.suggest_correction(typed) == suggestion


# --- signing up


def test_sign_up_waits_for_confirmation(app: Application, now: datetime) -> None:
    """Until then one email is sent, and no digest is due."""
    with app.db.write() as session:
        delivery_id = factories.sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
        delivery = session.get_one(Delivery, delivery_id)
        reader = subscribers.get(session, delivery.subscriber_id)
    assert (delivery.kind, delivery.due_at) == (MailKind.CONFIRM, now)
    assert (reader.state, reader.next_due_at, reader.consent_at) == (SubscriberState.PENDING, None, None)


def test_confirming_records_consent_and_the_first_digest(app: Application, now: datetime) -> None:
    """Time, wording and IP address are stored; the first digest is due at the next local 8 o'clock."""
    reader = reader_of(app, add_confirmed_reader(app, now))
    assert reader.state is SubscriberState.ACTIVE
    assert (reader.consent_at, reader.consent_ip) == (now, "192.0.2.2")
    assert reader.consent_version
    assert reader.next_due_at == datetime(2026, 11, 21, 7, tzinfo=UTC)  # 8:00 in Berlin


def test_confirming_twice_changes_nothing(app: Application, now: datetime) -> None:
    """The time of the consent is kept."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.confirm(session, identity, "203.0.113.9", now + HOUR)
    assert (reader_of(app, identity).consent_at, reader_of(app, identity).consent_ip) == (now, "192.0.2.2")


def test_each_sign_up_confirms_its_own_preferences(app: Application, now: datetime) -> None:
    """Two within an hour have an email each; a third waits and cannot be confirmed."""
    newer = replace(WANTED, interests=(Interest("astronomy"),))
    with app.db.write() as session:
        first = factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
        again = factories.sign_up(session, SignUp(ALICE.upper(), newer), "", now + HOUR / 2)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + HOUR / 2) is None
        later = factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 2 * HOUR)
        alice = session.exec(select(Subscriber.id)).one() or 0
        assert subscribers.preferences_of(session, subscribers.get(session, alice)) == Preferences()
        offered = [subscribers.pending_choices(session, alice, mail) for mail in (first, again, later)]
        assert [choices and choices.preferences for choices in offered] == [WANTED, newer, WANTED]
        subscribers.confirm(session, alice, "", now + 3 * HOUR, again)
        assert subscribers.preferences_of(session, subscribers.get(session, alice)) == newer
        assert subscribers.pending_choices(session, alice, first) is None


def test_sign_up_of_a_known_reader_mails_the_preferences_link(app: Application, now: datetime) -> None:
    """The preferences are unchanged, because anyone could have typed the address."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        other = replace(WANTED, interests=(Interest("something else"),))
        delivery_id = factories.sign_up(session, SignUp(ALICE, other), "", now + HOUR)
        assert session.get_one(Delivery, delivery_id).kind is MailKind.MANAGE
        assert subscribers.preferences_of(session, subscribers.get(session, identity)) == WANTED
        assert factories.sign_up(session, SignUp(ALICE, other), "", now + 1.5 * HOUR) is None


def test_stored_interest_with_an_overlong_word_can_be_kept(app: Application, now: datetime) -> None:
    """It was stored by an earlier release. A new one is refused."""
    old, new = Interest("x" * 200), Interest("y" * 200)
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        reader = subscribers.get(session, identity)
        repository.store_preferences(session, reader, replace(WANTED, interests=(old,)))
        later = replace(WANTED, hour=20, interests=(old,))
        subscribers.change(session, identity, later, now)
        subscribers.follow(session, identity, "Ada Lovelace", now)
        stored = subscribers.preferences_of(session, subscribers.get(session, identity))
        assert (stored.hour, stored.interests[0], len(stored.interests)) == (20, old, 2)
        with pytest.raises(InvalidPreference):
            subscribers.change(session, identity, replace(later, interests=(old, new)), now)


def test_stored_muted_words_can_be_kept(app: Application, now: datetime) -> None:
    """An earlier release accepted general words and unclosed quotes."""
    identity = add_confirmed_reader(app, now)
    old = replace(WANTED, muted=("over", '"unclosed'))
    with app.db.write() as session:
        repository.store_preferences(session, subscribers.get(session, identity), old)
        subscribers.mute(session, identity, ["games"], now)
        stored = subscribers.preferences_of(session, subscribers.get(session, identity))
        assert stored.muted == ("over", '"unclosed', "games")
        for text in ("under", '"another'):
            with pytest.raises(InvalidPreference):
                subscribers.mute(session, identity, [text], now)


def test_sign_up_with_choices_of_another_release(app: Application, now: datetime) -> None:
    """A choice that this release does not have is left out."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
        row = session.exec(select(FormSubmission)).one()
        interests = [each | {"colour": "red"} for each in row.preferences["interests"]]
        choices = {"future": 1, "interests": interests, "cadence": "hourly", "when_empty": "poem"}
        row.preferences = row.preferences | choices
        session.add(row)
        session.flush()
        alice = session.exec(select(Subscriber)).one()
        assert subscribers.requested_preferences(session, [alice]) == {alice.id: WANTED}


def test_sign_up_with_unreadable_choices(app: Application, now: datetime) -> None:
    """Only they are left out: the other interests and choices stay."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, replace(WANTED, hour=20)), "", now)
        row = session.exec(select(FormSubmission)).one()
        interests = [{"query": "robots"}, *row.preferences["interests"]]
        row.preferences = row.preferences | {"muted": None, "interests": interests}
        session.add(row)
        session.flush()
        alice = session.exec(select(Subscriber)).one()
        stored = subscribers.requested_preferences(session, [alice])
        assert stored == {alice.id: replace(WANTED, hour=20, muted=())}
        row.preferences = row.preferences | {"interests": None}
        session.add(row)
        session.flush()
        stored = subscribers.requested_preferences(session, [alice])
        assert stored == {alice.id: replace(WANTED, hour=20, muted=(), interests=())}


def test_sign_up_of_a_suppressed_address(app: Application, now: datetime) -> None:
    """It stores no subscriber, but writes something to take as long."""
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complained", now)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now) is None
        assert session.exec(select(Subscriber)).all() == []
        assert session.exec(select(Event.kind)).all() == ["signup_refused"]


def test_signing_up_again_keeps_muted_words(app: Application, now: datetime) -> None:
    """The form has no field for them. Other preferences are replaced."""
    identity = add_confirmed_reader(app, now, preferences=replace(WANTED, hour=20, muted=("crypto",)))
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 2 * HOUR)
        subscribers.confirm(session, identity, "", now + 2 * HOUR)
        stored = subscribers.preferences_of(session, subscribers.get(session, identity))
    assert stored == replace(WANTED, muted=("crypto",))


def test_sign_up_of_an_unsubscribed_reader_needs_confirmation(app: Application, now: datetime) -> None:
    """Nothing changes until they confirm."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        request_id = factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 2 * HOUR)
        assert session.get_one(Delivery, request_id).kind is MailKind.CONFIRM
    assert reader_of(app, identity).state is SubscriberState.UNSUBSCRIBED
    with app.db.write() as session:
        subscribers.decline(session, identity, now + 2 * HOUR)
        with pytest.raises(Conflict):
            subscribers.confirm(session, identity, "", now + 2 * HOUR)
    assert reader_of(app, identity).state is SubscriberState.UNSUBSCRIBED


def test_old_confirmation_does_not_resubscribe(app: Application, now: datetime) -> None:
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        with pytest.raises(Conflict):
            subscribers.confirm(session, identity, "", now)


@pytest.mark.parametrize("reason", ["bounced", "complained", "by hand"])
def test_suppressed_address_cannot_be_confirmed(app: Application, now: datetime, reason: str) -> None:
    """Its owner would get no mail. The sign-up can be confirmed once the suppression is lifted."""
    with app.db.write() as session:
        delivery_id = factories.sign_up(session, SignUp(ALICE, WANTED), "", now) or 0
        identity = subscribers.find(session, ALICE).id or 0
        match reason:
            case "bounced":
                bounces.record_hard(session, delivery_id, identity, "550 5.1.1 No such user", now)
            case "complained":
                bounces.record_complaint(session, delivery_id, identity, "spam", now)
                subscribers.unsubscribe(session, identity, now)
            case _:
                suppression.suppress(session, ALICE, reason, now)
        with pytest.raises(AddressSuppressed):
            subscribers.confirm(session, identity, "", now, delivery_id)
        subscribers.lift_suppression(session, ALICE, now)
        subscribers.confirm(session, identity, "", now, delivery_id)
    assert reader_of(app, identity).state is SubscriberState.ACTIVE


def test_declining_deletes_the_address(app: Application, now: datetime) -> None:
    """A second click does nothing, and after 90 days the address may get email again."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, WANTED), "192.0.2.1", now)
        identity = session.exec(select(Subscriber.id)).one() or 0
        subscribers.decline(session, identity, now)
        subscribers.decline(session, identity, now)
        assert not suppression.is_suppressed(session, ALICE)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 89 * DAY) is None
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now + 91 * DAY) is not None
    assert reader_of(app, identity).state is SubscriberState.ERASED


def test_declining_does_not_affect_an_active_reader(app: Application, now: datetime) -> None:
    """Unsubscribing is another link."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.decline(session, identity, now)
    assert reader_of(app, identity).state is SubscriberState.ACTIVE


def test_unconfirmed_sign_ups_expire(app: Application, now: datetime) -> None:
    """A newer request extends them."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
        factories.sign_up(session, SignUp(BOB, WANTED), "", now)
        later = now + timedelta(days=20)
        factories.sign_up(session, SignUp(BOB, WANTED), "", later)
        assert subscribers.expire_pending(session, later - timedelta(days=14), later) == 1
        remaining = session.exec(select(Subscriber).where(Subscriber.state == SubscriberState.PENDING)).one()
    assert remaining.email == BOB


def test_sign_up_in_a_long_pause_can_be_confirmed_afterwards(app: Application, now: datetime) -> None:
    """Its choices are kept as long as without the pause."""
    with app.db.write() as session:
        ledger.pause(session, "the relay is down", now)
        delivery_id = factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
    resumed_at = now + 2 * factories.CONFIRMABLE
    maintenance.prune(app, resumed_at)
    with app.db.write() as session:
        ledger.resume(session, resumed_at)
    expires_at = resumed_at + factories.CONFIRMABLE
    maintenance.prune(app, expires_at - HOUR)
    with app.db.write() as session:
        session.get_one(Delivery, delivery_id).next_attempt_at = None  # it was sent
        reader = subscribers.find(session, ALICE).id or 0
        choices = subscribers.pending_choices(session, reader, delivery_id)
        assert choices
        assert choices.preferences == WANTED
    maintenance.prune(app, expires_at + DAY)
    with app.db.read() as session:
        assert subscribers.pending_choices(session, reader, delivery_id) is None


def test_sign_ups_expire_in_batches(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other transactions need not wait until all have ended."""
    monkeypatch.setattr(signup, "EXPIRY_BATCH", 2)
    with app.db.write() as session:
        for number in range(5):
            factories.sign_up(session, SignUp(f"bot{number}@example.org", WANTED), "", now)
    with app.db.write() as session:
        ended = [subscribers.expire_pending(session, now + HOUR, now + HOUR) for _ in range(4)]
    assert ended == [2, 2, 1, 0]


@pytest.mark.postgres
@pytest.mark.parametrize("statement", ["FOR UPDATE", "= ANY"])
def test_expired_sign_up_is_repeated_meanwhile(app: Application, now: datetime, statement: str) -> None:
    """A repeated sign-up is kept, or it creates a new subscriber."""
    later = now + 30 * DAY
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
    mails = []

    def sign_up_again() -> None:
        with app.db.write() as session:
            mails.append(factories.sign_up(session, SignUp(ALICE, WANTED), "", later))

    with before_statement(app.db.engine, statement, sign_up_again), app.db.write() as session:
        subscribers.expire_pending(session, later - DAY, later)
    with app.db.read() as session:
        confirmation = session.get_one(Delivery, mails[-1])
        assert confirmation.state is DeliveryState.PENDING
        assert subscribers.get(session, confirmation.subscriber_id).email == ALICE


def test_sign_up_during_an_invitation(app: Application, now: datetime) -> None:
    """The form waits for the invitation. Without the lock, the form would create the subscriber first."""
    with app.db.write() as session:
        form = subscribers.request_sign_up(session, SignUp(ALICE, WANTED), "", now)

    def answer() -> None:
        with app.db.write() as session:
            subscribers.process(session, form, now, factories.CONFIRMABLE)

    with before_statement(app.db.engine, "INSERT INTO subscriber ", answer), app.db.write() as session:
        identity = subscribers.invite(session, ALICE, WANTED, now, factories.CONFIRMABLE)
    with app.db.read() as session:
        assert subscribers.find(session, ALICE).id == identity


def bounce_confirmation(session: Session, identity: int, now: datetime) -> None:
    confirmation = session.exec(select(Delivery.id).where(Delivery.subscriber_id == identity)).one()
    bounces.record_hard(session, confirmation or 0, identity, "550 5.1.1 unknown", now)


@pytest.mark.parametrize("end", [bounce_confirmation, subscribers.unsubscribe])
def test_an_unconfirmed_address_is_erased_after_it_bounced_or_unsubscribed(
    app: Application, now: datetime, end: Callable[[Session, int, datetime], object]
) -> None:
    """Such rows were kept for ever. A confirmed subscriber stays, in the same state."""
    later, confirmed = now + 30 * DAY, add_confirmed_reader(app, now)
    with app.db.write() as session:
        factories.sign_up(session, SignUp(BOB, WANTED), "", now)
        bob = subscribers.find(session, BOB).id or 0
        for identity in (bob, confirmed):
            end(session, identity, now)
    with app.db.write() as session:
        assert subscribers.expire_pending(session, now, later) == 0
        assert subscribers.expire_pending(session, now + timedelta(seconds=1), later) == 1
    assert reader_of(app, bob).state is SubscriberState.ERASED
    assert reader_of(app, bob).email != BOB
    assert reader_of(app, confirmed).email == ALICE
    with app.db.read() as session:
        assert suppression.is_suppressed(session, BOB) == (end is bounce_confirmation)


def test_operator_adds_a_subscriber(app: Application, now: datetime) -> None:
    """They are active immediately without an email. Existing and suppressed addresses are refused."""
    with app.db.write() as session:
        identity = subscribers.add(session, ALICE, WANTED, now)
    assert reader_of(app, identity).state is SubscriberState.ACTIVE
    assert reader_of(app, identity).consent_version == "given to the operator"
    assert kinds_of_mail(app) == []
    with app.db.write() as session:
        suppression.suppress(session, BOB, "complained", now)
    for email in (ALICE, BOB):
        with pytest.raises(Conflict), app.db.write() as session:
            subscribers.add(session, email, WANTED, now)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (SubscriberState.PENDING, MailKind.CONFIRM),
        (SubscriberState.ACTIVE, MailKind.MANAGE),
        (SubscriberState.PAUSED, MailKind.MANAGE),
        (SubscriberState.UNSUBSCRIBED, MailKind.MANAGE),
    ],
)
def test_link_is_mailed_to_known_readers(
    app: Application, now: datetime, state: SubscriberState, kind: MailKind
) -> None:
    """Unsubscribed readers may still view, export and erase their data."""
    with app.db.write() as session:
        identity = subscribers.add(session, ALICE, WANTED, now)
        subscribers.get(session, identity).state = state
        delivery_id = subscribers.send_link(session, ALICE, "", now, factories.CONFIRMABLE)
        assert session.get_one(Delivery, delivery_id).kind is kind
        assert subscribers.send_link(session, ALICE, "", now + HOUR / 2, factories.CONFIRMABLE) is None
        assert subscribers.send_link(session, BOB, "", now, factories.CONFIRMABLE) is None


def test_links_sent_by_a_clock_that_was_ahead_do_not_count(app: Application, now: datetime) -> None:
    """They prevented others until that date."""
    with app.db.write() as session:
        subscribers.add(session, ALICE, WANTED, now)
        for hours in (0, 2, 4):
            at = now + 30 * DAY + hours * HOUR
            assert subscribers.send_link(session, ALICE, "", at, factories.CONFIRMABLE) is not None
        assert subscribers.send_link(session, ALICE, "", now, factories.CONFIRMABLE) is not None
        assert subscribers.send_link(session, ALICE, "", now, factories.CONFIRMABLE) is None


def test_sign_ups_do_not_prevent_a_link(app: Application, now: datetime) -> None:
    """Two sign-ups within an hour, even by a stranger, blocked it. The history says why no link was sent."""
    with app.db.write() as session:
        factories.sign_up(session, SignUp(ALICE, WANTED), "", now)
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        assert subscribers.send_link(session, ALICE, "", now, factories.CONFIRMABLE) is not None
        assert subscribers.send_link(session, ALICE, "", now, factories.CONFIRMABLE) is None
        for hours, is_sent in ((2, True), (2.5, False), (4, True), (6, False)):
            link = subscribers.send_link(session, ALICE, "", now + hours * HOUR, factories.CONFIRMABLE)
            assert (link is not None) is is_sent
        refused = [each.detail for each in event_log.events(session, identity, 99) if "refused" in each.kind]
    too_many = "too many emails were requested"
    assert refused == [too_many, "an earlier email was sent less than an hour ago", too_many]
    assert kinds_of_mail(app) == [MailKind.CONFIRM] * 2 + [MailKind.MANAGE] * 3


@pytest.mark.once
def test_strangers_cannot_send_more_by_mixing_forms(app: Application, now: datetime) -> None:
    """Sign-ups and requests for a link to the address of a former subscriber share one limit."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
    for day in range(30):
        with app.db.write() as session:
            for hour in range(24):
                at = now + day * DAY + hour * HOUR
                subscribers.send_link(session, ALICE, "", at, factories.CONFIRMABLE)
                factories.sign_up(session, SignUp(ALICE, WANTED), "", at + HOUR / 2)
    assert len(kinds_of_mail(app)) == max(most for _, most in mailbox_limits.MAX_MAILS)


@pytest.mark.parametrize("days", [1, 30])
def test_sign_ups_and_links_share_one_limit(app: Application, now: datetime, days: int) -> None:
    """Strangers first use up the limit with other spellings of an address, and then request its link.

    The last emails are reserved for the link.
    """
    with app.db.write() as session:
        subscribers.add(session, "alice@gmail.com", WANTED, now)
        step = timedelta(days=days) / 48
        for number in range(48):
            at = now + number * step
            if number < 24:
                factories.sign_up(session, SignUp(f"a.lice+{number}@gmail.com", WANTED), "", at)
            else:
                subscribers.send_link(session, "alice@gmail.com", "", at, factories.CONFIRMABLE)
    most, with_link = (
        dict(limits)[timedelta(days=days)]
        for limits in (mailbox_limits.MAX_MAILS, mailbox_limits.MAX_MAILS_WITH_LINK)
    )
    assert kinds_of_mail(app) == [MailKind.CONFIRM] * most + [MailKind.MANAGE] * (with_link - most)


def test_concurrent_sign_ups_create_one_reader(app: Application, now: datetime) -> None:
    """Neither thread fails, and each sign-up has its own email."""
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def sign_up(email: str) -> None:
        try:
            start.wait()
            with app.db.write() as session:
                factories.sign_up(session, SignUp(email, WANTED), "", now)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=sign_up, args=(email,)) for email in (ALICE, ALICE, BOB, BOB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with app.db.read() as session:
        assert session.exec(select(func.count()).select_from(Subscriber)).one() == 2
    assert kinds_of_mail(app) == [MailKind.CONFIRM] * 4


# --- changing preferences


def test_interests_keep_their_order_for_each_reader(app: Application, now: datetime) -> None:
    """Readers with the same interest share only its text."""
    alice = add_confirmed_reader(app, now)
    bob = add_confirmed_reader(app, now, BOB, replace(WANTED, interests=(Interest("robotics"),)))
    carol = add_confirmed_reader(
        app, now, "carol@example.org", Preferences(when_empty=EmptyDigestPolicy.TRENDING)
    )
    with app.db.read() as session:
        assert subscribers.interests_of(session, [alice, bob, carol]) == {
            alice: WANTED.interests,
            bob: (Interest("robotics"),),
        }


def test_change_replaces_the_preferences(app: Application, now: datetime) -> None:
    """The next digest is rescheduled."""
    identity = add_confirmed_reader(app, now)
    newer = Preferences(
        cadence=Cadence.WEEKLY, weekday=2, hour=18, zone="America/New_York", min_papers=2, max_papers=5,
        when_empty=EmptyDigestPolicy.TRENDING, interests=(Interest("robotics"), Interest("astronomy")),
    )  # fmt: skip
    with app.db.write() as session:
        subscribers.change(session, identity, newer, now)
    with app.db.read() as session:
        reader = subscribers.get(session, identity)
        assert subscribers.preferences_of(session, reader) == newer
    assert reader.next_due_at == datetime(2026, 11, 25, 23, tzinfo=UTC)


def test_event_of_a_change_names_the_changed_preferences(app: Application, now: datetime) -> None:
    """It has no values. Saving the same preferences again is no change."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        for preferences in (replace(WANTED, hour=18, muted=("secret",)), WANTED, WANTED):
            subscribers.change(session, identity, preferences, now)
        subscribers.follow(session, identity, "Ada Lovelace", now)
    with app.db.read() as session:
        exported = subscribers.export(session, identity, now)["events"]
    details = [each["detail"] for each in exported if each["kind"] == "changed"]
    assert details == ["hour, muted", "hour, muted", "interests"]


def test_follow_and_unfollow_an_author(app: Application, now: datetime) -> None:
    """It is an interest. Following twice changes nothing, and beyond the limit it is an error."""
    alice = add_confirmed_reader(app, now)
    interest = Interest('author:"Ada Lovelace"', 3.0, 2)
    with app.db.write() as session:
        subscribers.change(session, alice, replace(WANTED, interests=(interest, Interest("robots"))), now)
        for name in ("Li", "ada lovelace", "Li"):
            subscribers.follow(session, alice, name, now)
        followed = subscribers.preferences_of(session, subscribers.get(session, alice))
        assert followed.interests == (interest, Interest("robots"), Interest("author:Li"))
        subscribers.unfollow(session, alice, "ADA Lovelace", now)
        subscribers.unfollow(session, alice, "Nobody", now)
        followed = subscribers.preferences_of(session, subscribers.get(session, alice))
        assert followed.interests == (Interest("robots"), Interest("author:Li"))
        full = replace(WANTED, interests=tuple(Interest(f"topic {n}") for n in range(50)))
        subscribers.change(session, alice, full, now)
        with pytest.raises(InvalidPreference, match="at most 50"):
            subscribers.follow(session, alice, "Ada Lovelace", now)


def test_a_reader_of_trending_papers_keeps_them_when_following_an_author(
    app: Application, now: datetime
) -> None:
    """Unfollowing the author restores the former preferences."""
    alice = add_confirmed_reader(
        app, now, preferences=Preferences(when_empty=EmptyDigestPolicy.TRENDING, max_papers=7)
    )
    with app.db.write() as session:
        subscribers.follow(session, alice, "Ada Lovelace", now)
        preferences = subscribers.preferences_of(session, subscribers.get(session, alice))
        assert (preferences.max_trending, preferences.when_empty) == (7, EmptyDigestPolicy.TRENDING)
        subscribers.unfollow(session, alice, "Ada Lovelace", now)
        assert subscribers.preferences_of(session, subscribers.get(session, alice)).interests == ()


def test_mute_and_unmute_a_word(app: Application, now: datetime) -> None:
    """Any spelling counts. A text that cannot be muted changes nothing."""
    alice = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.mute(session, alice, ["Blockchain", "cat:cs.CR"], now)
        subscribers.mute(session, alice, [" blockchain "], now)
        assert subscribers.get(session, alice).muted == ["Blockchain", "cat:cs.CR"]
        with pytest.raises(InvalidPreference, match="cannot be muted"):
            subscribers.mute(session, alice, ["fine", "the"], now)
    with app.db.write() as session:
        subscribers.unmute(session, alice, [" BLOCKCHAIN", "nothing"], now)
        assert subscribers.preferences_of(session, subscribers.get(session, alice)).muted == ("cat:cs.CR",)


def test_muted_acronyms_and_words_are_distinct(app: Application, now: datetime) -> None:
    """ "CLIP" does not mute papers on clips."""
    alice = add_confirmed_reader(app, now)
    with app.db.write() as session:
        for text in ("CLIP", "clip", "CLIP", "Clip", "cat:CS.CL", "cat:cs.cl", "BIG DATA", "big data"):
            subscribers.mute(session, alice, [text], now)
        assert subscribers.get(session, alice).muted == ["CLIP", "clip", "cat:CS.CL", "BIG DATA"]
        subscribers.unmute(session, alice, ["Clip"], now)
        assert subscribers.get(session, alice).muted == ["CLIP", "cat:CS.CL", "BIG DATA"]
        subscribers.unmute(session, alice, ["clip", "big data"], now)
        assert subscribers.get(session, alice).muted == ["cat:CS.CL"]


def test_invalid_change_changes_nothing(app: Application, now: datetime) -> None:
    identity = add_confirmed_reader(app, now)
    with pytest.raises(InvalidPreference), app.db.write() as session:
        subscribers.change(session, identity, replace(WANTED, zone="Nowhere"), now)
    with app.db.read() as session:
        assert subscribers.preferences_of(session, subscribers.get(session, identity)) == WANTED


@pytest.mark.parametrize(
    ("newer", "due"),
    [
        (replace(WANTED, hour=18), datetime(2026, 11, 21, 17, tzinfo=UTC)),
        (replace(WANTED, zone="Pacific/Honolulu"), datetime(2026, 11, 21, 18, tzinfo=UTC)),
        (replace(WANTED, zone="Pacific/Auckland"), datetime(2026, 11, 20, 19, tzinfo=UTC)),
        (replace(WANTED, cadence=Cadence.WEEKLY, weekday=4, hour=23), datetime(2026, 11, 27, 22, tzinfo=UTC)),
    ],
    ids=["a later hour", "a day behind", "a day ahead", "weekly from today"],
)
def test_change_causes_no_second_digest_on_a_local_day(
    app: Application, now: datetime, newer: Preferences, due: datetime
) -> None:
    """After Friday's digest in Berlin, the next one is on the next local day of the new zone."""
    identity = add_confirmed_reader(app, now - timedelta(days=2))
    with app.db.write() as session:
        enqueue_digest(session, identity, "2026-11-20", datetime(2026, 11, 20, 7, tzinfo=UTC))
        subscribers.change(session, identity, newer, now)
    assert reader_of(app, identity).next_due_at == due


@pytest.mark.parametrize(
    ("sent", "due", "newer", "kept", "scheduled"),
    [
        # Both times are on Friday in Tokyo.
        (
            "2026-11-19T23:00",
            "2026-11-20T08:00",
            {"zone": "Asia/Tokyo"},
            "2026-11-20T23:00",
            "2026-11-20T23:00",
        ),
        (
            "2026-11-19T08:00",
            "2026-11-20T08:00",
            {"zone": "Asia/Tokyo"},
            "2026-11-20T08:00",
            "2026-11-20T23:00",
        ),
        # In Berlin, 02:00 occurs twice on this day: at 00:00 and 01:00 UTC.
        (
            "2026-10-24T00:00",
            "2026-10-25T00:00",
            {"zone": "Europe/Berlin", "hour": 2},
            "2026-10-25T00:00",
            "2026-10-25T00:00",
        ),
    ],
    ids=["a day with a digest", "a day without", "end of daylight saving time"],
)
def test_due_digest_after_a_change(
    app: Application, sent: str, due: str, newer: dict[str, Any], kept: str, scheduled: str
) -> None:
    """It stays due, unless its local day already has a digest. The schedule applies from then on."""
    at = datetime.fromisoformat(f"{due}Z")
    with app.db.write() as session:
        identity = factories.add_subscriber(session, ALICE, ["robotics"], at)
        enqueue_digest(session, identity, sent[:10], datetime.fromisoformat(f"{sent}Z"))
        before = subscribers.preferences_of(session, subscribers.get(session, identity))
        subscribers.change(session, identity, replace(before, **newer), at + timedelta(minutes=30))
    reader = reader_of(app, identity)
    assert (reader.next_due_at, reader.due_since) == (
        datetime.fromisoformat(f"{kept}Z"),
        datetime.fromisoformat(f"{scheduled}Z"),
    )


def test_pause_until_a_day(app: Application, now: datetime) -> None:
    """No digest is due before that day."""
    identity, until = add_confirmed_reader(app, now), now + timedelta(days=7)
    with app.db.write() as session:
        subscribers.pause(session, identity, until, now)
        subscribers.pause(session, identity, until, now)
        assert subscribers.end_expired_pauses(session, until - HOUR) == 0
    assert reader_of(app, identity).next_due_at is None
    with app.db.write() as session:
        assert subscribers.end_expired_pauses(session, until) == 1
    reader = reader_of(app, identity)
    assert (reader.state, reader.next_due_at) == (
        SubscriberState.ACTIVE,
        datetime(2026, 11, 28, 7, tzinfo=UTC),
    )


def test_a_pause_ends_on_the_same_day_in_another_zone(app: Application, now: datetime) -> None:
    """It lasts until midnight in the new zone."""
    auckland = replace(WANTED, zone="Pacific/Auckland")
    identity = add_confirmed_reader(app, now, preferences=auckland)
    with app.db.write() as session:
        until = datetime(2026, 12, 10, tzinfo=ZoneInfo("Pacific/Auckland"))
        subscribers.pause(session, identity, until, now)
        subscribers.change(session, identity, replace(auckland, zone="America/Los_Angeles"), now)
    assert reader_of(app, identity).paused_until == datetime(2026, 12, 10, 8, tzinfo=UTC)


@pytest.mark.parametrize("end", [subscribers.end_expired_pauses, None], ids=["job", "resumed by hand"])
@pytest.mark.parametrize(
    ("preferences", "late", "due"),
    [
        ({"hour": 0}, timedelta(seconds=20), "2026-11-26T00:00"),
        ({"hour": 8}, timedelta(seconds=20), "2026-11-26T08:00"),
        ({"hour": 8}, 9 * HOUR, "2026-11-26T08:00"),
        ({"hour": 0, "cadence": Cadence.WEEKLY, "weekday": 3}, timedelta(seconds=20), "2026-11-26T00:00"),
        ({"hour": 8, "cadence": Cadence.WEEKLY, "weekday": 3}, 9 * HOUR, "2026-11-26T08:00"),
        ({"hour": 8, "cadence": Cadence.WEEKLY, "weekday": 2}, 9 * HOUR, "2026-12-02T08:00"),
    ],
    ids=["midnight", "later", "after an outage", "weekly", "weekly after an outage", "another weekday"],
)
def test_digest_on_the_day_a_pause_ends(
    app: Application, now: datetime, end: Any, preferences: dict[str, Any], late: timedelta, due: str
) -> None:
    """It is due even if the job that ends the pause runs after the hour."""
    until = datetime(2026, 11, 26, tzinfo=UTC)  # a Thursday
    identity = add_confirmed_reader(app, now, preferences=replace(WANTED, zone="UTC", **preferences))
    with app.db.write() as session:
        subscribers.pause(session, identity, until, now)
    with app.db.write() as session:
        if end:
            assert end(session, until + late) == 1
        else:
            subscribers.resume(session, identity, until + late)
    assert reader_of(app, identity).next_due_at == datetime.fromisoformat(f"{due}Z")


def test_pauses_end_in_batches(app: Application, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning ends all of them in several transactions, so that visitors do not wait for SQLite's lock."""
    monkeypatch.setattr(pausing, "BATCH_SIZE", 2)
    until = now + 7 * DAY
    with app.db.write() as session:
        for number in range(5):
            identity = factories.add_subscriber(session, f"reader{number}@example.org", ["robots"], now)
            subscribers.pause(session, identity, until, now)
    with app.db.write() as session:
        assert subscribers.end_expired_pauses(session, until) == 2
    pipeline.plan(app, until)
    with app.db.read() as session:
        states = set(session.exec(select(Subscriber.state)))
    assert states == {SubscriberState.ACTIVE}


def test_pause_without_an_end(app: Application, now: datetime) -> None:
    """Only the reader ends it."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.pause(session, identity, None, now)
        assert subscribers.end_expired_pauses(session, now + timedelta(days=5000)) == 0
        subscribers.resume(session, identity, now)
        subscribers.resume(session, identity, now)
    assert reader_of(app, identity).state is SubscriberState.ACTIVE


def test_the_end_of_a_pause_is_limited(app: Application, now: datetime) -> None:
    """Past days and days over a year away are refused. Only an active subscription can pause."""
    identity = add_confirmed_reader(app, now)
    for until in (now, now - HOUR, now + timedelta(days=400)):
        with pytest.raises(InvalidPreference), app.db.write() as session:
            subscribers.pause(session, identity, until, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        with pytest.raises(Conflict):
            subscribers.pause(session, identity, now + HOUR, now)


def test_resubscribing_records_a_new_consent(app: Application, now: datetime) -> None:
    """Preferences are kept. A suppressed address cannot resubscribe."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        subscribers.resubscribe(session, identity, "203.0.113.7", now + HOUR)
        subscribers.resubscribe(session, identity, "203.0.113.8", now + 2 * HOUR)
    reader = reader_of(app, identity)
    assert (reader.state, reader.consent_at) == (SubscriberState.ACTIVE, now + HOUR)
    assert (reader.consent_ip, reader.ended_at) == ("203.0.113.7", None)
    with app.db.write() as session:
        subscribers.unsubscribe(session, identity, now)
        suppression.suppress(session, ALICE, "complained", now)
        with pytest.raises(AddressSuppressed):
            subscribers.resubscribe(session, identity, "", now)


# --- leaving


def test_unsubscribing_withholds_planned_digests(app: Application, now: datetime) -> None:
    """Unsubscribing twice changes nothing."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        waiting = enqueue_digest(session, identity, "2026-11-20", now)
        subscribers.unsubscribe(session, identity, now)
        subscribers.unsubscribe(session, identity, now + HOUR)
    assert pipeline.send_now(app, now, [waiting]) == {"skipped": 1}
    reader = reader_of(app, identity)
    assert (reader.state, reader.ended_at, reader.next_due_at) == (SubscriberState.UNSUBSCRIBED, now, None)


def test_export_contents(app: Application, now: datetime) -> None:
    """It is JSON with the preferences and the digests sent, without internal fields."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        enqueue_digest(session, identity, "2026-11-20", now)
    with app.db.read() as session:
        exported = json.loads(json.dumps(subscribers.export(session, identity, now)))
    assert exported["subscriber"]["email"] == ALICE
    assert exported["subscriber"]["consent_ip"] == "192.0.2.2"
    assert [item["text"] for item in exported["interests"]] == ["diffusion models", "robotics"]
    assert exported["deliveries"][1]["digest"]["sections"][0]["picks"][0]["title"].startswith(
        "Read or Retrieve"
    )
    assert [item["kind"] for item in exported["events"]] == ["signed_up", "confirmed"]
    assert not {"link_epoch", "lease_owner"} & {*exported["subscriber"], *exported["deliveries"][0]}


def test_erasure_is_requested_by_mail(app: Application, now: datetime) -> None:
    """The request erases nothing, and a second one sends no further mail."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        assert subscribers.request_erasure(session, identity, now) is not None
        assert subscribers.request_erasure(session, identity, now + HOUR / 2) is None
    assert reader_of(app, identity).email == ALICE
    assert kinds_of_mail(app) == [MailKind.CONFIRM, MailKind.ERASE]


def test_suppressed_address_cannot_request_mail(app: Application, now: datetime) -> None:
    """The page must not promise a link that will not come."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        suppression.suppress(session, ALICE, "complained", now)
        for request in (
            subscribers.request_export,
            subscribers.request_erasure,
            subscribers.new_links,
            lambda *call: subscribers.request_change(call[0], call[1], BOB, call[2]),
        ):
            with pytest.raises(AddressSuppressed):
                request(session, identity, now)
    assert kinds_of_mail(app) == [MailKind.CONFIRM]


def test_erasure_removes_personal_data(app: Application, now: datetime) -> None:
    """No address, interest, digest or IP address stays; the number of emails does."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        enqueue_digest(session, identity, "2026-11-20", now)
        subscribers.erase(session, identity, now)
        subscribers.erase(session, identity, now + HOUR)
    with app.db.read() as session:
        exported = json.dumps(subscribers.export(session, identity, now))
        assert suppression.is_suppressed(session, ALICE)
        assert session.exec(select(func.count()).select_from(Delivery)).one() == 2
    for trace in ("alice", "192.0.2", "Berlin", "diffusion", "Read or Retrieve"):
        assert trace not in exported
    reader = reader_of(app, identity)
    assert (reader.state, reader.link_epoch) == (SubscriberState.ERASED, 1)


def test_an_erased_reader_without_suppression_may_sign_up_again(app: Application, now: datetime) -> None:
    """Without the hash the address is unknown."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.erase(session, identity, now, suppress=False)
        assert factories.sign_up(session, SignUp(ALICE, WANTED), "", now) is not None
    assert reader_of(app, identity).state is SubscriberState.ERASED


def test_an_erased_reader_stays_erased(app: Application, now: datetime) -> None:
    """Unsubscribing changes nothing, and no other action is possible."""
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.erase(session, identity, now)
        subscribers.unsubscribe(session, identity, now)
        for late in (
            lambda: subscribers.change(session, identity, WANTED, now),
            lambda: subscribers.pause(session, identity, None, now),
            lambda: subscribers.confirm(session, identity, "", now),
            lambda: subscribers.request_erasure(session, identity, now),
        ):
            with pytest.raises(Conflict):
                late()
    assert reader_of(app, identity).state is SubscriberState.ERASED


def test_an_erased_reader_is_found_by_the_listed_address(app: Application, now: datetime) -> None:
    identity = add_confirmed_reader(app, now)
    with app.db.write() as session:
        subscribers.erase(session, identity, now)
        assert subscribers.find(session, f"erased-{identity}@erased.invalid").id == identity


def test_an_unknown_id_is_not_found(app: Application) -> None:
    with app.db.read() as session, pytest.raises(NotFound):
        subscribers.get(session, 4711)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("", ["a_b@example.org", "axb@lab.test", "bob@xn--mller-kva.test", "jürgen@lab.test"]),
        (" EXAMPLE", ["a_b@example.org"]),
        ("a_b", ["a_b@example.org"]),
        ("bob@Müller.test", ["bob@xn--mller-kva.test"]),
        ("@müller.te", ["bob@xn--mller-kva.test"]),
        ("müller", ["bob@xn--mller-kva.test"]),
        ("xn--mller", ["bob@xn--mller-kva.test"]),
        ("jürgen", ["jürgen@lab.test"]),
        ("@ü ü", []),
    ],
)
def test_subscribers_are_found_by_a_part_of_their_address(
    app: Application, now: datetime, part: str, expected: list[str]
) -> None:
    """Case is ignored, wildcards of SQL are taken literally, and domains may be in Unicode."""
    with app.db.write() as session:
        for email in ("a_b@example.org", "axb@lab.test", "bob@xn--mller-kva.test", "jürgen@lab.test"):
            factories.add_subscriber(session, email, ["robots"], now)
        rows = session.exec(subscribers.query_by_address(part).order_by(col(Subscriber.id))).all()
        assert [row.email for row in rows] == expected
