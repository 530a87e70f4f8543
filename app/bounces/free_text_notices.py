"""PURE. Parse notices in free text: recipients, the quoted SMTP reply, the start of the returned message.

Many mail servers write free text instead of RFC 3464 fields.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.text.sanitize import EMAIL_ADDRESS, LOCAL_PART

MAX_RECIPIENTS = 50

# A line that begins with a recipient's address: "<alice@example.org>: host …", "-> alice@example.org".
_RECIPIENT = re.compile(
    r"[ \t>*-]{0,12}(?:(?:recipient|for|user|address|rcpt)[:\s]{1,20})?[<\[(\"']{0,2}"
    r"(" + LOCAL_PART + r"@[A-Za-z0-9][A-Za-z0-9.-]{1,250})[>\])\"']{0,2}(?=[\s:,.;(]|$)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{1,40}):")
_MAIL_HEADERS = {
    "received",
    "return-path",
    "message-id",
    "dkim-signature",
    "x-originating-ip",
    "mime-version",
}
_REPORT_FIELDS = {
    "reporting-mta",
    "final-recipient",
    "original-recipient",
    "action",
    "status",
    "diagnostic-code",
}
_COPY = re.compile(
    r"[-=_* \t]{0,80}(?:below (?:this line )?is (?:a|the)|(?:this|here) is a copy of|a copy of (?:the|your)|"
    r"(?:the )?headers? (?:of|from) the original|included is a copy|message headers? follows?|"
    r"(?:the )?original message (?:follows|is below|headers?)|returned message|unsent message|"
    r"undelivered message|original message\b|message header)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RecipientDiagnostic:
    """The part of a text that is about one recipient."""

    recipient: str
    text: str


def strip_returned_message(text: str) -> str:
    """Return the server's own text, without the returned message or headers that follow it."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number and ((number > 2 and _COPY.match(line)) or _begins_a_mail(lines, number)):
            return "\n".join(lines[:number])
    return text


def _begins_a_mail(lines: Sequence[str], number: int) -> bool:
    """Return whether the headers of a message begin at this line."""
    names = set()
    for line in lines[number : number + 12]:
        if header := _HEADER.match(line):
            names.add(header[1].lower())
        elif not line[:1].isspace() or not names:
            break
    first = _HEADER.match(lines[number])
    return bool(first and len(names) > 1 and names & _MAIL_HEADERS and not names & _REPORT_FIELDS)


def recipient_diagnostics(text: str, ours: Collection[str]) -> list[RecipientDiagnostic]:
    """Return the recipients in order, each with the text up to the next recipient.

    If no line begins with a recipient, return the first address in the text with the whole text. Skip `ours`,
    the addresses to which the notice was sent, because they belong to the original sender.
    """
    lines_by_address: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        match = _RECIPIENT.match(line)
        address = match[1].strip(".").lower() if match else ""
        if address and "." in address.rpartition("@")[2] and address not in ours:
            if len(lines_by_address) >= MAX_RECIPIENTS:
                break
            current = lines_by_address.setdefault(address, [])
        current.append(line)
    if lines_by_address:
        return [RecipientDiagnostic(address, "\n".join(lines)) for address, lines in lines_by_address.items()]
    addresses = (match[0].lower() for match in EMAIL_ADDRESS.finditer(text[:20_000]))
    first = [address for address in addresses if address not in ours][:1]
    return [RecipientDiagnostic(address, text) for address in first]


_SMTP_REPLY = re.compile(
    r"(?:^|[:>\])][ \t]{1,20}|\b(?:said|out|was|reply|response|reason|with):?[ \t]{0,20}|<<<[ \t]{0,20})"
    r"[\"'(]?(?=[45][0-7]\d[ -][^\n]{3})",
    re.IGNORECASE,
)

_NEXT_LINE_OF_TRANSCRIPT = re.compile(r"[ \t]{0,20}(?:>>>|In:|---|[245]\d\d (?!\d\.\d))")


def quoted_smtp_reply(text: str) -> str:
    """Return the first SMTP refusal in a text up to the end of its paragraph, or "" if there is none."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if match := _SMTP_REPLY.search(line.strip()):
            reply = [line.strip()[match.end() :]]
            for following in lines[number + 1 : number + 9]:
                # In an SMTP transcript, the next command or reply also ends the reply.
                if not following.strip() or _NEXT_LINE_OF_TRANSCRIPT.match(following):
                    break
                reply.append(following.strip())
            return " ".join(reply)
    return ""
