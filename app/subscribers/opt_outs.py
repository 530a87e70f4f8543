"""PURE. Find the people in another service's export who get no mail from it.

The names and values are those of listmonk, Buttondown, Substack, Ghost, beehiiv, Kit, Mailchimp, MailerLite
and phpList. A value that is not listed here counts as an opt-out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# Columns that contain a state, and the states in which a service sends its newsletter.
_STATES = ("status", "subscriber_type", "subscriber_status", "subscription_status", "email_status")
_SUBSCRIBED = frozenset({
    "active", "confirmed", "enabled", "subscribed",
    "free", "paid", "comped",  # Ghost
    "regular", "premium", "gifted", "trialed", "churning", "past_due", "unpaid",  # Buttondown
})  # fmt: skip
# Columns that contain “no”, or are empty, if the person gets mail. Otherwise, they contain “yes” or a time.
_LEFT = (
    "email_disabled",  # Substack
    "unsub_time", "clean_time",  # Mailchimp
    "deleted_at",  # Ghost
    "blacklisted",  # phpList
    "unsubscribed", "unsubscribed_at", "blocklisted", "bounced", "complained", "opted_out", "opted_out_at",
)  # fmt: skip
# Columns that contain “no” if the person gets no mail: of Ghost and phpList.
_STAYED = ("subscribed", "subscribed_to_emails", "confirmed")
_NO = frozenset({"no", "n", "false", "f", "0"})
COLUMNS = (*_STATES, *_LEFT, *_STAYED)


def column_name(heading: str) -> str | None:
    """Return the name among COLUMNS of the column with this heading, or None if it is another column."""
    name = re.sub(r"[\W_]+", "_", heading.lower()).strip("_")
    return name if name in COLUMNS else None


def find_opt_out(row: Mapping[str, Any]) -> str | None:
    """Return the first column that says that a person gets no mail, or None if there is none."""
    for name in COLUMNS:
        value = (row.get(name) or "").strip().lower()
        gets_mail = not value or (
            value in _SUBSCRIBED if name in _STATES
            else value in _NO if name in _LEFT
            else value not in _NO
        )  # fmt: skip
        if not gets_mail:
            return name
    return None
