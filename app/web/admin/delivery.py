"""One email: its state, its digest as it is sent, and the actions that an operator can take."""

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from app import subscribers
from app.errors import NotFound
from app.types import MailKind
from app.web import security
from app.web.admin.double_clicks import AdminRoute
from app.web.admin.sign_in import Reader, Sender, back_to
from app.web.api import deliveries
from app.web.api.auth import DeliveryId

router = APIRouter(include_in_schema=False, route_class=AdminRoute)

PATH = "/admin/deliveries/{delivery_id}"


@router.get(PATH)
def show_delivery(operator: Reader, delivery_id: DeliveryId) -> Response:
    """Show an email. If its digest is stored, show the digest in a frame without scripts and forms."""
    row = deliveries.get_delivery(operator, delivery_id)
    try:
        mail = deliveries.render_delivery(operator, delivery_id)
    except NotFound:
        mail = None
    with operator.db.read() as session:
        address = subscribers.addresses_of(session, [row.subscriber_id]).get(row.subscriber_id, "")
    return operator.page(
        "admin/delivery.html", headers=security.FRAMING_PAGE, delivery=row, mail=mail, address=address
    )


@router.get(PATH + "/html")
def show_html(operator: Reader, delivery_id: DeliveryId) -> Response:
    """Return the HTML part of a digest for the frame on the email's page."""
    mail = deliveries.render_delivery(operator, delivery_id)
    return HTMLResponse(mail.html, headers=security.ADMIN_PAGE | security.FRAMED_MAIL)


@router.post(PATH + "/resend")
def resend(operator: Sender, delivery_id: DeliveryId) -> Response:
    mail = deliveries.resend_delivery(operator, delivery_id)
    return back_to(_page_of(mail), "resent")


@router.post(PATH + "/confirm-arrival")
def confirm_arrival(operator: Sender, delivery_id: DeliveryId) -> Response:
    mail = deliveries.confirm_arrival(operator, delivery_id)
    return back_to(_page_of(mail), "confirmed")


def _page_of(mail: deliveries.DeliveryOut) -> str:
    """Return the path of the page that lists an email: the edition of a digest, or else the subscriber."""
    if mail.kind is MailKind.DIGEST:
        return f"/admin/editions/{mail.edition}"
    return f"/admin/subscribers/{mail.subscriber_id}"
