"""Compare the ledger of a simulated day with the relay, the readers' settings and earlier digests."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlmodel import Session, col, func, select

from app.delivery import ledger
from app.delivery.ledger.claims import FINAL_STATES
from app.digests import reconciliation
from app.storage.models import (
    Delivery,
    DigestContent,
    FormSubmission,
    JobRun,
    Subscriber,
    SubscriberState,
)
from app.types import MailKind

DAY = timedelta(days=1)
MAX_DELAY = timedelta(minutes=5)


class Checks:
    """The violations so far, and the titles that each reader got, in a file because memory is measured."""

    def __init__(self, folder: Path, disturbed_until: datetime) -> None:
        self.violations = Counter[str]()
        self.disturbed_until = disturbed_until  # digests that were due earlier may be late
        self._titles = sqlite3.connect(folder / "titles.db")
        self._titles.execute("CREATE TABLE sent (reader, title, PRIMARY KEY (reader, title)) WITHOUT ROWID")

    def expect(self, condition: bool, violation: str) -> None:
        """Count a violation if the condition is false."""
        if not condition:
            self.violations[violation] += 1

    def check_day(
        self, session: Session, now: datetime, received: int, snapshots: ledger.SnapshotStore
    ) -> None:
        """Check the day that ends at `now`. `received` is the number of emails to readers at the relay."""
        of_day = (col(Delivery.sent_at) > now - DAY, col(Delivery.sent_at) <= now)
        sent = session.exec(select(Delivery, Subscriber).join(Subscriber).where(*of_day)).all()
        runs = session.exec(select(JobRun).where(JobRun.started_at > now - DAY)).all()
        counted = sum(run.counts.get("sent", 0) for run in runs)
        counts = f"sent: {len(sent)} in the ledger, {counted} in the runs, {received} at the relay"
        self.expect(len(sent) == counted == received, f"{now.date()} {counts}")
        digests = [(each, reader) for each, reader in sent if each.kind is MailKind.DIGEST]
        for delivery, reader in digests:
            self._check_digest(delivery, reader)
        self._check_titles(session, digests, snapshots)
        faults = reconciliation.reconcile_recent(session, now).describe_faults()
        is_disturbed = now < self.disturbed_until + DAY
        self.expect(not faults or is_disturbed, f"{now.date()} reconciliation: {faults}")
        for name, count in count_unfinished(session, now - DAY).items():
            self.expect(not count, f"{now.date()} {count} {name} are unfinished after a day")

    def _check_digest(self, delivery: Delivery, reader: Subscriber) -> None:
        """Check who got a digest, and when."""
        name, at = (
            f"reader {reader.id} ({reader.state}), {delivery.edition}",
            delivery.sent_at or delivery.due_at,
        )
        has_ended = reader.ended_at is not None and reader.ended_at < at
        self.expect(not has_ended, f"{name}: sent after the end at {reader.ended_at}")
        in_time = timedelta() <= at - delivery.due_at < MAX_DELAY or delivery.due_at < self.disturbed_until
        self.expect(in_time, f"{name}: due at {delivery.due_at}, sent at {at}")
        if reader.state is not SubscriberState.ERASED:  # an erasure deletes the zone
            local = delivery.due_at.astimezone(ZoneInfo(reader.zone))
            expected = f"{delivery.edition} {reader.hour:02}:00"
            self.expect(f"{local:%Y-%m-%d %H:%M}" == expected, f"{name}: due at {local}")

    def _check_titles(
        self, session: Session, sent: Sequence[tuple[Delivery, Subscriber]], snapshots: ledger.SnapshotStore
    ) -> None:
        """Check that digests have papers, and that no title is sent to a reader again."""
        contents = ledger.restored_digests(session, [delivery.id for delivery, _ in sent], snapshots)
        for delivery, reader in sent:
            if delivery.id not in contents:  # an erasure deletes the content
                self.expect(
                    reader.state is SubscriberState.ERASED, f"{delivery.edition}: {reader.id} has no content"
                )
                continue
            for item in (item for section in contents[delivery.id].sections for item in section.picks):
                row = (reader.id, item.title)
                added = self._titles.execute("INSERT OR IGNORE INTO sent VALUES (?, ?)", row).rowcount
                self.expect(added == 1, f"reader {reader.id}, {delivery.edition}: again “{item.title}”")
        self._titles.commit()

    def check_growth(self, early: dict[str, int], late: dict[str, int]) -> None:
        """Check the numbers of rows by table. Leave out the tables that are to grow before calling this."""
        for name, count in late.items():
            grew = count > 1.3 * early.get(name, 0) + 20
            self.expect(not grew, f"{name} grew from {early.get(name, 0)} to {count} rows")


def count_unfinished(session: Session, before: datetime) -> dict[str, int]:
    """Count the rows that were due before a time and are not in a final state."""
    conditions: dict[str, tuple[Any, ...]] = {
        "emails": (Delivery.id, col(Delivery.state).not_in(FINAL_STATES), Delivery.due_at < before),
        "runs": (JobRun.id, col(JobRun.ended_at).is_(None), JobRun.started_at < before),
        "forms": (
            FormSubmission.id, col(FormSubmission.processed_at).is_(None), FormSubmission.created_at < before,
        ),
        "contents": (DigestContent.delivery_id, col(DigestContent.delivery_id).not_in(select(Delivery.id))),
    }  # fmt: skip
    return {
        name: session.exec(select(func.count(of)).where(*where)).one()
        for name, (of, *where) in conditions.items()
    }
