"""PURE. The mail provider of each address, and the number of connections that a provider accepts."""

from __future__ import annotations

# Providers that judge a sender across all their domains, by domain and by first label (in any country).
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
PROVIDERS = frozenset({*_DOMAINS.values(), *_LABELS.values()})
STRICT = frozenset({"google", "outlook"})  # accept fewer connections, and fewer messages over each
STRICT_CONNECTIONS, STRICT_MESSAGES, CONNECTIONS_PER_DOMAIN = 5, 50, 10


def provider_of(recipient: str) -> str:
    """Return the provider whose limits apply to an address: a known provider's name, or the domain."""
    domain = recipient.rpartition("@")[2].lower()
    if provider := _DOMAINS.get(domain):
        return provider
    label, _, country = domain.partition(".")
    return _LABELS.get(label, domain) if len(country) <= _MAX_COUNTRY else domain
