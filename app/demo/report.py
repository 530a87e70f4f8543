"""What happened in the demo, asked of the database and the postbox, and whether it is as it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from sqlmodel import Session, col, func, select

from app import deliver
from app.demo.people import PEOPLE
from app.demo.postbox import Letter
from app.models import (
    Delivery,
    DeliveryState,
    Listing,
    MailKind,
    Merge,
    Paper,
    Run,
    Source,
    Subscriber,
)
from app.records import Digest


@dataclass(frozen=True, slots=True)
class Mailbox:
    """One reader's side of it."""

    email: str
    sent: int
    papers: int
    doubles: int  # papers that came more than once: there must be none
    silence: str  # why there was no mail the last time, if there was none


@dataclass(frozen=True, slots=True)
class Report:
    """The whole outcome."""

    listings: Mapping[str, int]  # by source
    papers: int
    merged: int  # rows that proved to be another's paper
    rejections: Sequence[Mapping[str, object]]
    counts: Mapping[str, int]  # of all ingesting runs together
    errors: Sequence[str]
    mailboxes: Sequence[Mailbox]
    balance: Mapping[str, int | bool]
    letters: int

    def problems(self) -> list[str]:
        """What should not be so, in words; empty when all is well."""
        found = [f"a run failed: {error}" for error in self.errors]
        if not self.letters:
            found.append("no mail arrived")
        if self.letters != self.balance["sent"]:
            found.append(f"{self.balance['sent']} digests count as sent, but {self.letters} mails arrived")
        if not self.balance["holds"]:
            found.append("the ledger does not balance")
        found += [f"{box.email} got a paper twice" for box in self.mailboxes if box.doubles]
        return found


def gather(session: Session, letters: Sequence[Letter]) -> Report:
    """Ask the tables that an operator would ask."""
    by_source = select(Source.name, func.count()).join(Listing).group_by(Source.name).order_by(Source.name)
    runs = session.exec(select(Run)).all()
    return Report(
        listings=dict(session.exec(by_source).all()),
        papers=session.exec(select(func.count()).where(col(Paper.merged_into_id).is_(None))).one(),
        merged=session.exec(select(func.count()).select_from(Merge)).one(),
        rejections=[each for run in runs for each in run.rejections],
        counts=sum((Counter(run.counts) for run in runs if run.job == "ingest"), Counter()),
        errors=[run.error for run in runs if run.error],
        mailboxes=[_mailbox(session, person.email) for person in PEOPLE],
        balance=deliver.balance(session),
        letters=len(letters),
    )


def _mailbox(session: Session, email: str) -> Mailbox:
    mine = (
        select(Delivery)
        .join(Subscriber)
        .where(Subscriber.email == email, Delivery.kind == MailKind.DIGEST)
        .order_by(col(Delivery.due_at))
    )
    deliveries = session.exec(mine).all()
    sent = [each for each in deliveries if each.state is DeliveryState.SENT]
    times = Counter(pick.paper_id for each in sent for pick in Digest.from_dict(each.digest).picks)
    last = deliveries[-1] if deliveries else None
    return Mailbox(
        email=email,
        sent=len(sent),
        papers=len(times),
        doubles=sum(1 for count in times.values() if count > 1),
        silence=last.reason if last and last.state is not DeliveryState.SENT else "",
    )


def show(report: Report, console: Console) -> None:
    """Print it for a person."""
    console.print(_sources(report), _readers(report), _ledger(report))
    for rejection in report.rejections:
        console.print(f"Rejected: {_told(rejection)}", style="yellow")
    for problem in report.problems():
        console.print(f"Wrong: {problem}", style="bold red")


def _told(rejection: Mapping[str, object]) -> str:
    where = f"{rejection['origin']}, row {rejection['row']}" if rejection["row"] else rejection["origin"]
    return f"{where}: {rejection['reason']} ({rejection['detail']})"


def _sources(report: Report) -> Table:
    table = Table(title=f"{report.papers} papers", title_justify="left", caption_justify="left")
    table.add_column("source")
    table.add_column("listings", justify="right")
    for source, listings in report.listings.items():
        table.add_row(source, str(listings))
    table.caption = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report.counts.items())
    return table


def _readers(report: Report) -> Table:
    table = Table(title="Readers", title_justify="left")
    for heading in ("reader", "mails", "papers", "what to look at", "last silence"):
        table.add_column(heading, justify="right" if heading in ("mails", "papers") else "left")
    about = {person.email: person.about for person in PEOPLE}
    for box in report.mailboxes:
        table.add_row(box.email, str(box.sent), str(box.papers), about[box.email], box.silence)
    return table


def _ledger(report: Report) -> Table:
    states = {name: count for name, count in report.balance.items() if name not in ("due", "holds")}
    told = " + ".join(f"{count} {name}" for name, count in states.items() if count)
    table = Table(title="The ledger", title_justify="left", show_header=False)
    holds = "every due digest is in exactly one state" if report.balance["holds"] else "DOES NOT BALANCE"
    table.add_row(f"{report.balance['due']} due = {told}", holds)
    return table
