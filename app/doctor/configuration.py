"""Check the settings: unknown names, addresses and, with other modules, folders and DKIM keys."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from dotenv import dotenv_values

from app.doctor import dkim_keys, file_permissions, own_templates
from app.doctor.findings import Finding, error, ok, warning
from app.settings import ENCODING, Settings
from app.text.in_words import count_of

PREFIX = "PAPERBOY_"
SETTING_NAMES = {PREFIX + name.upper() for name in Settings.model_fields}
RESERVED_DOMAINS = (".localdomain", ".local", ".invalid", ".test", ".example", ".internal")


def unknown_settings(environ: Mapping[str, str], env_file: Path) -> Iterator[Finding]:
    """Warn about variables that begin with PAPERBOY_ but are not settings, such as misspelled names."""
    names_by_origin: dict[str, Iterable[str]] = {"the environment": environ}
    with suppress(UnicodeDecodeError):  # the settings cannot be loaded, which is reported then
        if env_file.is_file():
            names_by_origin[str(env_file)] = dotenv_values(env_file, encoding=ENCODING)
    for origin, names in names_by_origin.items():
        for name in sorted(names):
            if name.upper().startswith(PREFIX) and name.upper() not in SETTING_NAMES:
                without_prefix = name.lower().removeprefix(PREFIX.lower())  # which all names share
                fix = "remove it; .env.example lists all settings"
                similar_names = get_close_matches(without_prefix, Settings.model_fields, n=1, cutoff=0.75)
                for similar in similar_names:
                    fix = f"did you mean {PREFIX}{similar.upper()}?"
                yield warning(
                    f"setting {name}", f"it is set in {origin}, but Paperboy has no such setting", fix
                )


def check(settings: Settings) -> Iterator[Finding]:
    """Check for settings that are valid but may not work or may be unsafe."""
    yield ok("settings", "all are valid")
    if path := urlsplit(settings.base_url).path:
        yield error(
            "base_url",
            f"it has the path {path}: emails link to it, but pages link to the root of the host, so "
            "subscribers can't sign up or change their preferences",
            "give Paperboy a host name of its own and set PAPERBOY_BASE_URL to it; let the proxy also serve "
            "the old address, so that links in earlier emails still work",
        )
    elif settings.base_url.startswith("https://"):
        yield ok("base_url", f"links begin with {settings.base_url}")
    else:
        yield warning(
            "base_url",
            f"links begin with {settings.base_url}: subscribers can't open them securely, and one-click "
            "unsubscribe needs https",
            "put Paperboy behind a proxy with TLS and set PAPERBOY_BASE_URL to its https:// address",
        )
    if is_public_domain(settings.mail_domain):
        yield ok("from_address", f"emails are sent from {settings.from_address}")
    else:
        message = f"emails are sent from {settings.from_address}, whose domain is not public"
        yield warning("from_address", message, "set PAPERBOY_FROM_ADDRESS to an address on your own domain")
    for name in ("postal_address", "contact_address"):
        if not getattr(settings, name):
            yield warning(
                name,
                "it is not set, and many countries require newsletters to name their sender",
                f"set PAPERBOY_{name.upper()}",
            )
    yield from file_permissions.check(settings)
    yield from own_templates.check(settings)
    for key in settings.dkim_keys:
        yield from dkim_keys.check_key(key)
    minutes = settings.compose_ahead_minutes
    if settings.dkim_keys and not minutes:
        message = "emails are signed only when they are due, so large editions are late"
        yield warning("compose_ahead_minutes", message, "set PAPERBOY_COMPOSE_AHEAD_MINUTES to 10")
    else:
        when = f"{count_of(minutes, 'minute')} before they are due" if minutes else "when they are due"
        yield ok("compose_ahead_minutes", f"digests are composed {when}")


def is_public_domain(domain: str) -> bool:
    """Return whether a domain can exist in the public DNS (RFC 2606, 6761, 6762)."""
    return "." in domain and not f".{domain}".endswith(RESERVED_DOMAINS)
