"""PURE. The bytes of a mail that came back → notices: who, why, and whether it is for good.

Delivery status notices (RFC 3464), feedback reports (RFC 5965), automatic answers (RFC 3834), and what mail
servers write in words of their own. Nothing in it is believed as to *whose* mail it was: see `events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from app.bounces import free_text, mime_parser
from app.bounces.mime_parser import Part
from app.delivery.smtp import responses
from app.delivery.smtp.responses import Reason
from app.links import RETURN_PATH_DIGITS
from app.text import sanitize

MAX_READ = 16_000  # characters, of what is said about all recipients of a mail
MAX_SAID = 500  # characters of a server's words that are kept
_TO_US = ("delivered-to", "x-original-to", "to", "envelope-to", "x-envelope-to", "x-delivered-to", "cc")
_FEEDBACK = "message/feedback-report"
_STATUS_KINDS = ("message/delivery-status", "message/global-delivery-status")
_RETURNED_KINDS = ("message/rfc822", "message/global", "text/rfc822-headers", "text/rfc822-header",
                   "message/global-headers", "message/rfc822-headers", "message/partial")  # fmt: skip
_VERP = re.compile(rf"bounce\+[0-9a-f]{{{RETURN_PATH_DIGITS}}}@[A-Za-z0-9.-]{{1,250}}", re.IGNORECASE)
_MESSAGE_ID = re.compile(r"<[^<>\s]{1,200}>")


class Kind(StrEnum):
    """What a mail that came back is."""

    BOUNCE = "bounce"  # it was not delivered, and will not be
    DELAYED = "delayed"  # it was not delivered yet
    DELIVERED = "delivered"  # it was
    COMPLAINT = "complaint"  # its reader called it spam
    OPT_OUT = "opt-out"  # its reader wants no more
    REPORT = "report"  # on our signatures and the like, not a reader's word
    VACATION = "vacation"  # somebody's automatic answer
    UNKNOWN = "unknown"  # not a notice, as far as can be told


@dataclass(frozen=True, slots=True)
class Notice:
    """What a mail tells of one recipient. Every text is foreign, and on one line."""

    kind: Kind
    recipient: str = ""
    status: str = ""  # enhanced, of RFC 3463
    reason: Reason = Reason.UNDEFINED
    hard: bool | None = None  # None: it is no bounce
    said: str = ""
    action: str = ""  # of RFC 3464, or the type of a feedback report
    return_paths: tuple[str, ...] = ()  # what may be a return path of ours, the most trusted first
    message_id: str = ""  # of the mail that came back


def read(raw: bytes) -> tuple[Notice, ...]:
    """What a mail tells, one notice a recipient; at least one, if only that it is no notice."""
    mail = mime_parser.parse(raw)
    found = _read(mail, 3) or (Notice(Kind.UNKNOWN),)
    paths, message_id = tuple(dict.fromkeys(_return_paths(mail))), _message_id(mail)
    return tuple(
        replace(
            notice,
            recipient=one_line(notice.recipient, 320),
            said=one_line(notice.said, MAX_SAID),
            action=one_line(notice.action, 40),
            return_paths=paths,
            message_id=message_id,
        )
        for notice in found[: free_text.MAX_RECIPIENTS]
    )


def _read(mail: Part, depth: int) -> tuple[Notice, ...]:
    for reader in (_complaints, _delivery_reports, _automatic_answer, _in_words):
        if found := reader(mail):
            return found
    # Somebody forwarded a notice as an attachment.
    inner = (whole for part in mail.walk() if part.kind == "message/rfc822" for whole in part.parts)
    return next((found for each in inner if depth and (found := _read(each, depth - 1))), ())


# --- feedback reports


def _complaints(mail: Part) -> tuple[Notice, ...]:
    report = next((part for part in mail.walk() if part.kind == _FEEDBACK), None)
    returned = _returned(mail)
    if report is None:
        if re.match(r"complaint about message from", mail.header("subject"), re.IGNORECASE) and returned:
            who = returned.header("x-hmxmroriginalrecipient") or returned.header("to")
            return (_complaint("abuse", who, mail.header("subject")),)
        return ()
    fields = _fields(_lines(report))
    kinds = fields.get("feedback-type", ["abuse"])
    named = fields.get("original-rcpt-to") or fields.get("removal-recipient") or []
    if not named and returned:
        named = [returned.header("to")]
    words = _words(mail)
    return tuple(
        _complaint(kinds[0], address, words) for address in (named or [""])[: free_text.MAX_RECIPIENTS]
    )


def _complaint(kind: str, who: str, said: str) -> Notice:
    kind = kind.strip().lower()
    found = sanitize.EMAIL_ADDRESS.search(who)
    what = {"opt-out": Kind.OPT_OUT, "opt-out-list": Kind.OPT_OUT, "abuse": Kind.COMPLAINT}.get(
        kind, Kind.REPORT
    )
    return Notice(what, found[0] if found else "", "", Reason.FEEDBACK, None, said, kind)


# --- delivery status notices


_ARRIVED = ("delivered", "relayed", "expanded", "deliverable")


def _delivery_reports(mail: Part) -> tuple[Notice, ...]:
    """From the report's own part or, where broken MIME left none, from its fields in the text."""
    reports = [part for part in mail.walk() if part.kind in _STATUS_KINDS]
    words = _words(mail)
    texts = [_lines(part) for part in reports] or [whole for part in _readable(mail) if (whole := part.text)]
    groups = [group for text in texts for group in _groups(text)]
    several, most = len(groups) > 1, _share(len(groups))
    said = (
        {each.recipient: each.said for each in reversed(free_text.recipient_diagnostics(words, ()))}
        if several
        else {}
    )
    found = []
    for group in groups[: free_text.MAX_RECIPIENTS]:
        who = _recipient(group)
        elsewhere = said.get(who.lower(), "")[:most] if several else words
        found.append(_reported(group, who, elsewhere, most))
    return tuple(found)


def _share(recipients: int) -> int:
    """Return how many characters on each recipient are read: the meaning of 1,000 takes up to 20 ms."""
    return MAX_READ // min(max(recipients, 1), free_text.MAX_RECIPIENTS)


def _groups(text: str) -> Iterator[dict[str, list[str]]]:
    for block in re.split(r"\n[ \t]*\n", text):
        fields = _fields(block)
        recipient = {"final-recipient", "original-recipient", "x-actual-recipient"} & fields.keys()
        if recipient and {"action", "status", "diagnostic-code"} & fields.keys():
            yield fields


def _recipient(group: dict[str, list[str]]) -> str:
    for name in ("final-recipient", "original-recipient", "x-actual-recipient"):
        for value in group.get(name, ()):
            if found := sanitize.EMAIL_ADDRESS.search(value.partition(";")[2] or value):
                return found[0]
    return next(iter(group.get("final-recipient", [""]))).partition(";")[2].strip()


def _reported(group: dict[str, list[str]], who: str, words: str, most: int) -> Notice:
    action = group.get("action", [""])[0].strip().lower().partition(" ")[0]
    status = responses.status_in(group.get("status", [""])[0])
    said, own = _diagnosis(group, words)
    said = said[:most]
    if action in _ARRIVED or (status.startswith("2.") and action != "failed"):
        return Notice(Kind.DELIVERED, who, status, Reason.DELIVERED, None, said, action)
    delayed, field = action == "delayed", "diagnostic-code" in group
    meant = responses.diagnose(said, words, status=status, delayed=delayed, own=own, field=field)
    if meant.reason is Reason.FILTERED and group.get("x-powermta-bouncecategory") == ["bad-mailbox"]:
        meant = replace(meant, reason=Reason.USER_UNKNOWN, hard=not delayed)  # a field of PowerMTA's own
    shown = said or words or group.get("status", [""])[0]
    kind = Kind.DELAYED if delayed else Kind.BOUNCE
    return Notice(kind, who, meant.status or status, meant.reason, meant.hard, shown, action)


def _diagnosis(group: dict[str, list[str]], words: str) -> tuple[str, bool]:
    """What was answered, and whether it is the reporting server that says so, quoting no other."""
    written = " ".join(group.get("diagnostic-code", []))
    typed = re.match(r"\s{0,20}([\w-]{1,20})\s{0,20};\s{0,20}", written)
    said = written[typed.end() :] if typed else written
    own = typed[1].lower() != "smtp" if typed else not written
    if re.search(r"[^\W\d]{3}", said):
        return said, own
    quoted = free_text.quoted_smtp_reply(words)
    return quoted, own and not quoted


# --- automatic answers


_DELAYED = re.compile(r"\bdelay(?:ed)?\b|\bstill being retried\b", re.IGNORECASE)
_ONLY_DELAYED = re.compile(
    r"\bwarning message only\b|\bstill undelivered\b|\b(?:has )?not yet been delivered\b|"
    r"\bwill (?:keep trying|continue to be (?:re)?tried)\b",
    re.IGNORECASE,
)
_AWAY = re.compile(
    r"\b(?:out of (?:the )?office|auto(?:matic|mated)?[- ]?(?:reply|response|answer)|away (?:until|from)|"
    r"on (?:vacation|holiday|leave)|currently away|vacation (?:reply|response)|abwesen|auto: |autosvar|"
    r"automatisch(?:e antwort| antwoord)|réponse automatique|absence du bureau|"
    r"r(?:espuesta|isposta|esposta) autom[aá]tica|fuera de (?:la )?oficina|автоматический ответ|автоответ)|"
    r"自動(?:応答|返信|回覆)|自动(?:回复|答复)",
    re.IGNORECASE,
)
_FROM_A_DAEMON = re.compile(r"mailer-daemon|post_?master|mail delivery|mdaemon", re.IGNORECASE)


def _automatic_answer(mail: Part) -> tuple[Notice, ...]:
    """RFC 3834. A server that returns mail may mark that as an answer, too: then it names whom it failed."""
    subject = mail.header("subject")
    automatic = mail.header("auto-submitted").lower().startswith("auto-replied") or any(
        mail.header(name)
        for name in ("x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-response-suppress")
    )
    daemon = _FROM_A_DAEMON.search(mail.header("from")) or mail.header("x-failed-recipients")
    away = _AWAY.search(subject)
    if daemon or not (automatic or away):
        return ()
    if responses.mentions_failure(subject[: away.start()] if away else subject):
        return ()  # "Undeliverable: Automatic reply" tells of an answer that came back
    found = sanitize.EMAIL_ADDRESS.search(mail.header("from"))
    return (
        Notice(Kind.VACATION, found[0] if found else "", "", Reason.VACATION, None, _words(mail) or subject),
    )


# --- in words


def _in_words(mail: Part) -> tuple[Notice, ...]:
    words = _words(mail)
    failed = [found[0] for found in sanitize.EMAIL_ADDRESS.finditer(mail.header("x-failed-recipients"))]
    if not failed and not _sounds_like_a_notice(mail, words):
        return ()
    ours = {
        found[0].lower()
        for name in ("to", "delivered-to")
        for found in sanitize.EMAIL_ADDRESS.finditer(mail.header(name))
    }
    told = free_text.recipient_diagnostics(words, ours)
    if len(failed) == 1 or not told:
        told = [
            free_text.RecipientDiagnostic((failed or [each.recipient for each in told] or [""])[0], words)
        ]
    delayed = bool(_DELAYED.search(mail.header("subject")) or _ONLY_DELAYED.search(words))
    around = words if len(told) == 1 else ""  # what is said of others says nothing of this one
    most = _share(len(told))
    told = [free_text.RecipientDiagnostic(each.recipient, each.said[:most]) for each in told]
    return tuple(_worded(each, around, mail, delayed) for each in told)


def _worded(each: free_text.RecipientDiagnostic, around: str, mail: Part, delayed: bool) -> Notice:
    said = free_text.quoted_smtp_reply(each.said) or each.said
    elsewhere = f"{each.said}\n{around}\n{mail.header('subject')}"
    meaning = responses.diagnose(said, elsewhere, delayed=delayed)
    kind = Kind.DELAYED if delayed else Kind.BOUNCE
    return Notice(kind, each.recipient, meaning.status, meaning.reason, meaning.hard, said)


def _sounds_like_a_notice(mail: Part, words: str) -> bool:
    sender = f"{mail.header('from')} {mail.header('return-path')} {mail.header('sender')}"
    empty = mail.header("return-path").strip() == "<>" or mail.header("from").strip() in ("<>", "")
    said = responses.mentions_failure(mail.header("subject")) or responses.mentions_failure(words[:2000])
    return bool(
        (empty or _FROM_A_DAEMON.search(sender) or responses.mentions_failure(mail.header("subject")))
        and said
    )


# --- what all of them use


def _readable(mail: Part) -> list[Part]:
    """The parts that a person reads, up to the returned mail."""
    found = []
    for part in mail.walk():
        if part.kind in _RETURNED_KINDS:
            break
        if part.kind in ("text/plain", "text/html"):
            found.append(part)
    plain = [part for part in found if part.kind == "text/plain" and part.text.strip()]
    return plain or found


def _words(mail: Part) -> str:
    return free_text.strip_returned_message("\n".join(part.text for part in _readable(mail)))[
        : mime_parser.MAX_TEXT
    ]


def _returned(mail: Part) -> Part | None:
    """The mail that is returned, or its headers."""
    for part in mail.walk():
        if part.kind in _RETURNED_KINDS:
            return part.parts[0] if part.parts else mime_parser.parse(part.body)
    return None


def _lines(part: Part) -> str:
    """A part made of fields. Some write its fields where the headers of the part belong."""
    stray = "\n".join(f"{name}: {value}" for name, values in part.headers.items() for value in values
                      if not name.startswith(("content-", "mime-")))  # fmt: skip
    return f"{stray}\n\n{part.text}" if stray else part.text


def _fields(text: str) -> dict[str, list[str]]:
    """Fields as RFC 3464 writes them, unfolded; lines that are none are passed over."""
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


def _return_paths(mail: Part) -> Iterator[str]:
    """Addresses that have the form of our return paths: first those to which the notice came."""
    texts = [value for name in _TO_US for value in mail.headers.get(name, ())]
    texts += mail.headers.get("received", ())
    texts += [
        value
        for part in mail.walk()
        if part.kind == _FEEDBACK
        for value in _fields(_lines(part)).get("original-mail-from", ())
    ]
    returned = _returned(mail)
    if returned:
        texts += returned.headers.get("return-path", ())
    for text in texts:
        yield from verp_in(text)


def verp_in(text: str) -> Iterator[str]:
    """Addresses that have the form of our return paths; the signer tells which are."""
    return (found[0] for found in _VERP.finditer(text))


def _message_id(mail: Part) -> str:
    returned = _returned(mail)
    found = _MESSAGE_ID.search(returned.header("message-id")) if returned else None
    return found[0] if found else ""


def one_line(text: str, most: int) -> str:
    """Foreign text on one line, without control characters, and cut."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 4 * most])
    return " ".join(shown.split())[:most]
