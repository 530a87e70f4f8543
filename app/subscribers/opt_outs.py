"""PURE. Find the people in another service's export who get no mail from it.

Columns and values are those of listmonk, Buttondown, Substack, Ghost, beehiiv, Kit, Mailchimp, MailerLite and
phpList. Empty cells are ignored; any other unlisted value counts as an opt-out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_STATE_COLUMNS = ("status", "subscriber_type", "subscriber_status", "subscription_status", "email_status")
_OPT_IN_COLUMNS = (
    "subscribed", "subscribed_to_emails", "confirmed",  # Ghost and phpList
    "opt_in", "opted_in", "email_opt_in",
)  # fmt: skip
# Also with “_at”, “_date” or “_time”. They say “no” if the person gets mail, and otherwise “yes” or a time.
_OPT_OUT_COLUMNS = (
    "email_disabled",  # Substack
    "unsub", "clean", "cleaned",  # Mailchimp
    "deleted",  # Ghost
    "blacklisted",  # phpList
    "unsubscribed", "unsubscribe", "opted_out", "opt_out", "email_opt_out", "blocklisted", "suppressed",
    "bounced", "complained",
)  # fmt: skip

_ACTIVE_STATES = frozenset({
    "active", "confirmed", "enabled", "subscribed",
    "free", "paid", "comped",  # Ghost
    "regular", "premium", "gifted", "trialed", "churning", "past_due", "unpaid",  # Buttondown
    "yes", "y", "true", "t", "on", "1", "1.0",
    "opted in", "opted-in", "opted_in", "opt in", "opt-in", "opt_in",
})  # fmt: skip
_FALSE_VALUES = frozenset({
    "no", "n", "false", "f", "off", "0", "0.0", "never", "none", "null", r"\n", "n/a", "-",
})  # fmt: skip
# A day, which a time may follow: 2026-11-20, 20.11.2026, 20261120, 20 Nov 2026, Nov 20, 2026 or a Unix time
_TIME = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?!\d)|(?:19|20)\d{6}(?:\d{6})?(?!\d)|\d{10}(?:\d{3})?(?:\.\d+)?\Z|"
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},? )?(?:\d{1,2}[- ])?"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?[- ](?:\d{1,2},? )?\d{4}(?!\d)"
)
_NO_TIME = "0000-00-00"  # as MySQL writes it, perhaps with a time

# The columns and, in lower case, the values of people who get mail
_ACTIVE_VALUES = {
    **dict.fromkeys((*_STATE_COLUMNS, *_OPT_IN_COLUMNS), _ACTIVE_STATES),
    "email_status": _ACTIVE_STATES | {"valid", "verified", "ok"},
    **dict.fromkeys(
        (f"{name}{suffix}" for name in _OPT_OUT_COLUMNS for suffix in ("", "_at", "_date", "_time")),
        _FALSE_VALUES,
    ),
}
COLUMNS = frozenset(_ACTIVE_VALUES)


def column_name(heading: str) -> str | None:
    """Return the name among COLUMNS of the column with this heading, or None if it is another column."""
    name = re.sub(r"[\W_]+", "_", heading.lower()).strip("_").removeprefix("is_").replace("e_mail", "email")
    return name if name in COLUMNS else None


def find_opt_out(row: Mapping[str, Any]) -> str | None:
    """Return the first column that says that a person gets no mail, or None if there is none."""
    for name in filter(COLUMNS.__contains__, row):
        value = (row[name] or "").strip().lower()
        if value.startswith(_NO_TIME):
            value = "0"
        is_time = name in _OPT_IN_COLUMNS and _TIME.match(value)
        if value and value not in _ACTIVE_VALUES[name] and not is_time:
            return name
    return None
