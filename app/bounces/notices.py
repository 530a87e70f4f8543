"""PURE. Parse a message into notices: the recipient, the reason, and whether the failure is permanent.

The supported formats are delivery status notices (RFC 3464), feedback reports (RFC 5965), automatic replies
(RFC 3834) and free text. A notice does not prove which of our messages it is about (see
`recording.find_delivery`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from app.bounces import free_text_notices, mime_parser
from app.bounces.automatic_replies import FROM_A_DAEMON, is_automatic_reply
from app.bounces.mime_parser import Part
from app.delivery.smtp import responses
from app.delivery.smtp.responses import Action, Reason
from app.links import RETURN_PATH_DIGITS
from app.text import sanitize

MAX_READ = 16_000  # characters of diagnostics read per message, for all recipients together
MAX_DIAGNOSTIC = 500  # characters stored per diagnostic
_RECIPIENT_HEADERS = (
    "delivered-to",
    "x-original-to",
    "to",
    "envelope-to",
    "x-envelope-to",
    "x-delivered-to",
    "cc",
)
_FEEDBACK = "message/feedback-report"
_STATUS_KINDS = ("message/delivery-status", "message/global-delivery-status")
_RETURNED_KINDS = ("message/rfc822", "message/global", "text/rfc822-headers", "text/rfc822-header",
                   "message/global-headers", "message/rfc822-headers", "message/partial")  # fmt: skip
_VERP = re.compile(rf"bounce\+[0-9a-f]{{{RETURN_PATH_DIGITS}}}@[A-Za-z0-9.-]{{1,250}}", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,200}>")


class Kind(StrEnum):
    BOUNCE = "bounce"  # not delivered, and not retried
    DELAYED = "delayed"  # not delivered yet
    DELIVERED = "delivered"
    COMPLAINT = "complaint"  # the subscriber marked the message as spam
    OPT_OUT = "opt-out"  # the subscriber does not want more mail
    REPORT = "report"  # a report by a server, for example about authentication
    VACATION = "vacation"  # an automatic reply
    UNKNOWN = "unknown"  # not recognized as a notice


@dataclass(frozen=True, slots=True)
class Notice:
    """The information about one recipient in a message. Each text is an untrusted single line."""

    kind: Kind
    recipient: str = ""
    status: str = ""  # enhanced status code (RFC 3463)
    reason: Reason = Reason.UNDEFINED
    hard: bool | None = None  # None: not a bounce
    diagnostic: str = ""
    reported: str = ""  # Action field (RFC 3464), or the type of a feedback report
    return_paths: tuple[str, ...] = ()  # return paths that look like ours, most trusted first
    message_id: str = ""  # Message-ID of the returned message
    action: Action = Action.IGNORE


def parse(raw: bytes) -> tuple[Notice, ...]:
    """Parse a message into one notice per recipient, or into one UNKNOWN notice if it is not recognized."""
    mail = mime_parser.parse(raw)
    notices = _parse_mail(mail, 3) or (Notice(Kind.UNKNOWN),)
    returned = _returned_mail(mail)
    message_id = _MESSAGE_ID.search(returned.header("message-id")) if returned else None

    # Begin with the addresses to which the notice was sent, because they are the most trusted.
    headers = [value for name in _RECIPIENT_HEADERS for value in mail.headers.get(name, ())]
    headers += mail.headers.get("received", ())
    for part in mail.walk():
        if part.kind == _FEEDBACK:
            headers += _fields(_field_text(part)).get("original-mail-from", ())
    headers += returned.headers.get("return-path", ()) if returned else ()
    paths = tuple(dict.fromkeys(path for header in headers for path in return_paths_in(header)))

    return tuple(
        replace(
            notice,
            recipient=printable_line(notice.recipient, 320),
            diagnostic=printable_line(notice.diagnostic, MAX_DIAGNOSTIC),
            reported=printable_line(notice.reported, 40),
            return_paths=paths,
            message_id=message_id[0] if message_id else "",
        )
        for notice in notices[: free_text_notices.MAX_RECIPIENTS]
    )


def _parse_mail(mail: Part, depth: int) -> tuple[Notice, ...]:
    for parser in (_parse_complaint, _parse_delivery_report, _parse_automatic_reply, _parse_free_text):
        if notices := parser(mail):
            return notices
    # A notice may have been forwarded as an attachment.
    attached = (inner for part in mail.walk() if part.kind == "message/rfc822" for inner in part.parts)
    nested = (_parse_mail(inner, depth - 1) for inner in attached if depth)
    return next((notices for notices in nested if notices), ())


# --- feedback reports


def _parse_complaint(mail: Part) -> tuple[Notice, ...]:
    report = next((part for part in mail.walk() if part.kind == _FEEDBACK), None)
    returned = _returned_mail(mail)
    if report is None:
        if re.match(r"complaint about message from", mail.header("subject"), re.IGNORECASE) and returned:
            recipient = returned.header("x-hmxmroriginalrecipient") or returned.header("to")
            return (_complaint("abuse", recipient, mail.header("subject")),)
        return ()
    fields = _fields(_field_text(report))
    kinds = fields.get("feedback-type", ["abuse"])
    recipients = fields.get("original-rcpt-to") or fields.get("removal-recipient") or []
    if not recipients and returned:
        recipients = [returned.header("to")]
    text = _readable_text(mail)
    return tuple(
        _complaint(kinds[0], recipient, text)
        for recipient in (recipients or [""])[: free_text_notices.MAX_RECIPIENTS]
    )


def _complaint(feedback_type: str, recipient: str, text: str) -> Notice:
    feedback_type = feedback_type.strip().lower()
    address = sanitize.EMAIL_ADDRESS.search(recipient)
    kind, action = feedback_consequences(feedback_type)
    recipient = address[0] if address else ""
    return Notice(kind, recipient, "", Reason.FEEDBACK, None, text, feedback_type, action=action)


def feedback_consequences(feedback_type: str) -> tuple[Kind, Action]:
    """Return the kind of notice for a Feedback-Type (RFC 5965), and the action to take."""
    match feedback_type.strip().lower():
        case "abuse":
            return Kind.COMPLAINT, Action.COMPLAINT
        case "opt-out" | "opt-out-list":
            return Kind.OPT_OUT, Action.COMPLAINT
    return Kind.REPORT, Action.IGNORE  # such as "not-spam", or a report about authentication


# --- delivery status notices


_DELIVERED_ACTIONS = ("delivered", "relayed", "expanded", "deliverable")
_RECIPIENT_FIELDS = ("final-recipient", "original-recipient", "x-actual-recipient")


def _parse_delivery_report(mail: Part) -> tuple[Notice, ...]:
    """Parse the report parts of a message. If broken MIME hides them, parse report fields in the text."""
    reports = [part for part in mail.walk() if part.kind in _STATUS_KINDS]
    text = _readable_text(mail)
    sources = [_field_text(part) for part in reports] or [part.text for part in _readable_parts(mail)]
    # Each group of fields describes one recipient (RFC 3464, 2.3).
    blocks = [_fields(block) for source in sources for block in re.split(r"\n[ \t]*\n", source)]
    groups = [
        fields
        for fields in blocks
        if fields.keys() & set(_RECIPIENT_FIELDS) and fields.keys() & {"action", "status", "diagnostic-code"}
    ]
    several, limit = len(groups) > 1, _diagnostic_limit(len(groups))
    text_about = {}
    if several:
        diagnostics = free_text_notices.recipient_diagnostics(text, ())
        text_about = {diagnostic.recipient: diagnostic.text for diagnostic in reversed(diagnostics)}
    notices = []
    for group in groups[: free_text_notices.MAX_RECIPIENTS]:
        recipient = _recipient(group)
        context = text_about.get(recipient.lower(), "")[:limit] if several else text
        notices.append(_group_notice(group, recipient, context, limit))
    return tuple(notices)


def _diagnostic_limit(recipients: int) -> int:
    """Return the number of characters to read per recipient.

    The number is limited because classifying 1,000 characters takes up to 20 ms.
    """
    return MAX_READ // min(max(recipients, 1), free_text_notices.MAX_RECIPIENTS)


def _recipient(group: dict[str, list[str]]) -> str:
    for name in _RECIPIENT_FIELDS:
        for value in group.get(name, ()):
            if address := sanitize.EMAIL_ADDRESS.search(value.partition(";")[2] or value):
                return address[0]
    return next(iter(group.get("final-recipient", [""]))).partition(";")[2].strip()


def _group_notice(group: dict[str, list[str]], recipient: str, context: str, limit: int) -> Notice:
    """Build a notice from a group of fields. `context` is the free text about its recipient."""
    action = group.get("action", [""])[0].strip().lower().partition(" ")[0]
    status = responses.status_in(group.get("status", [""])[0])
    # A diagnostic is the reporting server's own text, or its quotation of the next server's reply.
    value = " ".join(group.get("diagnostic-code", []))
    prefix = re.match(r"\s{0,20}([\w-]{1,20})\s{0,20};\s{0,20}", value)
    diagnostic = value[prefix.end() :] if prefix else value
    own = prefix[1].lower() != "smtp" if prefix else not value
    if not re.search(r"[^\W\d]{3}", diagnostic):
        diagnostic = free_text_notices.quoted_smtp_reply(context)
        own = own and not diagnostic
    diagnostic = diagnostic[:limit]
    if action in _DELIVERED_ACTIONS or (status.startswith("2.") and action != "failed"):
        return Notice(Kind.DELIVERED, recipient, status, Reason.DELIVERED, None, diagnostic, action)
    delayed, field = action == "delayed", "diagnostic-code" in group
    diagnosis = responses.diagnose(diagnostic, context, status=status, delayed=delayed, own=own, field=field)
    if diagnosis.reason is Reason.FILTERED and group.get("x-powermta-bouncecategory") == ["bad-mailbox"]:
        # PowerMTA reports in a field of its own that the mailbox does not exist.
        action_now = Action.COUNT if delayed else Action.SUPPRESS
        diagnosis = replace(diagnosis, reason=Reason.USER_UNKNOWN, hard=not delayed, action=action_now)
    shown_text = diagnostic or context or group.get("status", [""])[0]
    kind = Kind.DELAYED if delayed else Kind.BOUNCE
    status = diagnosis.status or status
    return Notice(
        kind, recipient, status, diagnosis.reason, diagnosis.hard, shown_text, action, action=diagnosis.action
    )


# --- automatic replies


def _parse_automatic_reply(mail: Part) -> tuple[Notice, ...]:
    if not is_automatic_reply(mail):
        return ()
    sender = sanitize.EMAIL_ADDRESS.search(mail.header("from"))
    text = _readable_text(mail) or mail.header("subject")
    return (Notice(Kind.VACATION, sender[0] if sender else "", "", Reason.VACATION, None, text),)


# --- free text


_DELAYED = re.compile(r"\bdelay(?:ed)?\b|\bstill being retried\b", re.IGNORECASE)
# Unlike `responses.mentions_failure`, this does not include "Delivery Status Notification (Delay)".
_FAILED = re.compile(
    r"\bundeliverable\b|\bfail(?:ed|ure)\b|\breturned (?:mail|message|to sender)\b|\b(?:un|nicht )zustellbar",
    re.IGNORECASE,
)
_ONLY_DELAYED = re.compile(
    r"\bwarning message only\b|\bstill undelivered\b|\b(?:has )?not yet been delivered\b|"
    r"\bwill (?:keep trying|continue to be (?:re)?tried)\b",
    re.IGNORECASE,
)


def _parse_free_text(mail: Part) -> tuple[Notice, ...]:
    text = _readable_text(mail)
    failed = [address[0] for address in sanitize.EMAIL_ADDRESS.finditer(mail.header("x-failed-recipients"))]
    if not failed and not _looks_like_a_notice(mail, text):
        return ()
    ours = {
        address[0].lower()
        for name in ("to", "delivered-to")
        for address in sanitize.EMAIL_ADDRESS.finditer(mail.header(name))
    }
    diagnostics = free_text_notices.recipient_diagnostics(text, ours)
    if len(failed) == 1 or not diagnostics:
        recipients = failed or [diagnostic.recipient for diagnostic in diagnostics] or [""]
        diagnostics = [free_text_notices.RecipientDiagnostic(recipients[0], text)]
    delayed = bool(_subject_delays(mail.header("subject"), text) or _ONLY_DELAYED.search(text))
    context = text if len(diagnostics) == 1 else ""  # otherwise, the text is about other recipients, too
    limit = _diagnostic_limit(len(diagnostics))
    notices = []
    for diagnostic in diagnostics:
        about = diagnostic.text[:limit]
        reply = free_text_notices.quoted_smtp_reply(about) or about
        elsewhere = f"{about}\n{context}\n{mail.header('subject')}"
        diagnosis = responses.diagnose(reply, elsewhere, delayed=delayed)
        kind = Kind.DELAYED if delayed else Kind.BOUNCE
        details = (diagnosis.status, diagnosis.reason, diagnosis.hard, reply)
        notices.append(Notice(kind, diagnostic.recipient, *details, action=diagnosis.action))
    return tuple(notices)


def _subject_delays(subject: str, text: str) -> bool:
    """Return whether the subject of a notice says that delivery is only delayed.

    The subject may quote that of the digest, which names a paper. Mentioned before the title, a failure
    outweighs it, and so does a permanent refusal in the text.
    """
    delay = _DELAYED.search(subject)
    if not delay or free_text_notices.quoted_smtp_reply(text).startswith("5"):
        return False
    return not _FAILED.search(subject[: delay.start()])


def _looks_like_a_notice(mail: Part, text: str) -> bool:
    sender = f"{mail.header('from')} {mail.header('return-path')} {mail.header('sender')}"
    no_sender = mail.header("return-path").strip() == "<>" or mail.header("from").strip() in ("<>", "")
    subject_fails = responses.mentions_failure(mail.header("subject"))
    return bool(
        (no_sender or FROM_A_DAEMON.search(sender) or subject_fails)
        and (subject_fails or responses.mentions_failure(text[:2000]))
    )


# --- shared by all parsers


def _readable_parts(mail: Part) -> list[Part]:
    """Return the text parts before the returned message: plain text if there is any, otherwise HTML."""
    parts = []
    for part in mail.walk():
        if part.kind in _RETURNED_KINDS:
            break
        if part.kind in ("text/plain", "text/html"):
            parts.append(part)
    plain = [part for part in parts if part.kind == "text/plain" and part.text.strip()]
    return plain or parts


def _readable_text(mail: Part) -> str:
    text = "\n".join(part.text for part in _readable_parts(mail))
    return free_text_notices.strip_returned_message(text)[: mime_parser.MAX_TEXT]


def _returned_mail(mail: Part) -> Part | None:
    """Return the returned message, or None if there is none. It may consist of headers only."""
    for part in mail.walk():
        if part.kind in _RETURNED_KINDS:
            return part.parts[0] if part.parts else mime_parser.parse(part.body)
    return None


def _field_text(part: Part) -> str:
    """Return the text of a report's fields. Some servers write the fields as headers of the part."""
    stray = "\n".join(f"{name}: {value}" for name, values in part.headers.items() for value in values
                      if not name.startswith(("content-", "mime-")))  # fmt: skip
    return f"{stray}\n\n{part.text}" if stray else part.text


def _fields(text: str) -> dict[str, list[str]]:
    """Parse fields (RFC 3464), which may be folded. Other lines are ignored."""
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if line[:1] in (" ", "\t") and values:
            values[-1] = f"{values[-1]} {line.strip()}"[: mime_parser.MAX_HEADER]
        elif colon and re.fullmatch(r"[A-Za-z][\w-]{1,60}", name.strip()):
            values = fields.setdefault(name.strip().lower(), [])
            values.append(value.strip()[: mime_parser.MAX_HEADER])
        else:
            values = []
    return fields


def return_paths_in(text: str) -> Iterator[str]:
    """Yield the addresses that look like our return paths. `LinkSigner` verifies them."""
    return (match[0] for match in _VERP.finditer(text))


def printable_line(text: str, limit: int) -> str:
    """Return untrusted text as one line of at most `limit` characters that a terminal or log can show.

    Unlike `sanitize.one_line`, this does not normalize the text, and it replaces every unprintable character
    with a space, including joiners and private or unassigned characters.
    """
    printable = "".join(char if char.isprintable() else " " for char in text[: 4 * limit])
    return " ".join(printable.split())[:limit]
