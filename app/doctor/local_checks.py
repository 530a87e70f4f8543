"""The checks that need no network, so that pages, the API, alerts and reports can run them at any time."""

from datetime import datetime
from pathlib import Path

from app.application import Application
from app.doctor import bounces, configuration, disk_space, sending, service_state, sources
from app.doctor.findings import Check, Finding, run_check
from app.relevance import model_store
from app.settings import Settings
from app.storage.database import Database
from app.storage.figure_cache import FigureReader


def service_checks(
    settings: Settings,
    db: Database,
    models: model_store.ModelStore,
    now: datetime,
    figures: FigureReader | None = None,
) -> dict[str, Check]:
    """Return the checks of the service's records in the database, and of the disk.

    `figures` limits the age of figures that are slow to count. By default, they are counted anew.
    """
    return {
        "database": lambda: service_state.check(db, models, now, figures),
        "disk": lambda: disk_space.check(db, Path(settings.journal_dir)),
        "warm-up": lambda: sending.check_warm_up(db, settings, now),
    }


def settings_checks(settings: Settings, db: Database, now: datetime) -> dict[str, Check]:
    """Return the checks of the settings, the arXiv categories and bounce processing."""
    return {
        "settings": lambda: configuration.check(settings),
        "categories": lambda: sources.check_categories(db, settings),
        "bounces": lambda: bounces.check(settings, db, now),
    }


def service_findings(app: Application, now: datetime, figures: FigureReader | None = None) -> list[Finding]:
    checks = service_checks(app.settings, app.db, app.models, now, figures)
    return [finding for name, check in checks.items() for finding in run_check(name, check)]


def settings_findings(app: Application, now: datetime) -> list[Finding]:
    checks = settings_checks(app.settings, app.db, now)
    return [finding for name, check in checks.items() for finding in run_check(name, check)]


def all_findings(app: Application, now: datetime, figures: FigureReader | None = None) -> list[Finding]:
    """Run all checks that need no network. The findings of the settings come last."""
    return [*service_findings(app, now, figures), *settings_findings(app, now)]
