"""Test the checks of the sources of papers."""

from dataclasses import replace
from datetime import datetime, timedelta

from app.application import Application
from app.doctor import Finding, Level, local_checks, sources
from app.papers import source_registry
from app.types import SourceKind
from tests.support import factories


def check_sources(app: Application, now: datetime) -> dict[str, Finding]:
    """Return the findings about the sources by check."""
    with app.db.read() as session:
        return {finding.check: finding for finding in sources.check(session, now)}


def test_failing_paused_and_outdated_sources(app: Application, now: datetime) -> None:
    """Each is named. A source for files cannot fail."""
    with app.db.write() as session:
        for name, fields in {
            "failing": {"failures": 3, "last_error": "it answered 503", "next_poll_at": now},
            "hiccup": {"failures": 1, "next_poll_at": now},
            "sleeping": {"paused": True, "next_poll_at": now},
            "old": {"polled_at": now - timedelta(days=4), "next_poll_at": now},
            "future": {"polled_at": now + timedelta(hours=1), "next_poll_at": now},
            "files": {"paused": True, "kind": SourceKind.PAGE},
        }.items():
            row = factories.add_source(session, now, name=name)
            for field, value in fields.items():
                setattr(row, field, value)
    findings = check_sources(app, now)
    names = ("failing", "hiccup", "sleeping", "old", "future")
    assert {name: findings[f"source {name}"].level for name in names} == {
        "failing": Level.ERROR,
        "hiccup": Level.WARNING,
        "sleeping": Level.WARNING,
        "old": Level.WARNING,
        "future": Level.WARNING,
    }
    assert "503" in findings["source failing"].message
    assert "in the future" in findings["source future"].message
    assert "clocks" in findings["source future"].fix
    assert "source files" not in findings


def test_categories_that_were_set_too_late(app: Application, now: datetime) -> None:
    """They only apply to a new database. An operator who has edited the source is not warned."""
    defaults = app.settings.arxiv_categories
    changed = app.settings.model_copy(update={"arxiv_categories": ("math.CO", "stat.ML")})
    assert not list(sources.check_categories(app.db, changed)), "there is no source yet"
    with app.db.write() as session:
        source_registry.seed(session, defaults, now)
    (finding,) = sources.check_categories(app.db, changed)
    edit = "paperboy sources edit 'arXiv announcements' --category math.CO --category stat.ML"
    assert (finding.level, edit in finding.fix) == (Level.WARNING, True)
    assert finding in local_checks.settings_findings(replace(app, settings=changed), now)
    assert not list(sources.check_categories(app.db, app.settings))
    with app.db.write() as session:
        source = source_registry.find(session, "arXiv announcements")
        source_registry.change(session, source, now, config={"categories": ["math.CO"]})
    assert not list(sources.check_categories(app.db, changed))


def test_no_sources(app: Application, now: datetime) -> None:
    assert check_sources(app, now)["sources"].level is Level.WARNING
