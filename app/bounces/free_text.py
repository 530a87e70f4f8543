"""PURE. What a notice says in words: where the returned mail begins, whom it is about, what it quotes.

Half of the world's mail servers return mail in words of their own instead of in the fields of RFC 3464.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.text.sanitize import EMAIL_ADDRESS, LOCAL_PART

MAX_RECIPIENTS = 50

# A line that begins with the address it is about: "<alice@example.org>: host …", "-> alice@example.org".
_ABOUT = re.compile(
    r"[ \t>*-]{0,12}(?:(?:recipient|for|user|address|rcpt)[:\s]{1,20})?[<\[(\"']{0,2}"
    r"(" + LOCAL_PART + r"@[A-Za-z0-9][A-Za-z0-9.-]{1,250})[>\])\"']{0,2}(?=[\s:,.;(]|$)",
    re.IGNORECASE,
)
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{1,40}):")
_OF_A_MAIL = {"received", "return-path", "message-id", "dkim-signature", "x-originating-ip", "mime-version"}
_OF_A_REPORT = {
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
    """What was said about one recipient."""

    recipient: str
    said: str


def strip_returned_message(text: str) -> str:
    """What the server says, without the mail, or its headers, that it returns behind it."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if number and ((number > 2 and _COPY.match(line)) or _begins_a_mail(lines, number)):
            return "\n".join(lines[:number])
    return text


def _begins_a_mail(lines: Sequence[str], number: int) -> bool:
    """Whether a block of headers begins here that only a whole mail has."""
    names = set()
    for line in lines[number : number + 12]:
        found = _HEADER.match(line)
        if found:
            names.add(found[1].lower())
        elif not line[:1].isspace() or not names:
            break
    first = _HEADER.match(lines[number])
    return bool(first and len(names) > 1 and names & _OF_A_MAIL and not names & _OF_A_REPORT)


def about(text: str, ours: Collection[str]) -> list[RecipientDiagnostic]:
    """Recipients in the order in which they are named, each with the words up to the next one.

    `ours` are the addresses to which the notice came: it tells of a mail that they sent.
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        named = _ABOUT.match(line)
        address = named[1].strip(".").lower() if named else ""
        if address and "." in address.rpartition("@")[2] and address not in ours:
            if len(found) >= MAX_RECIPIENTS:
                break
            current = found.setdefault(address, [])
        current.append(line)
    if found:
        return [RecipientDiagnostic(address, "\n".join(lines)) for address, lines in found.items()]
    return [RecipientDiagnostic(address, text) for address in _any_address(text, ours)]


def _any_address(text: str, ours: Collection[str]) -> list[str]:
    seen = (found[0].lower() for found in EMAIL_ADDRESS.finditer(text[:20_000]))
    return [address for address in seen if address not in ours][:1]


_ANSWER = re.compile(
    r"(?:^|[:>\])][ \t]{1,20}|\b(?:said|out|was|reply|response|reason|with):?[ \t]{0,20}|<<<[ \t]{0,20})"
    r"[\"'(]?(?=[45][0-7]\d[ -][^\n]{3})",
    re.IGNORECASE,
)


def answer_in(text: str) -> str:
    """The first refusal by SMTP that a text quotes, to the end of its paragraph; empty without one."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if found := _ANSWER.search(line.strip()):
            return " ".join([line.strip()[found.end() :], *_rest_of(lines[number + 1 : number + 9])])
    return ""


def _rest_of(lines: Sequence[str]) -> list[str]:
    """Lines up to the end of the paragraph, or to the next command of a transcript."""
    rest = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith((">>>", "In:", "---")):
            break
        rest.append(line.strip())
    return rest
