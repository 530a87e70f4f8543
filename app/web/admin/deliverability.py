"""Show bounce and complaint rates by day and receiver, and the suppressed addresses."""

from typing import Unpack

from fastapi import APIRouter, Response
from sqlmodel import col

from app import subscribers
from app.bounces import rates
from app.delivery import ledger, suppression
from app.errors import InvalidAddress, NotFound
from app.storage.models import Suppression
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.pagination import Position, page_at
from app.web.admin.sign_in import FormOutcome, Operator, Reader, Sender, Writer, back_to
from app.web.api import statistics, suppressions
from app.web.forms import Text

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/deliverability"
DAYS_SHOWN = 7
NOTICE_DAYS = 30  # as in the chart of the overview
ENTRIES_SHOWN = 50  # of the suppression list
RECEIVERS_SHOWN = 20  # in the table of the warm-up
MESSAGES = {
    "suppressed": "No mail is sent to this address anymore.",
    "lifted": "The address is no longer suppressed.",
}


@router.get(PATH)
def show_deliverability(operator: Reader, email: str = "", done: str = "") -> Response:
    """Show the bounce and complaint rates of a week. If `email` is given, show whether it is suppressed."""
    if not email:
        return _page(operator, message=MESSAGES.get(done, ""))
    try:
        address = subscribers.normalize_address(email)
    except InvalidAddress as error:
        return _page(operator, problem=str(error), status=422)
    with operator.db.read() as session:
        row = suppression.get(session, address)
    return _page(operator, email=email, row=row, message=MESSAGES.get(done, ""))


@router.get("/admin/suppressions")
def list_suppressed(operator: Reader, why: str = "", at: Position = "") -> Response:
    """List the suppressed addresses whose reason contains `why`.

    The list has a page of its own, because finding the addresses reads all subscribers' addresses.
    """
    why = why[:200]
    with operator.db.read() as session:
        listed = page_at(session, suppression.with_reason(why), col(Suppression.id), ENTRIES_SHOWN, at)
        suppressed = suppressions.describe(session, listed.rows)
    return operator.page("admin/suppressions.html", listed=listed, suppressed=suppressed, why=why)


@router.post(f"{PATH}/suppress")
def suppress(operator: Writer, email: Text = "", reason: Text = "") -> Response:
    body = suppressions.NewSuppression(email=email[:320], reason=operator.reason(reason))
    try:
        suppressions.add_suppression(operator, body)
    except InvalidAddress as error:
        return _page(operator, email=email, problem=str(error), status=422)
    return back_to(PATH, "suppressed")


@router.post(f"{PATH}/lift")
def lift(operator: Sender, email: Text = "", reason: Text = "") -> Response:
    body = suppressions.Lifting(email=email[:320], reason=operator.reason(reason))
    try:
        suppressions.lift_suppression(operator, body)
    except (InvalidAddress, NotFound) as error:
        return _page(operator, email=email, problem=str(error), status=422)
    return back_to(PATH, "lifted")


def _page(
    operator: Operator, *, email: str = "", row: Suppression | None = None, **outcome: Unpack[FormOutcome]
) -> Response:
    with operator.db.read() as session:
        warm_up = ledger.warm_up_status(session, ledger.warm_up_of(operator.settings), operator.now)
    notices = statistics.get_notices(operator, days=NOTICE_DAYS)
    return operator.page(
        "admin/deliverability.html", email=email, row=row, warm_up=warm_up, notices=notices.items,
        receivers_shown=RECEIVERS_SHOWN, warn_percent=rates.WARN_PERCENT, notice_days=NOTICE_DAYS,
        days=DAYS_SHOWN, rates=statistics.get_rates(operator, days=DAYS_SHOWN),
        counted_at=operator.figures.oldest, now=operator.now,
        **outcome,
    )  # fmt: skip
