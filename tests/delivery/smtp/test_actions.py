"""Test what follows from the refusals that big receivers and common mail servers document."""

import pytest

from app.delivery.smtp import responses
from app.delivery.smtp.responses import Action

REFUSALS = {
    Action.SUPPRESS: [
        "550-5.1.1 The email account that you tried to reach does not exist. Please try double-checking",
        "553 5.1.2 We weren't able to find the recipient domain.",
        "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup",
        "550 5.4.1 Recipient address rejected: Access denied. AS(201806281) [x.prod.protection.outlook.com]",
        "550 5.4.1 [bob@example.com]: Recipient address rejected: Access denied.",
        "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).",
        "550 5.4.310 DNS domain example.invalid does not exist [Message=InfoDomainNonexistent]",
        "554 delivery error: dd This user doesn't have a yahoo.com account (bob@yahoo.com) [0]",
        "552 1 Requested mail action aborted, mailbox not found",
        "550 5.1.1 unknown or illegal alias: bob@icloud.com",
        "550 5.1.1 <bob@proton.me>: Recipient address rejected: Address does not exist",
        "550 5.1.1 User does not exist - <bob@zoho.com>",
        "550 5.7.1 No such user!",
        "550 Message was not accepted -- invalid mailbox. Local mailbox bob@mail.ru is unavailable",
        "550 Mailbox not found. http://service.mail.qq.com/cgi-bin/help?subtype=1&&id=20022&&no=1000728",
        "550 5.1.1 Adresse d au moins un destinataire invalide. Invalid recipient. OFR_416 [416]",
        "Host or domain name not found. Name service error for name=x.example type=A: Host not found",
        "550 User unknown",
        "550 user unknown (in reply to end of DATA command)",
        "550 5.1.6 recipient has moved",
    ],
    Action.COUNT: [
        "550 5.2.1 The email account that you tried to reach is disabled. - gsmtp",
        "552 5.2.2 The recipient's inbox is out of storage space and inactive. - gsmtp",
        "550 4.4.7 QUEUE.Expired; message expired",
        "450 4.4.316 Connection refused [Message=Socket error code 10061]",
        "554 delivery error: dd Sorry your message cannot be delivered. This account was disabled [#102].",
        "451 Resources temporarily unavailable. Please try again later [#4.16.1]",
        "552 5.1.1 Boite du destinataire pleine. Recipient overquota. OFR_417 [417]",
        "451 4.4.3 Host not found, try again",
        "Name service error for name=example.com type=MX: Host not found, try again",
        "type=MX: Malformed or unexpected name server reply",
        "user unknown: temporary failure in lookup, try again later",
        "554 5.1.1 bob@example.com... aliasing/forwarding loop broken (11 aliases deep; 10 max)",
        "554 5.7.1 <bob@example.com>: Recipient address rejected: Access denied",
    ],
    Action.OURS: [
        "550 5.7.26 This mail has been blocked because the sender is unauthenticated. - gsmtp",
        "550 5.7.1 The user or domain that you are sending to (or from) has a policy that prohibited it",
        "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. It is on our block list",
        "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited (S775)",
        "550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required",
        "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume",
        "550 5.7.1 [CS01] Message rejected due to local policy.",
        "541 5.4.1 Mail rejected by destination domain",
        "550 5.4.6 Unusual sending activity detected. Please try after sometime",
        "550 Domain frequency limited [QgAAAJ]",
        "550 Mail content denied. http://service.mail.qq.com/",
        "554-gmx.net Nemesis ESMTP Service not available 554-No SMTP service 554-IP address is black listed.",
        "550 5.2.0 Mail rejete. Mail rejected. OFR_506 [506]",
        "550 5.1.1 <bob@example.com> - 192.0.2.1 has sent to too many recipients this hour.",
        "550 5.7.1 <mail.example.org>: Helo command rejected: Host not found",
        "550 Access denied - Invalid HELO name (See RFC2821 4.1.1.1)",
        "550 5.7.20 DKIM: signing domain not found",
        "550 DKIM signature domain does not exist",
        "550 5.1.8 <x@example.com>: Sender address rejected: Domain not found",
        "550 Sender verify failed: Unrouteable address",
        "550 Response: 550 5.1.1 <x@example.com>: User unknown 550 Sender verify failed",
        "550 5.1.2 Sender address rejected: Domain not found",
    ],
}


@pytest.mark.parametrize(
    ("action", "text"), [(action, text) for action, texts in REFUSALS.items() for text in texts]
)
def test_action_for_documented_refusal(action: Action, text: str) -> None:
    """Nobody is there: suppress. It may pass: count. It is about our host, domain or content: ours."""
    assert responses.diagnose(text).action is action


UNVERIFIED = "450 4.1.1 <bob@example.com>: Recipient address rejected: unverified address: "


@pytest.mark.parametrize(
    ("text", "suppresses"),
    [
        ("451 4.1.1 <bob@example.com>: temporary lookup failure, try again later", False),
        (UNVERIFIED + "Address verification in progress", False),
        (UNVERIFIED + "connect to mx2.example.com[192.0.2.1]:25: Connection timed out", False),
        (UNVERIFIED + "connect to mx2.example.com[192.0.2.1]:25: Connection refused", False),
        (UNVERIFIED + "lost connection with mx2.example.com[192.0.2.1] while sending RCPT TO", False),
        (UNVERIFIED + "host mx2.example.com[192.0.2.1] said: 451 4.3.0 queue file write error", False),
        (UNVERIFIED + "host mx2.example.com[192.0.2.1] said: 450 4.2.1 mailbox unavailable", False),
        (UNVERIFIED + "unknown mail transport error", False),
        (UNVERIFIED + "mail transport unavailable", False),
        (UNVERIFIED + "Cannot start TLS: handshake failure", False),
        (UNVERIFIED + "conversation with mx2.example.com[192.0.2.1] failed", False),
        (UNVERIFIED + "internal server error", False),
        (UNVERIFIED + "Server certificate not trusted", False),
        ("451 4.1.1 <bob@example.com>: recipient lookup failed, database unavailable", False),
        ("450 4.1.1 <bob@example.com>", False),
        (UNVERIFIED + "host mx2.example.com[192.0.2.1] said: 550 5.1.1 user unknown", True),
        (UNVERIFIED + 'unknown user: "bob"', True),
        ("450 4.1.1 <bob@example.com>: User unknown in local recipient table", True),
        ("host mx2.example.com said: 450 4.1.1 <bob@example.com>: user unknown", True),
        ("550 5.1.1 <bob@example.com>: user unknown, do not try again", True),
    ],
)
def test_only_a_verdict_on_the_user_suppresses(text: str, suppresses: bool) -> None:
    """With 4.1.1, the text must state that the user is unknown. Otherwise, it may be an outage."""
    diagnosis = responses.diagnose(text, status=responses.status_in(text), field=True)
    assert (diagnosis.action is Action.SUPPRESS, diagnosis.hard) == (suppresses, suppresses)


def test_delay_never_suppresses() -> None:
    """The email may still arrive."""
    assert responses.diagnose("550 5.1.1 user unknown", delayed=True).action is Action.COUNT
