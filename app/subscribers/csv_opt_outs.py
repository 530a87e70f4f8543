"""PURE. Find the people in another service's export who get no mail from it.

Columns and values are those of listmonk, Buttondown, Substack, Ghost, beehiiv, Kit, Mailchimp, MailerLite and
phpList. Empty cells are ignored; any other unlisted value counts as an opt-out.
"""

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
EARLIEST_YEAR = 1990  # services write a time in the year 0, 1, 1900 or 1970 if they have none; it means “no”
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},? )?"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
# The beginnings of months in English, French, German, Italian, Portuguese and Spanish, for dates such as
# 20. März 2026.
_MONTH_AFTER_DAY = (
    r"(?:a[bpv]r|ago|ao[uû]|aug|d[eé][cz]|dic|ene|f[eé][bv]|gen|giu|jan|jui|jul|jun|lug|ma[giry]|mär|nov|o[ck]t|ott"
    r"|out|sep|set)[^\W\d_]{0,7}\.?"
)
# A date, with or without a time. The group is the year, which a Unix time of 10 or 13 digits does not name.
_DATE = re.compile(
    r"(\d{4})[-./年] ?\d{1,2}[-./月] ?\d{1,2}(?!\d)"  # 2026-11-20, 2026年11月20日
    r"|\d{1,2}[-./]\d{1,2}[-./](\d{4}|\d{2})(?!\d)"  # 20.11.2026, 11/20/26
    r"|((?:19|20)\d{2})\d{4}(?:\d{4}|\d{6})?(?!\d)"  # 20261120, 202611200800, 20261120T080000Z
    r"|\d{10}(?:\d{3})?(?:\.\d+)?\Z"
    rf"|{_WEEKDAY}\d{{1,2}}(?:st|nd|rd|th|\.)?[- ](?:de )?{_MONTH_AFTER_DAY},?[- ](?:de )?(\d{{4}})(?!\d)"
    rf"|{_WEEKDAY}{_MONTH}[- ](?:\d{{1,2}}(?:st|nd|rd|th)?,? (?:[\d:]{{5,8}} )?)?(\d{{4}})(?!\d)"
)

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
        date = _DATE.match(value)
        if date and _is_missing(date):
            value, date = "0", None
        is_opt_in = bool(date) and name in _OPT_IN_COLUMNS
        if value and value not in _ACTIVE_VALUES[name] and not is_opt_in:
            return name
    return None


def _is_missing(date: re.Match[str]) -> bool:
    year = next(filter(None, date.groups()), "")
    return len(year) == 4 and int(year) < EARLIEST_YEAR
