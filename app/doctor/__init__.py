"""Checks of this installation. Each finding says what is wrong and how to mend it.

findings          what a check returns
configuration     the settings: names, files, folders
service_state     the database, and what happened in it lately
bounces           whether bounce notices can be read
relay             what the relay announces, and its TLS
dns_records       SPF, DKIM, DMARC, MX and PTR records, as others see them
dns_lookup        DNS queries with a deadline
spf               SPF evaluation
tags              the tag=value lists of DKIM and DMARC records
web_reachability  whether the web app answers where links lead; by network, only when asked for
test_mail         send a digest to a mail server of our own, in a temporary service
smtp_sink         that mail server
message_checks    what a receiver would look at in the mail
oneclick          unsubscribe by its one-click link
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import dns.resolver

from app.doctor import bounces, configuration, dns_records, relay, service_state, test_mail, web_reachability
from app.doctor.configuration import unknown_settings
from app.doctor.findings import Finding, Level, error
from app.doctor.service_state import lateness, schema
from app.doctor.test_mail import TemporaryService
from app.papers.sources import http_client
from app.relevance import model_store
from app.settings import Settings
from app.storage.database import Database

Look = Callable[[], Iterable[Finding]]


def examine(
    settings: Settings,
    now: datetime,
    *,
    resolver: dns.resolver.Resolver | None = None,
    online: http_client.HttpTransport | None = None,
    service: TemporaryService | None = None,
) -> list[Finding]:
    """Look at everything, all at once: some answers take a while. What cannot be looked at is a finding.

    `resolver` is asked about names; by default the one that this machine is set up with. `online` is how
    the web app is asked for where its links lead; by default it is not. `service` is how the service is made
    that sends a test digest; by default none is sent.
    """
    database = Database(settings.database_url)
    try:
        return _together(_parts(settings, database, now, resolver, online, service))
    finally:
        database.dispose()


def _parts(
    settings: Settings,
    database: Database,
    now: datetime,
    resolver: dns.resolver.Resolver | None,
    online: http_client.HttpTransport | None,
    service: TemporaryService | None,
) -> dict[str, Look]:
    parts: dict[str, Look] = {
        "settings": lambda: configuration.check(settings),
        "database": lambda: service_state.check(database, model_store.ModelStore(), now),
        "bounces": lambda: bounces.check(settings, database, now),
        "relay": lambda: relay.check(settings, now),
        "dns": lambda: dns_records.check(settings, resolver),
    }
    if service:
        parts["mail"] = lambda: test_mail.check(settings, service)
    if online:
        parts["online"] = lambda: web_reachability.check(settings, now, online)
    return parts


def _together(parts: dict[str, Look]) -> list[Finding]:
    with ThreadPoolExecutor(len(parts)) as pool:
        looking = [pool.submit(_all, name, look) for name, look in parts.items()]
        return [finding for each in looking for finding in each.result()]


def _all(name: str, look: Look) -> list[Finding]:
    found: list[Finding] = []
    try:
        found.extend(look())
    except Exception as fault:
        said = f"could not be looked at: {type(fault).__name__}: {fault}"
        found.append(error(name, said, "this is a fault of Paperboy's own: please report it with this line"))
    return found
