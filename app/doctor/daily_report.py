"""Build and send the daily report: current problems, digests, mail, subscribers and sources."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from sqlmodel import Session

from app import subscribers
from app.application import Application
from app.bounces import rates
from app.delivery import ledger
from app.digests import reconciliation
from app.doctor import local_checks, operator_mail
from app.doctor.findings import Finding, Level
from app.doctor.operator_mail import OperatorEmail
from app.errors import InvalidInput
from app.papers import listing_days, source_registry
from app.storage import job_runs, locks
from app.storage.figure_cache import FigureReader
from app.storage.models import DeliveryState, SubscriberState
from app.subscribers import event_labels
from app.text.in_words import count_of
from app.types import OperatorReport, ReportSection

DAY = timedelta(days=1)
RETRY_HOURS = 18
FIRST_DAY = date(1970, 1, 1)  # the time zone database is unreliable before this day
# The digests due are the sum of these counts: all states, beginning with sent, and those not in the ledger.
_TERMS = (*sorted(DeliveryState, key=lambda state: state is not DeliveryState.SENT), "unplanned", "missing")


def send_daily_report(app: Application, now: datetime) -> None:
    """Send each operator the report about yesterday once, at the configured hour or later.

    Raise DeliveryError if no operator has got it. For RETRY_HOURS, later runs send the emails again that were
    not accepted, unless the mailbox refused them for good.
    """
    local = now.astimezone(ZoneInfo(app.settings.default_zone))
    hours_late = (local.hour - app.settings.report_hour) % 24
    if not app.settings.admin_addresses or hours_late >= RETRY_HOURS:
        return
    today = (local - timedelta(hours=hours_late)).date()
    issue = operator_mail.Issue("report", today.isoformat())
    with locks.hold(app.db, "daily report", now, operator_mail.LEASE) as acquired:
        if acquired and (left := operator_mail.addresses_left(app, issue)):
            with job_runs.record(app.db, "report", now) as run:
                report = build(app, now, today - DAY)
                emails = [OperatorEmail(address, report, (issue,)) for address in left]
                run.add({"mails": operator_mail.send(app, emails, now)})


def build(
    app: Application, now: datetime, day: date | None = None, figures: FigureReader | None = None
) -> OperatorReport:
    """Return the report about a day; the default is yesterday. Raise InvalidInput for a future day.

    Days are those of the default time zone, because an edition is named after the subscriber's local day. The
    findings and the states of subscribers and sources are as of `now`. Warnings about settings have a
    section of their own. The subject does not count them, because operators may accept some permanently.
    `figures` limits the age of figures that are slow to count. By default, they are counted anew.
    """
    zone = ZoneInfo(app.settings.default_zone)
    today = now.astimezone(zone).date()
    day, latest = day or today - DAY, max(today, now.date())  # the caller may use the UTC day
    if not FIRST_DAY <= day <= latest:
        in_utc = "" if latest == today else " in UTC"
        raise InvalidInput(f"the day must be from {FIRST_DAY} to {latest}, which is today{in_utc}", "day")
    begin, end = (datetime.combine(each, time(), zone).astimezone(UTC) for each in (day, day + DAY))
    settings = _not_ok(local_checks.settings_findings(app, now))
    urgent = [finding for finding in settings if finding.urgent]
    figures = figures or FigureReader(app.db.figures)
    findings = [*_not_ok(local_checks.service_findings(app, now, figures)), *urgent]
    of_settings = tuple(operator_mail.lines_of([each for each in settings if not each.urgent]))
    with app.db.read() as session:
        result = reconciliation.reconcile_edition(session, now, day.isoformat(), figures)
        count_rates = partial(rates.between, session, begin, end)
        mail = figures.get(session, f"rates of {day}", now, count_rates)
        counts = result.as_dict()
        terms = " + ".join(f"{counts[name]:,} {name}" for name in _TERMS if counts[name]) or "0"
        surplus = f" + {result.surplus:,} surplus" if result.surplus else ""
        digests = f"{result.due:,} due{surplus} = {terms}" if result.due or surplus else "No digest was due."
        reasons = ledger.commonest_reasons(session, day.isoformat())
        sections = (
            ReportSection("Needs attention now", tuple(operator_mail.lines_of(findings)) or ("Nothing.",)),
            *([ReportSection("Settings to check", of_settings)] if of_settings else ()),
            ReportSection(
                f"Digests of {day}",
                (digests, *(f"{row.digests:,} {row.state}: {row.reason}" for row in reasons)),
            ),
            ReportSection("Mail", tuple(_rates(mail))),
            ReportSection("Subscribers", tuple(_subscribers(session, begin, end))),
            ReportSection("Sources", tuple(_sources(session, day))),
        )
    attention = ""
    if findings and day >= today - DAY:  # current findings do not belong in the subject of an older report
        attention = ", 1 needs attention" if len(findings) == 1 else f", {len(findings)} need attention"
    return OperatorReport(
        f"{app.settings.site_name}, {day}: {count_of(counts['sent'], 'digest')} sent{attention}", sections
    )


def _not_ok(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def _rates(by_receiver: Sequence[rates.ReceiverRate]) -> Iterable[str]:
    for rate in by_receiver:
        yield f"{rate.receiver}: {rate.counts()}"
    if not by_receiver:
        yield "No mail was sent."


def _subscribers(session: Session, since: datetime, until: datetime) -> Iterable[str]:
    states = subscribers.count_by_state(session)
    now = ", ".join(f"{states[state]:,} {state}" for state in SubscriberState if states[state]) or "none"
    yield f"Now: {now}."
    changes = subscribers.count_changes(session, since, until)
    happened = [f"{number:,} {event_labels.name_event(kind)}" for kind, number in changes.items() if number]
    yield f"Changes: {', '.join(happened) or 'none'}."


def _sources(session: Session, day: date) -> Iterable[str]:
    listed = listing_days.count_by_source(session, day)
    for source in source_registry.all_sources(session):
        number = listed.get(source.id or 0, 0)
        state = f", failed {source.failures} times" if source.failures > 1 else ""
        if source_registry.is_read_from_files(source):
            if not number:
                continue  # no file was read
            state = f", {source_registry.READ_FROM_FILES}"
        elif source.paused:
            state = ", paused"
        yield f"{source.name}: {count_of(number, 'paper')}{state}"
