"""PURE. The receiver of each address, and the number of connections that a receiver accepts.

A receiver judges a sender's mail as a whole. It is a large mail provider with all its domains, or any other
domain.
"""

# The large providers, by domain and by first label (in any country).
_DOMAINS = {
    **dict.fromkeys(("gmail.com", "googlemail.com", "google.com"), "google"),
    **dict.fromkeys(("ymail.com", "rocketmail.com", "verizon.net", "myyahoo.com"), "yahoo"),
    **dict.fromkeys(("icloud.com", "me.com", "mac.com"), "icloud"),
    **dict.fromkeys(("web.de", "mail.com"), "gmx"),
    **dict.fromkeys(("orange.fr", "wanadoo.fr"), "orange"),
}
_LABELS = {
    **dict.fromkeys(("outlook", "hotmail", "live", "msn", "windowslive"), "outlook"),
    **dict.fromkeys(("yahoo", "aol"), "yahoo"),
    "gmx": "gmx",
}
_MAX_COUNTRY = 6  # characters: "com", "co.uk", "com.br"
LARGE_RECEIVERS = frozenset({*_DOMAINS.values(), *_LABELS.values()})
STRICT = frozenset({"google", "outlook"})  # accept fewer connections, and fewer messages over each
STRICT_CONNECTIONS, STRICT_MESSAGES, CONNECTIONS_PER_DOMAIN = 5, 50, 10


def receiver_of(recipient: str) -> str:
    """Return the receiver of an address: a name in LARGE_RECEIVERS, or the domain."""
    domain = recipient.rpartition("@")[2].lower()
    if receiver := _DOMAINS.get(domain):
        return receiver
    label, _, country = domain.partition(".")
    return _LABELS.get(label, domain) if len(country) <= _MAX_COUNTRY else domain
