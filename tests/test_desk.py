"""A desk lays out digests from candidates, interests and what readers said of papers."""

from __future__ import annotations

from datetime import datetime

import pytest
from sqlmodel import select

from app import pipeline, subscribers
from app.models import Delivery
from app.pipeline import App
from tests import corpora, shelves
from tests.mailserver import MailServer


def test_what_a_reader_liked_brings_papers_of_its_kind(
    app: App, mail_server: MailServer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes on from them, although no interest names it, but not they themselves; dislikes do not."""
    monkeypatch.setattr(app.lexicon, "current", lambda session: corpora.corpus())
    day = now.date()
    liked = [paper for paper in corpora.papers() if "protein folding" in paper.abstract][:6]
    with app.db.write() as session:
        source = shelves.source(session, now)
        ids = {
            paper.id: shelves.paper(session, source, paper.title, day, now, abstract=paper.abstract)
            for paper in corpora.papers()
        }
        sequels = {
            shelves.paper(session, source, f"More on {paper.title}", day, now, abstract=paper.abstract)
            for paper in liked
        }
        alice, bob = (shelves.reader(session, f"{name}@example.org", [], now) for name in ("alice", "bob"))
    with app.db.write() as session:
        for paper in liked:
            subscribers.say(session, alice, ids[paper.id], True, now)
            subscribers.say(session, bob, ids[paper.id], False, now)
    pipeline.send_due(app, now)
    with app.db.read() as session:
        digests = {row.subscriber_id: row.digest for row in session.exec(select(Delivery)) if row.digest}
    close = next(s for s in digests[alice]["sections"] if s["heading"] == "Close to what you liked")
    assert {pick["paper_id"] for pick in close["picks"]} == sequels
    assert all("that you liked, through" in pick["reason"] for pick in close["picks"])
    assert bob not in digests or not any(section["heading"] for section in digests[bob]["sections"])
