"""What happened in the demo, asked of the database and the postbox, and whether it is as it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sqlmodel import Session, col, func, select

from app.cli.demo.sample_subscribers import PEOPLE
from app.cli.demo.smtp_server import ReceivedMail
from app.delivery import ledger
from app.digests import reconciliation
from app.storage.models import Delivery, DeliveryState, JobRun, Listing, Paper, Subscriber
from app.types import IngestSummary, MailKind

A_DAY, MOST_DAYS = timedelta(days=1), 100


@dataclass(frozen=True, slots=True)
class Mailbox:
    """One reader's side of it."""

    email: str
    sent: int
    papers: int
    doubles: int  # papers that came more than once: there must be none
    silence: str  # why no mail came the last time, if none did
    latest: int | None = None  # the first paper of the newest mail


@dataclass(frozen=True, slots=True)
class Report:
    """The whole outcome."""

    brought: Mapping[str, IngestSummary]  # by source
    papers: int
    shared: int  # papers that more than one source listed
    errors: Sequence[str]  # of runs
    mailboxes: Sequence[Mailbox]
    balance: reconciliation.Reconciliation
    letters: int

    def problems(self) -> list[str]:
        """What should not be so, in words; empty when all is well."""
        found = [f"a run failed: {error}" for error in self.errors]
        if not self.letters:
            found.append("no mail arrived")
        sent = self.balance.states.get(DeliveryState.SENT, 0)
        if self.letters != sent:
            found.append(f"{sent} digests count as sent, but {self.letters} mails arrived")
        if not self.balance.holds:
            found.append(f"the ledger does not balance: {self.balance.describe_faults()}")
        return found + [f"{box.email} got a paper twice" for box in self.mailboxes if box.doubles]


def gather(
    session: Session, now: datetime, brought: Mapping[str, IngestSummary], letters: Sequence[ReceivedMail]
) -> Report:
    """Ask the tables that an operator would ask."""
    newest, *_, oldest = [(now + A_DAY).date().isoformat(), *ledger.editions(session, MOST_DAYS)]
    return Report(
        brought=brought,
        papers=session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one(),
        shared=session.exec(select(func.count()).select_from(_shared().subquery())).one(),
        errors=session.exec(select(JobRun.error).where(JobRun.error != "")).all(),
        mailboxes=[_mailbox(session, person.email) for person in PEOPLE],
        balance=reconciliation.reconcile(session, now, oldest, newest),
        letters=len(letters),
    )


def _shared() -> Any:
    by_paper = select(Listing.paper_id).group_by(col(Listing.paper_id))
    return by_paper.having(func.count(col(Listing.source_id).distinct()) > 1)


def _mailbox(session: Session, email: str) -> Mailbox:
    digests = session.exec(
        select(Delivery)
        .join(Subscriber)
        .where(Subscriber.email == email, Delivery.kind == MailKind.DIGEST)
        .order_by(col(Delivery.due_at))
    ).all()
    sent = [digest for digest in digests if digest.state is DeliveryState.SENT]
    kept = ledger.stored_digests(session, [digest.id for digest in sent])
    papers = {number: ledger.paper_ids(digest) for number, digest in kept.items()}
    times = Counter(number for numbers in papers.values() for number in numbers)
    silences = [digest.reason for digest in digests if digest.state is not DeliveryState.SENT]
    return Mailbox(
        email=email,
        sent=len(sent),
        papers=len(times),
        doubles=sum(count > 1 for count in times.values()),
        silence=silences[-1] if silences else "",
        latest=papers[sent[-1].id or 0][0] if sent else None,
    )


def show(report: Report, console: Console) -> None:
    """Print it for a person."""
    console.print(_sources(report), _readers(report), _ledger(report))
    for rejection in (each for summary in report.brought.values() for each in summary.rejections):
        row = f", row {rejection.row}" if rejection.row else ""
        origin = Path(rejection.origin).name
        console.print(f"Rejected: {origin}{row}: {rejection.reason} ({rejection.detail})")
    for problem in report.problems():
        console.print(f"Wrong: {problem}", style="bold red")


def _sources(report: Report) -> Table:
    title = f"{report.papers} papers, {report.shared} of them from more than one source"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("from", no_wrap=True)
    for heading in IngestSummary().counts():
        table.add_column(heading.removeprefix("papers_"), justify="right", no_wrap=True)
    for source, summary in report.brought.items():
        table.add_row(source, *map(str, summary.counts().values()))
    table.add_section()
    table.add_row("all", *map(str, sum(report.brought.values(), IngestSummary()).counts().values()))
    return table


def _readers(report: Report) -> Table:
    table = Table(title="Nine readers, and what to look at", title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("to", no_wrap=True)
    table.add_column("mails", justify="right")
    table.add_column("papers", justify="right")
    table.add_column("who shows")
    about = {person.email: person.about for person in PEOPLE}
    for box in report.mailboxes:
        why = f"\n[dim]Last silence: {escape(box.silence)}[/dim]" if box.silence else ""
        table.add_row(box.email, str(box.sent), str(box.papers), escape(about[box.email]) + why)
    return table


def _ledger(report: Report) -> str:
    states = {state.value: count for state, count in sorted(report.balance.states.items()) if count}
    told = " + ".join(f"{count} {name}" for name, count in states.items())
    law = report.balance.describe_faults() or "every due digest is in exactly one state"
    return f"\nThe ledger: {report.balance.due} due = {told}: {law}.\n"
