"""Check the settings: unknown names, addresses, folders and DKIM keys."""

from __future__ import annotations

import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values
from sqlalchemy import make_url

from app.doctor.findings import Finding, error, ok, warning
from app.errors import InvalidSettings
from app.mail import dkim
from app.settings import Settings
from app.text.in_words import count_of

PREFIX = "PAPERBOY_"
SETTING_NAMES = {PREFIX + name.upper() for name in Settings.model_fields}
RESERVED_DOMAINS = (".localdomain", ".local", ".invalid", ".test", ".example", ".internal")


def unknown_settings(environ: Mapping[str, str], env_file: Path) -> Iterator[Finding]:
    """Warn about variables that begin with PAPERBOY_ but are not settings, such as misspelt names."""
    names_by_origin: dict[str, Iterable[str]] = {"the environment": environ}
    if env_file.is_file():
        names_by_origin[str(env_file)] = dotenv_values(env_file)
    for origin, names in names_by_origin.items():
        for name in sorted(names):
            if name.upper().startswith(PREFIX) and name.upper() not in SETTING_NAMES:
                similar = get_close_matches(name.upper(), SETTING_NAMES, n=1, cutoff=0.75)
                fix = (
                    f"did you mean {similar[0]}?" if similar else "remove it; .env.example lists all settings"
                )
                yield warning(
                    f"setting {name}", f"it is set in {origin}, but Paperboy has no such setting", fix
                )


def check(settings: Settings) -> Iterator[Finding]:
    """Check for settings that are valid but may not work or may be unsafe."""
    yield ok("settings", "all are valid")
    if settings.base_url.startswith("https://"):
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
    yield from _check_files(settings)
    for key in settings.dkim_keys:
        yield from _check_key(key)
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


def _check_files(settings: Settings) -> Iterator[Finding]:
    """Check that our folders are writable, and that other users cannot read the journals or the database."""
    yield _check_folder(settings, "journal_dir", "sending")
    yield _check_folder(settings, "search_dir", "searching")
    files = [("journal_dir", Path(settings.journal_dir), "700")]
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        paths = (Path(f"{url.database}{ending}") for ending in ("", "-wal", "-shm"))
        files += [("database file", path, "600") for path in paths]
    for name, path, mode in files:
        # A folder that only its owner can enter protects its contents.
        if path.exists() and _is_open(path) and _is_open(path.absolute().parent):
            yield _readable_by_others(name, path, mode)


def _check_folder(settings: Settings, name: str, needed_by: str) -> Finding:
    folder = Path(getattr(settings, name))
    # The folder is created when it is needed, so check its nearest existing parent.
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if reason := write_error(existing):
        other = f"set PAPERBOY_{name.upper()} to another folder: {needed_by} needs it"
        fix = f"let Paperboy write there, or {other}"
        return error(name, f"{folder} cannot be written to: {reason}", fix)
    return ok(name, f"{folder} can be written to")


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def _readable_by_others(check_name: str, path: Path, mode: str) -> Finding:
    message = f"other users of this machine can read {path} ({stat.filemode(path.stat().st_mode)})"
    return warning(check_name, message, f"run `chmod {mode} {shlex.quote(str(path))}` as its owner")


def write_error(folder: Path) -> str:
    """Try to create a file in a folder. Return the error, or an empty string on success."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as fault:
        return fault.strerror or str(fault)


def _check_key(setting: str) -> Iterator[Finding]:
    """Check that a DKIM key is readable only by its owner, can sign, and is long enough."""
    selector, _, name = setting.partition(":")
    check_name, path, is_open = f"dkim key {selector}", Path(name), False
    with suppress(OSError):  # `dkim.load` reports a missing file
        is_open = _is_open(path)
    if is_open:
        yield _readable_by_others(check_name, path, "600")
    try:
        (key,) = dkim.load([setting])
    except InvalidSettings as fault:
        fix = "create a key with `paperboy key dkim dkim.pem`, and set PAPERBOY_DKIM_KEYS as it prints"
        yield error(check_name, str(fault), fix)
        return
    if key.algorithm is dkim.Algorithm.RSA and key.bits < dkim.GOOD_BITS:
        message = f"it has {key.bits} bits: some providers ignore signatures made with such short keys"
        fix = "create a key with `paperboy key dkim new.pem --selector new`; add it to PAPERBOY_DKIM_KEYS"
        yield warning(check_name, message, fix)
    elif not is_open:
        yield ok(check_name, f"it can sign: {key.algorithm}, {key.bits} bits")
