"""Test the links that sign operators in: how many they get, and that one of them always works."""

from datetime import datetime, timedelta

from app.application import Application
from app.storage import api_keys, sign_in_links


def test_strangers_neither_flood_nor_lock_out_an_operator(app: Application, now: datetime) -> None:
    """Whenever they request links, the mailbox gets few of them, and always has one that works."""
    ada, sent, token = "ada@example.org", list[datetime](), ""
    for minute in range(0, 3 * 24 * 60, 5):
        at = now + timedelta(minutes=minute)
        with app.db.write() as session:
            if link := sign_in_links.create(session, ada, at):
                sent.append(at)
                token = link[1]
            assert api_keys.authenticate(session, token, at)
    for span, most in ((timedelta(hours=1), 3), (timedelta(days=1), 7)):
        assert max(sum(at - span < other <= at for other in sent) for at in sent) == most
    with app.db.write() as session:
        assert sign_in_links.create(session, "bob@example.org", at), "other operators get theirs"
        assert sign_in_links.redeem(session, token, at, at + timedelta(days=1))
        link = sign_in_links.create(session, ada, at)
        assert link, "a link that was used delays no other"
        assert link[0].expires_at == at + sign_in_links.LIFETIME


def test_link_of_a_clock_that_was_ahead_delays_no_other(app: Application, now: datetime) -> None:
    """It no longer works."""
    with app.db.write() as session:
        early = sign_in_links.create(session, "ada@example.org", now + timedelta(days=30))
    with app.db.write() as session:
        link = sign_in_links.create(session, "ada@example.org", now)
        assert early
        assert link
        assert link[0].expires_at == now + sign_in_links.LIFETIME
        assert api_keys.authenticate(session, early[1], now) is None
        assert api_keys.authenticate(session, link[1], now)
