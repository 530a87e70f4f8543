"""READ FIRST. What Paperboy does, stage by stage; every door (web, CLI, scheduler) calls these.

refresh()        sources → records → the archive
send_due()       who is due → match → compose → the ledger → mails
retry_deferred() what the relay put off, or a crash left behind
prune()          what is past its retention
"""

from __future__ import annotations

from dataclasses import dataclass

from app.db import Database
from app.settings import Settings
from app.tokens import Signer


@dataclass(frozen=True)
class App:
    """Everything the pipeline works with, made once by `main.build`."""

    settings: Settings
    db: Database
    signer: Signer
