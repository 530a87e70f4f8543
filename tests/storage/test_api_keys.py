"""Test API keys: shown once, stored as a hash, revocable."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, select

from app.application import Application
from app.errors import Conflict, InvalidInput, NotFound
from app.settings import Settings
from app.storage import api_keys, sign_in_links
from app.storage.api_keys import Scope
from app.storage.models import ApiKey


def test_key_is_stored_only_as_a_hash(app: Application, now: datetime) -> None:
    """Access to the database does not allow calls of the API."""
    with app.db.write() as session:
        row, key = api_keys.create(session, "grafana", [Scope.SEND, Scope.READ, Scope.READ], now)
        assert row.scopes == ["read", "send"]
    assert key.startswith("pb_")
    with app.db.read() as session:
        holder = api_keys.authenticate(session, key, now)
        stored = session.exec(select(ApiKey)).one()
    assert holder is not None
    assert (holder.name, holder.scopes) == ("grafana", {Scope.READ, Scope.SEND})
    assert key not in str(stored.model_dump())


@pytest.mark.parametrize("forged", ["", "pb_", "pb_" + "A" * 43, "grafana", "é", "pb_é"])
def test_unknown_key(app: Application, now: datetime, forged: str) -> None:
    """An unknown or malformed key gives None."""
    with app.db.write() as session:
        api_keys.create(session, "grafana", [Scope.READ], now)
        assert api_keys.authenticate(session, forged, now) is None


def test_revoked_key_is_invalid_and_its_name_reusable(app: Application, now: datetime) -> None:
    """A key is rotated by revoking it and creating another one with the same name."""
    with app.db.write() as session:
        _, old = api_keys.create(session, "grafana", [Scope.READ], now)
        api_keys.revoke(session, "grafana", now)
        _, new = api_keys.create(session, "grafana", [Scope.READ], now)
        assert api_keys.authenticate(session, old, now) is None
        assert api_keys.authenticate(session, new, now) is not None
        assert [row.revoked_at for row in api_keys.list_keys(session)] == [now, None]


def test_names_of_active_keys_are_unique(app: Application, now: datetime) -> None:
    """Names in use are unique, because the audit log identifies keys by name."""
    with app.db.write() as session:
        api_keys.create(session, "grafana", [Scope.READ], now)
        with pytest.raises(Conflict):
            api_keys.create(session, " grafana ", [Scope.WRITE], now)


def test_name_and_scope_are_required(app: Application, now: datetime) -> None:
    """The error names the field to change."""
    with app.db.write() as session:
        for name, scopes, field in [
            (" ", [Scope.READ], "name"),
            ("x" * 101, [Scope.READ], "name"),
            ("x", [], "scopes"),
        ]:
            with pytest.raises(InvalidInput) as refused:
                api_keys.create(session, name, scopes, now)
            assert refused.value.field == field


@pytest.mark.parametrize(
    "name", ["cli", "CLI ", "paperboy", "ada@example.org, by mail", "sign-in link to ada@example.org"]
)
def test_names_of_the_service_are_reserved(app: Application, now: datetime, name: str) -> None:
    """A key with such a name would pass for a command in the audit log, or for a sign-in link."""
    with app.db.write() as session, pytest.raises(InvalidInput, match="cannot") as refused:
        api_keys.create(session, name, [Scope.READ], now)
    assert refused.value.field == "name"


def test_a_key_does_not_outlive_its_creator(app: Application, now: datetime) -> None:
    """Otherwise a key that leaks for a day would grant access for a year. A key may rotate itself."""
    with app.db.write() as session:
        parent = api_keys.create(session, "parent", [Scope.READ], now, days=10)[0]
        creator = api_keys.identity_of(parent, now)
        children = [
            api_keys.create(session, name, [Scope.READ], now, days, creator)[0]
            for name, days in (("long", 365), ("endless", None), ("short", 2))
        ]
        assert [child.expires_at for child in children] == [
            parent.expires_at,
            parent.expires_at,
            now + timedelta(days=2),
        ]
        other = api_keys.create(session, "other", [Scope.READ], now - timedelta(days=95), days=100)[0]
        assert api_keys.rotate(session, other.id or 0, now, timedelta(), creator)[0].expires_at == (
            parent.expires_at
        )
        later = now + timedelta(days=5)
        itself = api_keys.rotate(session, parent.id or 0, later, timedelta(), creator)[0]
        assert itself.expires_at == later + timedelta(days=10)


@pytest.mark.parametrize("days", [11, None])
def test_replacing_a_key_does_not_shorten_its_life(app: Application, now: datetime, days: int | None) -> None:
    """Otherwise, both keys would end with the key of whoever replaces it, such as one of a sign-in link."""
    with app.db.write() as session:
        creator = api_keys.identity_of(api_keys.create(session, "me", [Scope.READ], now, 10)[0], now)
        relay, secret = api_keys.create(session, "relay", [Scope.READ], now, days)
        with pytest.raises(Conflict, match="would expire earlier than the old one"):
            api_keys.rotate(session, relay.id or 0, now, api_keys.OVERLAP, creator)
        assert api_keys.authenticate(session, secret, now + timedelta(days=10))
        assert api_keys.rotate(session, relay.id or 0, now, api_keys.OVERLAP)


def test_a_key_of_a_mailed_link_is_not_rotated(app: Application, now: datetime) -> None:
    """Its day ends: the operator asks for another link."""
    with app.db.write() as session:
        link = sign_in_links.create(session, "ada@example.org", now)
        assert link is not None
        operator = sign_in_links.redeem(session, link[1], now, now + timedelta(days=1))
        assert operator is not None
        with pytest.raises(Conflict, match="sign-in link"):
            api_keys.rotate(session, operator.id, now, timedelta(days=1), operator)


@pytest.mark.postgres
def test_changes_of_keys_wait_for_each_other(app: Application, now: datetime) -> None:
    """Otherwise, simultaneous requests would make several keys with one name, which nobody knows."""
    changes: list[Callable[[Session], object]] = [
        lambda session: api_keys.rotate(session, 1, now, api_keys.OVERLAP),
        lambda session: api_keys.create(session, "grafana", [Scope.READ], now),
        lambda session: api_keys.revoke(session, "grafana", now),
        lambda session: api_keys.revoke_by_id(session, 1, now),
    ]
    with app.db.write() as session:
        api_keys.create(session, "grafana", [Scope.READ], now)
    with app.db.write() as reading:
        assert api_keys.get(reading, 1).expires_at == now + timedelta(days=365)
        with app.db.write() as session:
            api_keys.rotate(session, 1, now, api_keys.OVERLAP)
            for change in changes:
                with Session(app.db.engine) as other:
                    other.execute(text("SET LOCAL lock_timeout = '1ms'"))
                    with pytest.raises(OperationalError, match="lock timeout"):
                        change(other)
        with pytest.raises(Conflict, match="rotate key 2 instead"):
            api_keys.rotate(reading, 1, now, api_keys.OVERLAP)
        assert api_keys.get(reading, 1).expires_at == now + api_keys.OVERLAP


def test_revoking_an_unknown_key(app: Application, now: datetime) -> None:
    """Revoking an unknown name raises NotFound."""
    with app.db.write() as session, pytest.raises(NotFound):
        api_keys.revoke(session, "grafana", now)


def test_last_use_is_stored_once_a_minute(app: Application, now: datetime) -> None:
    """`last_used_at` is written at most once a minute."""
    with app.db.write() as session:
        row, key = api_keys.create(session, "grafana", [Scope.READ], now)
        fresh = api_keys.authenticate(session, key, now)
        assert fresh is not None
        assert fresh.is_stale(now)
        assert row.id is not None
        api_keys.touch(session, row.id, now)
        used = api_keys.authenticate(session, key, now)
        assert used is not None
        assert not used.is_stale(now + timedelta(seconds=59))
        assert used.is_stale(now + timedelta(seconds=60))


def test_generated_secret_is_valid() -> None:
    """The settings accept a secret from `paperboy key secret`, and each one differs."""
    first, second = api_keys.new_secret(), api_keys.new_secret()
    assert first != second
    assert Settings(_env_file=None, secret_keys=(first, second)).secret_keys == (first, second)
