"""Identify the sender of a request: the address of its client, and the network that counts as one visitor."""

import ipaddress
from collections.abc import Sequence

from fastapi import Request

from app.web.site_state import application


def client_ip(request: Request) -> str:
    """Return the client's address. Use only the part of X-Forwarded-For that trusted proxies wrote."""
    peer = request.client.host if request.client else ""
    chain = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",") if hop.strip()]
    return first_untrusted_hop([*chain, peer], application(request).settings.trusted_proxies)


def first_untrusted_hop(chain: Sequence[str], trusted: Sequence[str]) -> str:
    """Return the last hop that is not a trusted proxy, because all hops before it can be forged.

    If that hop is not an IP address, return the last hop of the chain. If all hops are trusted, return the
    first.
    """
    networks = [ipaddress.ip_network(proxy, strict=False) for proxy in trusted]
    for hop in reversed(chain):
        address = _address(hop)
        if address is None or not any(address in network for network in networks):
            return str(address) if address else chain[-1]
    return chain[0]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address. An IPv4-mapped IPv6 address (::ffff:192.0.2.1) becomes the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def visitor(request: Request) -> str:
    """Return the network that identifies the visitor who sent a request."""
    return network(client_ip(request))


def network(ip: str) -> str:
    """Return the network that counts as one visitor: an IPv4 address or an IPv6 /56.

    Providers assign a /56, or a /64 within one, to each customer.
    """
    address = _address(ip)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), 56), strict=False))
    return str(address or ip)
