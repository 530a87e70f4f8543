"""Report the outcome of the demo and any problems, from its database and its mail server."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sqlmodel import Session, col, func, select

from app.cli.demo.sample_subscribers import SUBSCRIBERS
from app.cli.demo.smtp_server import ReceivedMail
from app.delivery import ledger
from app.digests import reconciliation
from app.storage.models import Delivery, DeliveryState, JobRun, Listing, Paper, Subscriber
from app.text.in_words import count_of, sentence
from app.types import IngestSummary, MailKind

DAY, MAX_DAYS = timedelta(days=1), 100


@dataclass(frozen=True, slots=True)
class MissingDigest:
    """A day without a digest, and the reason."""

    day: date
    reason: str


@dataclass(frozen=True, slots=True)
class MailboxSummary:
    """A summary of the emails to one subscriber."""

    email: str
    sent: int
    papers: int
    duplicates: int  # number of papers that were sent more than once; must be 0
    last_missing: MissingDigest | None  # the last day without a digest; None if there is none
    latest: int | None = None  # the id of the first paper in the newest email


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of the demo."""

    summaries: Mapping[str, IngestSummary]  # by source
    papers: int
    shared: int  # number of papers that more than one source listed
    errors: Sequence[str]  # errors of job runs
    mailboxes: Sequence[MailboxSummary]
    ledger: reconciliation.Reconciliation
    mails: int

    def problems(self) -> list[str]:
        problems = [f"a run failed: {error}" for error in self.errors]
        if not self.mails:
            problems.append("no email arrived")
        sent = self.ledger.states.get(DeliveryState.SENT, 0)
        if self.mails != sent:
            problems.append(
                f"the ledger has {count_of(sent, 'sent digest')}, but {count_of(self.mails, 'email')} arrived"
            )
        if not self.ledger.is_consistent:
            problems.append(f"the ledger is inconsistent: {self.ledger.describe_faults()}")
        return problems + [
            f"{mailbox.email} got a paper twice" for mailbox in self.mailboxes if mailbox.duplicates
        ]


def gather(
    session: Session, now: datetime, summaries: Mapping[str, IngestSummary], mails: Sequence[ReceivedMail]
) -> Report:
    """Build the report from the database and the received emails."""
    of_several_sources = (
        select(Listing.paper_id)
        .group_by(col(Listing.paper_id))
        .having(func.count(col(Listing.source_id).distinct()) > 1)
    )
    newest, *_, oldest = [(now + DAY).date().isoformat(), *ledger.editions(session, MAX_DAYS)]
    return Report(
        summaries=summaries,
        papers=session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one(),
        shared=session.exec(select(func.count()).select_from(of_several_sources.subquery())).one(),
        errors=session.exec(select(JobRun.error).where(JobRun.error != "")).all(),
        mailboxes=[summarize_mailbox(session, subscriber.email) for subscriber in SUBSCRIBERS],
        ledger=reconciliation.reconcile(session, now, oldest, newest),
        mails=len(mails),
    )


def summarize_mailbox(session: Session, email: str) -> MailboxSummary:
    """Summarize a subscriber's digests in the ledger."""
    digests = session.exec(
        select(Delivery)
        .join(Subscriber)
        .where(Subscriber.email == email, Delivery.kind == MailKind.DIGEST)
        .order_by(col(Delivery.due_at))
    ).all()
    sent = [digest for digest in digests if digest.state is DeliveryState.SENT]
    stored = ledger.stored_digests(session, [digest.id for digest in sent])
    papers = {number: ledger.paper_ids(digest) for number, digest in stored.items()}
    times = Counter(number for numbers in papers.values() for number in numbers)
    missing = [
        MissingDigest(date.fromisoformat(digest.edition), _reason(session, digest))
        for digest in digests
        if digest.state is not DeliveryState.SENT
    ]
    return MailboxSummary(
        email=email,
        sent=len(sent),
        papers=len(times),
        duplicates=sum(count > 1 for count in times.values()),
        last_missing=missing[-1] if missing else None,
        latest=papers[sent[-1].id or 0][0] if sent else None,
    )


def _reason(session: Session, digest: Delivery) -> str:
    """Return why a digest has not arrived."""
    if held := ledger.hold_reason(ledger.pauses(session), digest):
        return sentence(f"Held: {held}")
    return sentence(digest.reason or digest.smtp_text or "it has not been sent yet")


def print_report(report: Report, console: Console) -> None:
    """Print tables for sources and subscribers, the state of the ledger, rejections and problems."""
    states = {state.value: count for state, count in sorted(report.ledger.states.items()) if count}
    total = " + ".join(f"{count} {name}" for name, count in states.items())
    verdict = report.ledger.describe_faults() or "every due digest is in exactly one state"
    ledger_line = f"\nThe ledger: {report.ledger.due} due = {total}: {verdict}.\n"
    console.print(_source_table(report), _subscriber_table(report), ledger_line)
    rejections = (rejection for summary in report.summaries.values() for rejection in summary.rejections)
    for rejection in rejections:
        row = f", row {rejection.row}" if rejection.row else ""
        origin = Path(rejection.origin).name
        console.print(f"Rejected: {origin}{row}: {rejection.reason} ({rejection.detail})")
    for problem in report.problems():
        console.print(f"Problem: {problem}", style="bold red")


def _source_table(report: Report) -> Table:
    title = f"{count_of(report.papers, 'paper')}, {report.shared} of them from more than one source"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("from", no_wrap=True)
    for heading in IngestSummary().counts():
        table.add_column(heading.removeprefix("papers_"), justify="right", no_wrap=True)
    for source, summary in report.summaries.items():
        table.add_row(source, *map(str, summary.counts().values()))
    table.add_section()
    table.add_row("all", *map(str, sum(report.summaries.values(), IngestSummary()).counts().values()))
    return table


def _subscriber_table(report: Report) -> Table:
    title = "Subscribers, and what each one demonstrates"
    table = Table(title=title, title_justify="left", box=SIMPLE, pad_edge=False)
    table.add_column("to", no_wrap=True)
    table.add_column("emails", justify="right")
    table.add_column("papers", justify="right")
    table.add_column("shows")
    about = {subscriber.email: subscriber.about for subscriber in SUBSCRIBERS}
    for mailbox in report.mailboxes:
        shows = escape(about[mailbox.email])
        if missing := mailbox.last_missing:
            shows += f"\n[dim]No digest on {missing.day}: {escape(missing.reason)}[/dim]"
        table.add_row(mailbox.email, str(mailbox.sent), str(mailbox.papers), shows)
    return table
