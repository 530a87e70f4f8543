"""PURE. Name a subscriber's events and changed preferences in the words of the preferences page."""

from collections.abc import Iterable

# The names of the kinds that `count_changes` counts must also fit after a number: "3 subscribed again".
EVENTS = {
    "signed_up": "signed up",
    "signup_asked": "sign-up requested",
    "signup_refused": "sign-up refused",
    "confirmed": "confirmed",
    "added": "added",
    "declined": "declined the sign-up",
    "link_asked": "link requested",
    "link_refused": "link refused",
    "first_asked": "first digest requested",
    "changed": "preferences changed",
    "digest_withdrawn": "digest withdrawn",
    "paused": "paused",
    "resumed": "resumed",
    "unsubscribed": "unsubscribed",
    "unsubscribe_mail": "unsubscription requested by email",
    "came_back": "subscribed again",
    "address_asked": "change of address requested",
    "address_changed": "address changed",
    "signup_replaced": "sign-up replaced by a change of address",
    "change_ended": "change of address ended",
    "new_links": "new links created",
    "export_asked": "download of data requested",
    "erasure_asked": "erasure requested",
    "erased": "erased",
    "bounce": "bounced",
    "soft_bounce": "bounced temporarily",
    "complaint": "complained",
    "opt_out": "opted out",
    "refused_us": "our mail was refused",
    "trusted_again": "no longer bouncing",
}
PREFERENCES = {
    "cadence": "how often",
    "weekday": "day of the week",
    "hour": "time of day",
    "zone": "time zone",
    "min_papers": "minimum papers",
    "max_papers": "maximum papers",
    "when_empty": "when no papers match",
    "max_trending": "trending beyond the interests",
    "paper_updates": "updates on earlier papers",
    "muted": "muted",
    "interests": "interests",
}


def name_event(kind: str) -> str:
    """Return the name of a kind of event or, if it has none, the kind with spaces for underscores."""
    return EVENTS.get(kind, kind.replace("_", " "))


def name_detail(kind: str, detail: str) -> str:
    """Return the detail of an event. For a change, it lists the changed preferences."""
    return name_preferences(detail.split(", ")) if kind == "changed" else detail


def name_preferences(names: Iterable[str]) -> str:
    """Return a list of preferences, such as "time of day, interests"."""
    return ", ".join(PREFERENCES.get(name, name.replace("_", " ")) for name in names)
