"""Test which stored pictures are deleted."""

from dataclasses import replace
from datetime import datetime, timedelta

from sqlmodel import select

from app import maintenance
from app.application import Application
from app.storage.models import PaperPicture
from tests.support import factories

DAY = timedelta(days=1)


def add_pictures(app: Application, now: datetime) -> list[int]:
    """Add a paper that was last listed before the retention, and one of its last day, with pictures."""
    with app.db.write() as session:
        source, ids = factories.add_source(session, now), []
        for days in (app.settings.retention_days + 1, app.settings.retention_days):
            listed_on = (now - days * DAY).date()
            ids.append(factories.add_paper(session, source, f"Listed {days} days ago", listed_on, now))
            factories.add_picture(session, ids[-1], now)
    return ids


def left(app: Application) -> list[int]:
    with app.db.read() as session:
        return list(session.exec(select(PaperPicture.paper_id)).all())


def test_pictures_of_old_papers_are_deleted(app: Application, now: datetime) -> None:
    """So the database does not grow without end."""
    _, recent = add_pictures(app, now)
    assert maintenance.prune(app, now)["pictures"] == 1
    assert left(app) == [recent]


def test_all_pictures_are_deleted_when_they_are_turned_off(app: Application, now: datetime) -> None:
    add_pictures(app, now)
    off = replace(app, settings=app.settings.model_copy(update={"pictures": False}))
    assert maintenance.prune(off, now)["pictures"] == 2
    assert left(app) == []
