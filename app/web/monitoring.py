"""Health checks and Prometheus metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import SecurityScopes
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select

from app import clock, subscribers
from app.application import Application
from app.bounces import rates
from app.delivery import ledger
from app.delivery.receivers import LARGE_RECEIVERS
from app.delivery.warm_up import WarmUp, WarmUpStatus
from app.digests import planning, reconciliation
from app.papers import source_registry
from app.relevance import model_store
from app.storage import job_runs, schema, worker_registry
from app.storage.api_keys import Scope
from app.storage.database_errors import is_full, is_read_only
from app.storage.figure_cache import FigureCache, FigureReader
from app.storage.models import JobRun, SendingPause
from app.web.api import auth
from app.web.api.statistics import count_papers
from app.web.site_state import application, cached, capacity, db

router = APIRouter()

CHECKED_EVERY, RATES_EVERY = timedelta(minutes=5), timedelta(minutes=1)


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Report that the process responds. If there is no response, restart the process.

    The check uses no pool thread, so that it succeeds while all threads are busy.
    """
    return {"status": "ok"}


@router.get("/readyz")
def readyz(request: Request) -> JSONResponse:
    """Report whether the database is usable, and list the jobs whose last run failed."""
    try:
        fault = schema.revision_fault(db(request)) or schema.table_fault(db(request))
        if not fault:
            db(request).require_writes()
            failed = cached(request, "failed_jobs", RATES_EVERY, job_runs.failed_jobs)
    except SQLAlchemyError as error:
        state = "read-only" if is_read_only(error) else "full" if is_full(error) else "unreachable"
        return JSONResponse({"status": "unavailable", "database": state}, 503)
    if fault:
        return JSONResponse({"status": "unavailable", "database": fault.message}, 503)
    return JSONResponse({"status": "ok", "database": "ok", "failed_jobs": failed})


def _require_operator(request: Request, now: auth.Now, given: auth.Given) -> None:
    """Require a key with the `read` scope, unless the base URL is on this machine.

    Without a key, a visitor could sign up with an address and learn from the counts whether it was known.
    Raise HTTPException (401 or 403) if the key is missing or wrong.
    """
    app = application(request)
    if urlsplit(app.settings.base_url).hostname not in ("127.0.0.1", "localhost", "::1"):
        auth.holder(request, app, now, SecurityScopes([Scope.READ.value]), given)


@router.get("/metrics", dependencies=[Depends(_require_operator)], response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Return counts and times as Prometheus metrics. They contain no personal data.

    No label is called `job` or `instance`: Prometheus sets these itself, and would rename ours.
    """
    app, registry = application(request), CollectorRegistry()
    with capacity(request).api.take():
        # These values are cached, because the queries read all subscribers and the emails of eight days.
        ledger_state = cached(request, "reconciliation", RATES_EVERY, partial(_reconcile, app.db.figures))
        today = cached(request, "rates_today", RATES_EVERY, partial(rates.by_day, days=1))
        ramp = ledger.warm_up_of(app.settings)
        warm_up = cached(request, "warm_up", RATES_EVERY, partial(_warm_up_status, ramp))
        registry.register(_DatabaseCollector(app, ledger_state, today, warm_up))
        ProcessCollector(registry=registry)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _DatabaseCollector(Collector):
    """A collector that reads metrics from the database, so that every process reports the same values."""

    def __init__(
        self,
        app: Application,
        ledger_state: reconciliation.Reconciliation,
        today: Sequence[rates.ReceiverRate],
        warm_up: WarmUpStatus | None,
    ) -> None:
        self._app, self._ledger_state, self._today, self._warm_up = app, ledger_state, today, warm_up

    def collect(self) -> Iterator[Metric]:
        with self._app.db.read() as session:
            yield _state_metric("subscribers", subscribers.count_by_state(session))
            deliveries = self._app.edition_totals.count_all(session, clock.utcnow())
            yield _state_metric("deliveries", deliveries)
            yield from _ledger_metrics(self._ledger_state)
            yield _gauge("papers", "Papers in the archive.", count_papers(session))
            yield _gauge(
                "digests_failed",
                "Due digests that could not be composed because of an error, and are tried again every hour.",
                planning.count_failed(session, clock.utcnow()),
            )
            late = planning.lateness(session, clock.utcnow()).total_seconds()
            yield _gauge(
                "digest_lateness_seconds",
                "Seconds for which the oldest overdue digest has been waiting.",
                late,
            )
            paused = session.exec(select(func.count()).select_from(SendingPause)).one()
            yield _gauge(
                "sending_pauses",
                "Sending pauses: one each for all sending, for first digests and for every paused edition.",
                paused,
            )
            yield from _warm_up_metrics(self._warm_up)
            for name in ("sent", "bounces", "complaints"):
                numbers = [(rate.receiver, getattr(rate, name)) for rate in self._today]
                yield _gauges(f"{name}_today", f"Emails today (UTC): {name}.", "receiver", numbers)
            sources = source_registry.all_sources(session)
            failures = [(source.name, source.failures) for source in sources]
            yield _gauges("source_failures", "Consecutive failed polls of a source.", "source", failures)
            polled = [(source.name, source.polled_at.timestamp()) for source in sources if source.polled_at]
            yield _gauges(
                "source_polled_timestamp_seconds", "Time of the last successful poll.", "source", polled
            )
            ended = col(JobRun.ended_at)
            last = session.exec(
                select(JobRun.job, func.max(ended)).where(ended.is_not(None)).group_by(JobRun.job)
            )
            times = [(job, at.timestamp() if at else 0) for job, at in last]
            yield _gauges("job_ended_timestamp_seconds", "Time at which a job last ended.", "name", times)
            yield from _worker_metrics(session)
            yield from _model_metrics(self._app.models.versions(session))


def _reconcile(cache: FigureCache, session: Session, now: datetime) -> reconciliation.Reconciliation:
    """Reconcile the recent editions. In a large installation, use what an alert or a page has counted.

    `metrics` caches the result for another minute, so it is at most CHECKED_EVERY old.
    """
    return reconciliation.reconcile_recent(session, now, FigureReader(cache, CHECKED_EVERY - RATES_EVERY))


def _ledger_metrics(state: reconciliation.Reconciliation) -> Iterator[Metric]:
    yield _gauge("digests_due", "Digests due in the editions from yesterday to tomorrow.", state.due)
    about = "Digests due in the editions from yesterday to tomorrow, but missing from the ledger."
    yield _gauge("digests_missing", about, state.missing)
    yield _gauge("digests_surplus", "Digests in the ledger that were not due.", state.surplus)


def _warm_up_status(warm_up: WarmUp | None, session: Session, now: datetime) -> WarmUpStatus | None:
    return ledger.warm_up_status(session, warm_up, now)


def _warm_up_metrics(status: WarmUpStatus | None) -> Iterator[Metric]:
    """Yield today's limit, if any, and the number of waiting digests by receiver.

    All other domains are counted together.
    """
    if status is None or status.limit is None:
        return
    yield _gauge("warm_up_limit", "Maximum number of emails to each receiver today.", status.limit)
    waiting = Counter[str]()
    for use in status.receivers:
        waiting[use.receiver if use.receiver in LARGE_RECEIVERS else rates.OTHERS] += use.waiting
    about = "Digests that wait until tomorrow because of the warm-up."
    yield _gauges("warm_up_waiting", about, "receiver", sorted(waiting.items()))


def _worker_metrics(session: Session) -> Iterator[Metric]:
    statuses = worker_registry.statuses(session)
    lost = sum(status.lost for status in statuses)
    numbers = [("alive", len(statuses) - lost), ("lost", lost)]
    yield _gauges("workers", "Processes that run jobs.", "state", numbers)
    seen = [(status.name, status.seen_at.timestamp()) for status in statuses]
    yield _gauges("worker_seen_timestamp_seconds", "Time of a worker's last heartbeat.", "worker", seen)
    counts = GaugeMetricFamily("paperboy_jobs", "Jobs on PostgreSQL by state.", labels=["name", "state"])
    for each in worker_registry.job_counts(session):
        counts.add_metric([each.job, each.state], each.count)
    yield counts


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"paperboy_{name}", about, value=value)


def _gauges(name: str, about: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    metric = GaugeMetricFamily(f"paperboy_{name}", about, labels=[label])
    for labelled, value in values:
        metric.add_metric([labelled], value)
    return metric


def _state_metric(name: str, counts: Mapping[Any, int]) -> Metric:
    return _gauges(name, f"{name.title()} in each state.", "state", counts.items())


def _model_metrics(versions: Sequence[model_store.ModelVersion]) -> Iterator[Metric]:
    refused = len(model_store.rejected_versions(versions))
    yield _gauge("models_invalid", "Models newer than the one in use that cannot be read.", refused)
    for version in versions:
        if version.in_use:
            at = version.trained_at.timestamp()
            yield _gauge("model_trained_timestamp_seconds", "Time at which the model in use was trained.", at)
            yield _gauge(
                "model_papers", "Papers that the model in use was trained on.", version.archive.papers
            )
