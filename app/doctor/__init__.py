"""What is wrong with this installation, and how to mend it: every finding comes with its remedy.

setup      the settings: names, files, folders          findings   what all of these say
lately     the database, and what happened in it
returns    whether what comes back can be read
relay      what the relay announces, and by which TLS
domain     SPF, DKIM, DMARC, MX and PTR records, as others see them; spf and names help it
public     whether the web app answers where links lead; by network, only when told to
rehearsal  a digest is sent to a mail server of our own, and left by its one click: a whole service for
           one moment, which sink receives, received reads and oneclick leaves
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import dns.resolver

from app import lexicon
from app.db import Database
from app.doctor import domain, lately, public, relay, returns, setup
from app.doctor.findings import Finding as Finding
from app.doctor.findings import Level as Level
from app.doctor.findings import error
from app.doctor.lately import lateness as lateness
from app.doctor.lately import schema as schema
from app.doctor.setup import strange as strange
from app.settings import Settings
from app.sources import client

Look = Callable[[], Iterable[Finding]]


def examine(
    settings: Settings,
    now: datetime,
    *,
    resolver: dns.resolver.Resolver | None = None,
    online: client.Wire | None = None,
) -> list[Finding]:
    """Look at everything, all at once: some answers take a while. What cannot be looked at is a finding.

    `resolver` is asked about names; by default the one that this machine is set up with. `online` is how
    the web app is asked for where its links lead; by default it is not.
    """
    database = Database(settings.database_url)
    try:
        return _together(_parts(settings, database, now, resolver, online))
    finally:
        database.dispose()


def _parts(
    settings: Settings,
    database: Database,
    now: datetime,
    resolver: dns.resolver.Resolver | None,
    online: client.Wire | None,
) -> dict[str, Look]:
    from app.doctor import rehearsal  # it makes a whole service, whose web pages know us

    parts: dict[str, Look] = {
        "settings": lambda: setup.look(settings),
        "database": lambda: lately.look(database, lexicon.Lexicon(), now),
        "bounces": lambda: returns.look(settings, database, now),
        "relay": lambda: relay.look(settings, now),
        "dns": lambda: domain.look(settings, resolver),
        "mail": lambda: rehearsal.look(settings),
    }
    if online:
        parts["online"] = lambda: public.look(settings, now, online)
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
