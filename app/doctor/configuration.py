"""What was set: names that are no setting, addresses, folders, keys."""

from __future__ import annotations

import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values
from sqlalchemy import make_url

from app.doctor.findings import Finding, error, warning, well
from app.errors import InvalidSettings
from app.mail import dkim
from app.settings import Settings

PREFIX = "PAPERBOY_"
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields}
UNKNOWN_ELSEWHERE = (".localdomain", ".local", ".invalid", ".test", ".example", ".internal")


def unknown_settings(environ: Mapping[str, str], env_file: Path) -> Iterator[Finding]:
    """What is set and is no setting: a slip of the pen that nothing else would tell."""
    yield from _misspelt(environ, "the environment")
    if env_file.is_file():
        yield from _misspelt(dotenv_values(env_file), str(env_file))


def _misspelt(written: Iterable[str], where: str) -> Iterator[Finding]:
    for name in sorted(written):
        if name.upper().startswith(PREFIX) and name.upper() not in KNOWN:
            near = get_close_matches(name.upper(), KNOWN, n=1, cutoff=0.75)
            fix = f"did you mean {near[0]}?" if near else "remove it; .env.example has all settings"
            yield warning(f"setting {name}", f"stands in {where}, and is no setting", fix)


def look(settings: Settings) -> Iterator[Finding]:
    """Settings that can be read, and cannot be right."""
    yield well("settings", "the settings can be used")
    yield _base_url(settings)
    yield _from_address(settings)
    for name in ("postal_address", "contact_address"):
        if not getattr(settings, name):
            yield warning(
                name,
                "is empty: in many countries a newsletter has to say who sends it",
                f"set PAPERBOY_{name.upper()}",
            )
    yield _journal(Path(settings.journal_dir))
    yield from _private(settings)
    for key in settings.dkim_keys:
        yield _key(key)
    yield _ahead(settings)


def _base_url(settings: Settings) -> Finding:
    if settings.base_url.startswith("https://"):
        return well("base_url", f"links begin with {settings.base_url}")
    return warning(
        "base_url",
        f"links begin with {settings.base_url}: readers elsewhere cannot open them safely, and one-click "
        "unsubscribing needs https",
        "put Paperboy behind a proxy with TLS and set PAPERBOY_BASE_URL to its https:// address",
    )


def is_known_elsewhere(domain: str) -> bool:
    """Whether other mail servers could know such a domain at all (RFC 2606, 6761, 6762)."""
    return "." in domain and not f".{domain}".endswith(UNKNOWN_ELSEWHERE)


def _from_address(settings: Settings) -> Finding:
    if is_known_elsewhere(settings.mail_domain):
        return well("from_address", f"mails come from {settings.from_address}")
    said = f"mails come from {settings.from_address}, a domain that other mail servers do not know"
    return warning("from_address", said, "set PAPERBOY_FROM_ADDRESS to an address of a domain of yours")


def _journal(folder: Path) -> Finding:
    """A sender makes the folder: where there is none yet, the next one above has to let it."""
    fix = "let Paperboy write there, or set PAPERBOY_JOURNAL_DIR to another folder: nothing is sent without"
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if why := unwritable(there):
        return error("journal_dir", f"{folder} cannot be written to: {why}", fix)
    return well("journal_dir", f"{folder} can be written to")


def _private(settings: Settings) -> Iterator[Finding]:
    """Warn of addresses that others on this machine can read: a database of SQLite, and the journals."""
    folder = Path(settings.journal_dir)
    files = [("journal_dir", folder, "700")]
    url = make_url(settings.database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        paths = (Path(f"{url.database}{ending}") for ending in ("", "-wal", "-shm"))
        files += [("database file", path, "600") for path in paths]
    for check, path, mode in files:
        # A folder that only its owner may enter hides what is in it.
        if path.exists() and _is_open(path) and _is_open(path.absolute().parent):
            said = f"{path} can be read by others on this machine ({stat.filemode(path.stat().st_mode)})"
            yield warning(check, said, f"run `chmod {mode} {shlex.quote(str(path))}` as its owner")


def _is_open(path: Path) -> bool:
    return bool(path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))


def unwritable(folder: Path) -> str:
    """Why no file can be made in a folder; empty where one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as fault:
        return fault.strerror or str(fault)


def _key(setting: str) -> Finding:
    """Whether a key can sign, is strong enough, and is ours alone."""
    selector, _, name = setting.partition(":")
    check, path = f"dkim key {selector}", Path(name)
    try:
        (key,) = dkim.load([setting])
        mode = path.stat().st_mode
    except (InvalidSettings, OSError) as fault:
        fix = "make one with `paperboy key dkim dkim.pem`, and let PAPERBOY_DKIM_KEYS name its file"
        return error(check, str(fault), fix)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        said = f"{path} can be read by others on this machine ({stat.filemode(mode)})"
        return warning(check, said, f"run `chmod 600 {shlex.quote(name)}` as its owner")
    if key.algorithm is dkim.Algorithm.RSA and key.bits < dkim.GOOD_BITS:
        said = f"has {key.bits} bits: some providers take such a signature for none"
        return warning(
            check,
            said,
            "make a new one with `paperboy key dkim new.pem --selector new`, and name it",
        )
    return well(check, f"signs as {selector}, by {key.algorithm} of {key.bits} bits")


def _ahead(settings: Settings) -> Finding:
    minutes = settings.compose_ahead_minutes
    if settings.dkim_keys and not minutes:
        said = "is 0: every mail is signed at the hour itself, and those of a long list leave late"
        return warning("compose_ahead_minutes", said, "set PAPERBOY_COMPOSE_AHEAD_MINUTES to 10")
    when = f"{minutes} minutes before a reader's hour" if minutes else "at a reader's hour"
    return well("compose_ahead_minutes", f"digests are composed {when}")
