"""The composition root: nothing is made on import; `build` makes everything once."""

from __future__ import annotations

from app.db import Database
from app.pipeline import App
from app.settings import Settings
from app.tokens import Signer


def build(settings: Settings) -> App:
    """Assemble the application. The caller calls `app.db.dispose()` when done."""
    return App(
        settings=settings,
        db=Database(settings.database_url),
        signer=Signer(settings.secret_keys, settings.base_url),
    )
