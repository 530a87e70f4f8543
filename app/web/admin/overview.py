"""The first page: findings that need attention, sent and unsent digests, subscribers, sources."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import NamedTuple, Unpack

from fastapi import APIRouter, BackgroundTasks, HTTPException, Response

from app.delivery import ledger
from app.digests import reconciliation
from app.doctor import local_checks
from app.doctor.findings import Finding, Level, RemedyAction
from app.errors import Conflict, NotFound
from app.storage import worker_registry as registry
from app.storage.api_keys import Scope
from app.storage.models import DeliveryState
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.remedies import BUTTONS, Button, Click
from app.web.admin.sign_in import FormOutcome, Operator, Reader, Sender, Writer, back_to
from app.web.api import runs, sources, statistics
from app.web.api.keys import CreatedKey
from app.web.form_versions import version_of
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

DAYS_CHARTED = 30
DAYS_RECONCILED = 2
ENDS_PAUSE = {RemedyAction.RESUME_SENDING, RemedyAction.RESUME_EDITION, RemedyAction.APPROVE_EDITION}


class ActionPage(NamedTuple):
    """The page where an operator acts on a finding, and the label of the link to it.

    `{}` in the URL is replaced with the subject of the finding's remedy, if any. `advice` replaces
    the finding's fix if the fix names a command with the same effect as the page.
    """

    url: str
    label: str
    advice: str | None = None


ACTION_PAGES = {  # by the first word of the check
    "source": ActionPage("/admin/sources/{}", "Look at the source"),
    "sources": ActionPage("/admin/sources", "Add a source", ""),
    "job": ActionPage("/admin/runs?failed=yes", "Look at the failed runs", ""),
    "key": ActionPage("/admin/keys", "Look at the keys"),
    "webhook": ActionPage("/admin/webhooks/{}", "Look at the webhook"),
    "first": ActionPage("/admin/editions#first", "Look at their digests"),
    "edition": ActionPage(
        "/admin/editions/{}",
        "Look at the edition",
        "Find out whether they arrived. Then open the edition to record them as sent or to send them again.",
    ),
    "complaints": ActionPage("/admin/deliverability#people", "See who complained"),
    "receiver": ActionPage("/admin/deliverability", "See the rates"),
    "warm-up": ActionPage("/admin/deliverability", "See the limits"),
    "bounces": ActionPage(
        "/admin/keys?scope=bounces#new",
        "Create a key for webhooks",
        "Set PAPERBOY_BOUNCE_MAILBOX or PAPERBOY_BOUNCE_FOLDER, or let your relay send webhooks with a "
        "key that has the “bounces” scope.",
    ),
    "ledger": ActionPage("/admin/editions", "Look at the editions"),
    "sending": ActionPage("/admin/editions/{}", "Look at the waiting emails"),
    **{
        check: ActionPage(f"/admin/settings#PAPERBOY_{setting}", "Look at the setting")
        for check, setting in {
            "base_url": "BASE_URL", "from_address": "FROM_ADDRESS", "postal_address": "POSTAL_ADDRESS",
            "contact_address": "CONTACT_ADDRESS", "journal_dir": "JOURNAL_DIR", "search_dir": "SEARCH_DIR",
            "database": "DATABASE_URL", "dkim": "DKIM_KEYS", "compose_ahead_minutes": "COMPOSE_AHEAD_MINUTES",
            "bounce_mailbox": "BOUNCE_MAILBOX", "bounce_folder": "BOUNCE_FOLDER", "bounce": "SMTP_HOST",
        }.items()
    },
}  # fmt: skip


class FindingView(NamedTuple):
    """A finding with advice, and the button and page with which an operator acts on it.

    `button` is None if the finding has no button, or if the operator may not press it. `pause` is the version
    of the reason for the pause that the button ends, or "".
    """

    finding: Finding
    advice: str
    button: Button | None
    page: ActionPage | None
    pause: str = ""


class Bar(NamedTuple):
    """The two stacked counts of a day in a chart."""

    day: str
    lower: int
    upper: int


class Chart(NamedTuple):
    """A chart with a bar for each day, oldest first. If nothing was counted, `nothing` is shown instead."""

    name: str
    title: str
    labels: tuple[str, str]
    legend: tuple[str, str]
    nothing: str
    bars: Sequence[Bar]

    @property
    def highest(self) -> Bar:
        """Return the highest bar, which is as high as the chart. If there are several, return the newest."""
        return max(reversed(self.bars), key=lambda bar: bar.lower + bar.upper)


@router.get("/admin")
def overview(operator: Reader, done: str = "") -> Response:
    button = BUTTONS.get(RemedyAction(done)) if done in set(RemedyAction) else None
    return _page(operator, message=button.message if button else "")


@router.post("/admin/remedies/write")
def remedy(operator: Writer, later: BackgroundTasks, action: Text = "", subject: Text = "") -> Response:
    """Carry out the remedy of a finding whose button needs the `write` scope."""
    return _press(operator, Scope.WRITE, action, subject, later)


@router.post("/admin/remedies/send")
def remedy_by_sending(
    operator: Sender, later: BackgroundTasks, action: Text = "", subject: Text = "", pause: Text = ""
) -> Response:
    """Carry out the remedy of a finding whose button needs the `send` scope.

    A pause is not ended if it has another reason than the page showed.
    """
    return _press(operator, Scope.SEND, action, subject, later, pause)


def _press(
    operator: Operator, scope: Scope, action: str, subject: str, later: BackgroundTasks, pause: str = ""
) -> Response:
    button = BUTTONS.get(RemedyAction(action)) if action in set(RemedyAction) else None
    if button is None or button.scope is not scope:
        raise HTTPException(404)
    try:
        result = button.press(Click(operator, subject[:40], later, pause))
    except (NotFound, Conflict) as error:
        return _page(operator, problem=str(error), status=409)
    return _page(operator, created=result) if isinstance(result, CreatedKey) else back_to("/admin", action)


def _page(
    operator: Operator, *, created: CreatedKey | None = None, **outcome: Unpack[FormOutcome]
) -> Response:
    now = operator.now
    days = [(now - timedelta(days=back)).date().isoformat() for back in range(DAYS_CHARTED)]
    oldest_first = days[::-1]
    with operator.db.read() as session:
        results = {
            day: reconciliation.reconcile_edition(session, now, day, operator.figures)
            for day in days[:DAYS_RECONCILED]
        }
        reasons = {
            day: operator.figures.get(
                session, f"reasons {day}", now, partial(ledger.commonest_reasons, session, day)
            )
            for day in results
        }
        # Before the findings: a reason that is added meanwhile is shown, but the button refuses it.
        pauses = {pause.edition: version_of(pause.reason) for pause in ledger.pauses(session)}
        digests = _digests_chart(operator.app.edition_totals.count(session, oldest_first, now))
    others = statistics.get_days(operator, DAYS_CHARTED)
    findings = local_checks.all_findings(operator.app, now, operator.figures)
    return operator.page(
        "admin/overview.html", created=created, reconciliations=results, reasons=reasons,
        charts=[digests, *_charts(others)],
        findings=[_view(finding, operator, pauses) for finding in findings if finding.level is not Level.OK],
        statistics=statistics.get_statistics(operator, days=7),
        sources=sources.list_sources(operator).items,
        fleet=runs.get_workers(operator), idle=registry.start_advice(operator.db),
        meanings=reconciliation.MEANINGS, sending_paused=ledger.ALL_EDITIONS in pauses,
        counted_at=operator.figures.oldest, now=now, **outcome,
    )  # fmt: skip


def _view(finding: Finding, operator: Operator, pauses: Mapping[str, str]) -> FindingView:
    """Return a finding's view. Its advice names a command only if the operator has no button or page.

    `pauses` contains the versions of the reasons for pauses, keyed by edition.
    """
    action = finding.remedy.action if finding.remedy else None
    button, at = BUTTONS[action] if action else None, ACTION_PAGES.get(finding.check.partition(" ")[0])
    if button and not operator.may(button.scope):
        return FindingView(finding, finding.fix, None, at)
    source = button or at
    advice = finding.fix if source is None or source.advice is None else source.advice
    pause = ""
    if finding.remedy and action in ENDS_PAUSE:
        pause = pauses.get(finding.remedy.subject or ledger.ALL_EDITIONS, "")
    return FindingView(finding, advice, button, at, pause)


def _digests_chart(totals: dict[str, dict[DeliveryState, int]]) -> Chart:
    bars = []
    for edition, states in totals.items():
        sent = states[DeliveryState.SENT]
        bars.append(Bar(edition, sent, sum(states.values()) - sent))
    legend = "sent", "not sent: skipped, failed, waiting or suppressed"
    nothing = "No digest was due in the last thirty days."
    return Chart("digests", "Digests", ("Sent", "Not sent"), legend, nothing, bars)


def _charts(days: Sequence[statistics.DayOut]) -> Iterator[Chart]:
    """Yield the charts of growth, and of bounces and complaints."""
    joined = [Bar(day.day.isoformat(), day.joined, day.left) for day in reversed(days)]
    legend = "joined: confirmed, added, imported or back again", "left: unsubscribed or erased"
    yield Chart("growth", "Growth", ("Joined", "Left"), legend, "Nobody joined or left.", joined)
    refused = [Bar(day.day.isoformat(), day.bounces, day.complaints) for day in reversed(days)]
    legend = "subscribers whose email bounced", "subscribers who complained"
    labels, nothing = ("Bounces", "Complaints"), "No mail bounced, and nobody complained."
    yield Chart("refusals", "Bounces and complaints", labels, legend, nothing, refused)
