"""The application context, built once at startup.

The packages from `papers` to `bounces` do not know it: they get only the parts that they need.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Event, Lock

from app import bounces, clock
from app.bounces.processing import BounceContext
from app.delivery import ledger
from app.delivery.sender import Sender
from app.digests import hiding
from app.digests.builder import DigestContext
from app.links import LinkSigner
from app.mail import composer, render
from app.papers.polling import PollContext
from app.papers.sources import http_client
from app.relevance.match_index_cache import IndexCache
from app.relevance.model_store import ModelStore
from app.settings import Settings
from app.storage.database import Database
from app.storage.schema import SchemaGuard


@dataclass(frozen=True)
class Application:
    """The objects of a running Paperboy that the web app, jobs, the CLI and tests share."""

    settings: Settings
    db: Database
    signer: LinkSigner
    renderer: render.Renderer
    composer: composer.Composer
    snapshots: ledger.SnapshotStore = field(default_factory=ledger.SnapshotStore)
    edition_totals: ledger.EditionTotals = field(default_factory=ledger.EditionTotals)
    models: ModelStore = field(default_factory=ModelStore)
    indexes: IndexCache = field(default_factory=IndexCache)
    http: http_client.HttpTransport = field(default_factory=http_client.HttpTransport)
    sending: Lock = field(default_factory=Lock)  # held while `pipeline.send` runs in this process
    # Set when emails have been planned that a running `pipeline.send` may have missed.
    more_to_send: Event = field(default_factory=Event)
    on_batch_planned: list[Callable[[], None]] = field(default_factory=list)  # called after each batch
    on_paper_hidden: list[Callable[[], None]] = field(
        default_factory=list
    )  # called after the web app hides one
    stopping: Event = field(default_factory=Event)  # set when the process should exit, so start nothing new

    @cached_property
    def schema(self) -> SchemaGuard:
        """Return the guard against a database that belongs to another release.

        Functions that prepare or send digests, emails or events call its `require` first. Other jobs do not,
        because they can be repeated.
        """
        return SchemaGuard(self.db)

    def timeline(self, now: datetime) -> clock.Timeline:
        """Return the clock for a run that begins at `now`."""
        return clock.Timeline(now, self.db.skew)

    @property
    def poll_context(self) -> PollContext:
        """Return the context for polling sources and reading files."""
        return PollContext(self.db, self.settings, self.http, self.stopping, hiding.leave_out_merged)

    @property
    def digest_context(self) -> DigestContext:
        return DigestContext(
            self.db,
            self.settings,
            self.models,
            self.indexes,
            self.snapshots,
            self.stopping,
            self.on_batch_planned,
        )

    @property
    def sender(self) -> Sender:
        return Sender(
            self.db, self.settings, self.composer, self.snapshots, self.stopping, bounces.record_refusal
        )

    @property
    def bounce_context(self) -> BounceContext:
        return BounceContext(self.db, self.settings, self.signer, self.stopping)
