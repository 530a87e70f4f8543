"""Check this installation. A finding that reports a problem also says how to fix it.

findings          the result of a check
local_checks      the list of the checks that need no network
configuration     the settings: unknown names, addresses
file_permissions  folders that we cannot write to, files that other users can read
own_templates     the operator's own templates: names and encoding
dkim_keys         DKIM keys: permissions, length, and the DNS records that publish them
service_state     the database and its records: jobs, workers, keys, webhooks, backups, models
sources           the sources of papers, and the arXiv categories
sending           late and missing digests, pauses, receivers, failed emails, the warm-up
bounces           the mailbox, folder or webhook through which bounce notices arrive
disk_space        the free space on the disk
relay             the relay: its extensions, TLS and size limit
dns_records       the MX, SPF, DMARC, PTR, MTA-STS and TLS-RPT records
dns_lookup        DNS queries with a deadline; a parser for the tag=value lists of DKIM and DMARC records
spf               SPF evaluation
daily_report      the daily report to the operators
alerts            alerts to the operators as soon as something needs attention
operator_mail     emails to the operators
web_reachability  the web app at the base URL, requested over the network; runs only with --online
test_mail         a test digest, sent from a temporary service to our own mail server
smtp_sink         the mail server for the test digest and the demo
message_checks    the headers, signatures, content and size of the received test digest
templates         the templates of all kinds of email and of the pages
traces            the OpenTelemetry collector
oneclick          the one-click link and the unsubscribe address of the test digest
"""

from collections.abc import Mapping
from datetime import datetime
from threading import Thread

import dns.resolver

from app.doctor import bounces, dns_records, local_checks, relay, test_mail, traces, web_reachability
from app.doctor.findings import Check, Finding, Level, run_check
from app.doctor.test_mail import TemporaryService
from app.papers.sources import http_client
from app.relevance import model_store
from app.settings import Settings
from app.storage.database import Database


def run_checks(
    settings: Settings,
    now: datetime,
    *,
    resolver: dns.resolver.Resolver | None = None,
    online: http_client.HttpTransport | None = None,
    service: TemporaryService | None = None,
) -> list[Finding]:
    """Run all checks concurrently, because some wait for slow servers. Report a failed check as an error.

    `resolver` answers DNS queries; the default is the system's resolver. `online` is the HTTP transport for
    requesting the web app at its base URL; if it is None, the web app is not requested. `service` builds the
    service that sends a test digest; if it is None, no digest is sent.
    """
    database = Database(settings.database_url, create=False)
    checks: dict[str, Check] = {
        **local_checks.settings_checks(settings, database, now),
        **local_checks.service_checks(settings, database, model_store.ModelStore(), now),
        "mailbox": lambda: bounces.check_mailbox(settings.bounce_mailbox),
        "relay": lambda: relay.check(settings, now),
        "dns": lambda: dns_records.check(settings, resolver),
        "traces": lambda: traces.check(settings.otel_endpoint),
    }
    if service:
        checks["mail"] = lambda: test_mail.check(settings, service)
    if online:
        checks["online"] = lambda: web_reachability.check(settings, now, online)
    try:
        return _run_concurrently(checks)
    finally:
        database.dispose()


def _run_concurrently(checks: Mapping[str, Check]) -> list[Finding]:
    """Run each check in a daemon thread, so that Ctrl-C ends the process even if a server does not reply."""
    findings = dict[str, list[Finding]]()

    def run(name: str, check: Check) -> None:
        findings[name] = run_check(name, check)

    threads = [Thread(target=run, args=each, name=each[0], daemon=True) for each in checks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [finding for name in checks for finding in findings[name]]
