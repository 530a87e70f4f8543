"""The first page: what needs attention, what was sent, what was not and why, subscribers, sources."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from fastapi import APIRouter, Request, Response

from app import clock
from app.application import Application
from app.delivery import ledger
from app.digests import reconciliation
from app.doctor import service_state
from app.doctor.findings import Level
from app.storage import workers as registry
from app.storage.models import DeliveryState
from app.web.admin.sign_in import Reader, page
from app.web.api import sources, statistics, workers
from app.web.request_bodies import FormRoute

router = APIRouter(include_in_schema=False, route_class=FormRoute)

DAYS_CHARTED = 30
# Where an operator acts on a finding, by the first word of its check.
PAGES = {
    "source": ("/admin/sources", "Look at the sources"),
    "sources": ("/admin/sources", "Add a source"),
    "job": ("/admin/runs?failed=yes", "Look at the failed runs"),
    "key": ("/admin/keys", "Replace or revoke the key"),
    "webhook": ("/admin/webhooks", "Look at the webhooks"),
    "complaints": ("/admin/deliverability#people", "See who complained"),
    "receiver": ("/admin/deliverability", "See the rates"),
    "warm-up": ("/admin/deliverability", "See the limits"),
    "ledger": ("/admin/editions", "Look at the editions"),
    "sending": ("/admin/editions", "Look at what waits"),
}
BAR_WIDTH, CHART_HEIGHT = 10, 80  # in units of the chart


@dataclass(frozen=True, slots=True)
class Bar:
    """The digests of an edition in the chart: those sent, and on top those that were not."""

    edition: str
    sent: int
    others: int
    x: int
    sent_height: float
    others_height: float


@router.get("/admin")
def overview(request: Request, operator: Reader) -> Response:
    app: Application = request.app.state.paperboy
    now = clock.utcnow()
    findings = [
        *service_state.check(app.db, app.models, now),
        *service_state.check_warm_up(app.db, app.settings, now),
        *service_state.check_disk(app.db, Path(app.settings.journal_dir)),
    ]
    with app.db.read() as session:
        days = [(now - timedelta(days=back)).date().isoformat() for back in (0, 1)]
        balances = {day: reconciliation.reconcile(session, now, day) for day in days}
        reasons = {day: ledger.commonest_reasons(session, day) for day in days}
        pauses = ledger.pauses(session)
        bars = _bars(ledger.digest_totals_by_edition(session, _editions(now)))
    return page(
        request, "admin/overview.html", operator,
        balances=balances, reasons=reasons, pauses=pauses, bars=bars,
        findings=[finding for finding in findings if finding.level is not Level.OK],
        statistics=statistics.get_statistics(app, operator.key, now, days=7),
        sources=sources.list_sources(app, operator.key).items,
        fleet=workers.get_workers(app, operator.key), idle=registry.NONE, pages=PAGES,
        meanings=reconciliation.MEANINGS,
        changes={"bounce": "bounced", "complaint": "complained", "declined": "declined the sign-up"},
    )  # fmt: skip


def _editions(now: datetime) -> list[str]:
    """Return the names of the last daily editions, oldest first."""
    return [(now - timedelta(days=back)).date().isoformat() for back in reversed(range(DAYS_CHARTED))]


def _bars(totals: dict[str, dict[DeliveryState, int]]) -> list[Bar]:
    """Return the bars of the chart, or none if there are no digests."""
    counts = []
    for edition, states in totals.items():
        sent = states[DeliveryState.SENT]
        counts.append((edition, sent, sum(states.values()) - sent))
    most = max((sent + others for _, sent, others in counts), default=0)
    if not most:
        return []
    scale = CHART_HEIGHT / most
    return [
        Bar(edition, sent, others, n * BAR_WIDTH, round(sent * scale, 1), round(others * scale, 1))
        for n, (edition, sent, others) in enumerate(counts)
    ]
