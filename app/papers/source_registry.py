"""The registry of sources: find, add, change, pause and resume them."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from sqlmodel import Session, col, select

from app.errors import Conflict, InvalidInput, NotFound
from app.papers.sources import source_types
from app.storage.database import advisory_lock
from app.storage.inserts import storing_unique
from app.storage.models import Source
from app.text import dates
from app.text.identifiers import ARXIV_CATEGORY
from app.types import MAX_CATEGORIES, SourceKind

MAX_NAME = 100
READ_FROM_FILES = "read from files"
_LOCK = "sources"  # advisory lock, held by each transaction that adds, seeds or restores sources
# This text must not change, because it is stored while a poll runs and compared with stored errors later.
UNFINISHED = "the last poll has not ended: it is still running, or its process died"

# A set of arXiv's OAI-PMH interface: "cs", "physics:hep-th", "cs:cs:CL"
_SET = re.compile(r"[a-z-]+(:[a-z-]+(:[A-Za-z-]+)?)?")
OF_ARXIV = (SourceKind.ARXIV, SourceKind.ARXIV_FEED, SourceKind.ARXIV_OAI)


def all_sources(session: Session) -> Sequence[Source]:
    """Return all sources that have not been removed, sorted by name."""
    query = select(Source).where(col(Source.removed_at).is_(None))
    return session.exec(query.order_by(col(Source.name))).all()


def get(session: Session, source_id: int) -> Source:
    """Return the source with this id. Raise NotFound if it does not exist or was removed."""
    source = session.get(Source, source_id)
    if source is None or source.removed_at:
        raise NotFound(f"there is no source {source_id}")
    return source


def get_for_update(session: Session, source_id: int) -> Source:
    """Return the source with this id, and lock its row. Raise NotFound like `get`."""
    session.get(Source, source_id, with_for_update=True, populate_existing=True)
    return get(session, source_id)


def find(session: Session, name: str) -> Source:
    """Return the source with this name. If there is none, ignore case; if there is still none, try the id.

    Raise NotFound, with a list of the sources, if none matches or several names differ only in letter case.
    """
    existing = all_sources(session)
    for matching in (
        [source for source in existing if source.name == name],
        [source for source in existing if source.name.casefold() == name.strip().casefold()],
        [source for source in existing if str(source.id) == name],
    ):
        if len(matching) == 1:
            return matching[0]
        if matching:
            names = " or ".join(f"“{source.name}” ({source.id})" for source in matching)
            raise NotFound(f"“{name}” may be {names}: use the same letter case, or the ID")
    listed = ", ".join(f"“{source.name}” ({source.id})" for source in existing)
    raise NotFound(
        f"there is no source named “{name}”: {f'the sources are {listed}' if listed else 'there are none'}"
    )


def is_read_from_files(source: Source) -> bool:
    """Return whether this source was added for records from files, and is therefore never polled."""
    never_polled = source.paused and not (source.config or source.next_poll_at or source.polled_at)
    return source.kind not in source_types.POLLED or never_polled


def is_unfinished(source: Source) -> bool:
    """Return whether the last poll has not ended. It may be running, or it may have killed the process."""
    return source.last_error == UNFINISHED


def describe_state(source: Source) -> str:
    """Return the state of a source for operators, such as "failed 3 times in a row: …" or "works"."""
    if is_read_from_files(source):
        return READ_FROM_FILES
    if source.paused:
        return "paused"
    if source.failures:
        times = "once" if source.failures == 1 else f"{source.failures} times in a row"
        return f"failed {times}: {source.last_error or 'the reason is unknown'}"
    if is_unfinished(source):
        return "being polled, or the process died"
    if source.last_error:
        return source.last_error
    if not source.polled_at:
        return "not polled yet"
    reading = source.watermark and source.kind is SourceKind.ARXIV_OAI
    return f"works, read up to {source.watermark}" if reading else "works"


def add(session: Session, name: str, kind: SourceKind, config: Mapping[str, Any], now: datetime) -> Source:
    """Add a source that is due immediately.

    A removed source with this name and kind, or any removed Hugging Face source, is restored with its papers
    and read from the beginning. Raise InvalidInput if the name or the configuration is invalid, and Conflict
    if the name is taken or another source reads the same.
    """
    advisory_lock(session, _LOCK)
    name, checked = _check_name(name), check_config(kind, config)
    _refuse_duplicate(session, kind, checked)
    again = select(Source).where(Source.kind == kind, col(Source.removed_at).is_not(None))
    if kind is not SourceKind.HUGGINGFACE:
        again = again.where(Source.name == name)
    source = session.exec(again).first() or Source(name="", kind=kind, created_at=now)
    source.config, source.next_poll_at, source.paused, source.removed_at = checked, now, False, None
    source.polled_at = None
    _forget_progress(source)
    _rename(session, source, name)
    return source


def change(
    session: Session,
    source: Source,
    now: datetime,
    *,
    name: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> None:
    """Rename or reconfigure a source.

    A reconfigured source is due at once, and its next poll goes as far back as that of a new source. Raise
    InvalidInput if the name or the configuration is invalid, and Conflict if the name is taken, if another
    source reads the same, or if the source is read from files.
    """
    if is_read_from_files(source):  # `source_for_files` finds such sources by name
        raise Conflict(f"“{source.name}” is read from files, so it cannot be changed")
    if name is not None:
        _rename(session, source, _check_name(name))
    if config is not None and (checked := check_config(source.kind, config)) != source.config:
        _refuse_duplicate(session, source.kind, checked, source.id)
        source.config, source.next_poll_at = checked, source.next_poll_at and now
        _forget_progress(source)
    session.add(source)


def remove(session: Session, source: Source, now: datetime) -> None:
    """Stop polling a source, and remove it from the list of sources. Its papers and their votes remain."""
    source.removed_at, source.paused, source.next_poll_at = now, True, None
    _forget_progress(source)
    session.add(source)


def _forget_progress(source: Source) -> None:
    """Forget the failures of a source and how far it was read, as if it were new."""
    source.failures, source.last_error = 0, None
    source.etag = source.last_modified = source.watermark = source.resumption_token = None


def pause(session: Session, source: Source) -> None:
    """Stop polling a source until it is resumed."""
    source.paused = True
    session.add(source)


def resume(session: Session, source: Source, now: datetime) -> None:
    """Resume polling a source at once, from where it stopped. Raise InvalidInput if it cannot be polled."""
    source.config = check_config(source.kind, _without_old_option(source.config))
    source.paused, source.failures, source.last_error, source.next_poll_at = False, 0, None, now
    session.add(source)


def seed(session: Session, categories: Sequence[str], now: datetime) -> None:
    """Add the default sources, unless a source of a polled kind exists or was removed."""
    polled = select(Source.id).where(col(Source.kind).in_([*source_types.POLLED])).limit(1)
    if session.exec(polled).first() is not None:
        return
    advisory_lock(session, _LOCK)
    if session.exec(polled).first() is None:  # unless another process has just added it
        add(session, "Hugging Face Daily Papers", SourceKind.HUGGINGFACE, {}, now)
        if categories:
            config = {"categories": list(categories)}
            add(session, "arXiv announcements", SourceKind.ARXIV_FEED, config, now)


def source_for_files(session: Session, kind: SourceKind, now: datetime) -> Source:
    """Return the source for records from files of this kind. Add it if it is missing.

    Files from Hugging Face or arXiv's daily feed cover the same days as polling, so their records belong to
    the polled source. For other files there is one source per kind.
    """
    name = source_types.SOURCE_TYPES[kind].source_of_files
    condition = Source.name == name if name else Source.kind == kind
    query = select(Source).where(condition).order_by(col(Source.removed_at).is_not(None), col(Source.id))
    source = session.exec(query).first()
    if source is None:  # unless another process is just adding it
        advisory_lock(session, _LOCK)
        source = session.exec(query).first()
    if source and source.removed_at:
        source.removed_at = None  # restore the source, because its files are being read again
        session.add(source)
    if source is None:
        name = name or f"Saved responses ({kind.value})"
        source = Source(name=name, kind=kind, paused=True, created_at=now)
        session.add(source)
        session.flush()
    return source


def _check_name(name: str) -> str:
    """Return the name of a source without surrounding spaces. Raise InvalidInput if it is invalid."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInput(f"a source needs a name of 1 to {MAX_NAME} printable characters", field="name")
    return name


def _rename(session: Session, source: Source, name: str) -> None:
    """Store a source under this name. Raise Conflict if it is taken."""
    taken = Conflict(f"a source named “{name}” already exists: choose another name", field="name")
    other = session.exec(select(Source).where(Source.name == name)).one_or_none()
    if other is not None and other is not source:
        if not other.removed_at:
            raise taken
        other.name = f"{name[: MAX_NAME - 30]} (removed, {other.id})"
        session.add(other)
    with storing_unique(session, taken):
        source.name = name
        session.add(source)


def check_config(kind: SourceKind, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in its stored form. Raise InvalidInput if it is invalid for this kind."""
    if kind not in source_types.POLLED:
        raise InvalidInput(
            f"a source of the kind “{kind}” is read from files, not polled: use `paperboy ingest FILE`",
            field="kind",
        )
    if kind is SourceKind.FEED and "allow_private" in config:
        raise InvalidInput(
            "a source has no option “allow_private”: list the private hosts and networks that feeds may be "
            "fetched from in the setting PAPERBOY_ALLOW_PRIVATE_SOURCES",
            field="config",
        )
    checked: dict[str, Any] = {}
    if kind is SourceKind.FEED:
        checked["url"] = _web_address(config.get("url"))
    elif kind is SourceKind.ARXIV and "query" in config and (config["query"] or not config.get("categories")):
        checked["query"] = " ".join(str(config["query"] or "").split())
        if not 0 < len(checked["query"]) <= 500 or not checked["query"].isprintable():
            raise InvalidInput("an arXiv query needs 1 to 500 printable characters", field="config")
    elif kind is SourceKind.ARXIV_OAI:
        checked |= _harvest(config)
    elif kind in OF_ARXIV:
        checked["categories"] = _categories(config.get("categories"))
    options = source_types.POLLED[kind].options
    if unknown := sorted(set(config) - set(options)):
        accepted = ", ".join(options) or "nothing"
        raise InvalidInput(
            f"a source of the kind “{kind}” has no option “{unknown[0]}”: it accepts {accepted}", "config"
        )
    if ignored := sorted(set(filter(config.get, config)) - set(checked)):
        raise InvalidInput(f"“{ignored[0]}” cannot be combined with “{next(iter(checked))}”", field="config")
    return checked


def _refuse_duplicate(
    session: Session, kind: SourceKind, config: Mapping[str, Any], source_id: int | None = None
) -> None:
    """Raise Conflict if a source other than `source_id` reads the same. Its papers would be listed twice."""
    is_hugging_face = kind is SourceKind.HUGGINGFACE  # its files belong to the same source as its polls
    for other in session.exec(select(Source).where(Source.kind == kind, col(Source.removed_at).is_(None))):
        is_same = other.id != source_id and (
            is_hugging_face or _comparable(other.config) == _comparable(config)
        )
        if is_same and (is_hugging_face or not is_read_from_files(other)):
            raise Conflict(
                f"this source already exists as “{other.name}”: you can pause, resume or rename it",
                field="kind" if is_hugging_face else "config",
            )


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration whose categories are sorted and whose URL is without insignificant parts.

    These are the scheme (servers redirect http:// to https://), its port, the spelling of the host, a slash
    at the end, and the fragment.
    """
    comparable = {**_without_old_option(config), "categories": sorted(set(config.get("categories", ())))}
    if text := config.get("url"):
        with suppress(httpx.InvalidURL):
            url = httpx.URL(text)
            host, path = url.raw_host.rstrip(b"."), url.path.rstrip("/")
            comparable["url"] = (host, url.port, path, url.query)
    return comparable


def _without_old_option(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that may have been stored before `allow_private` became a setting."""
    return {name: value for name, value in config.items() if name != "allow_private"}


def _web_address(value: object) -> str:
    text = str(value or "").strip()
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        valid = False
    if not valid or len(text) > 2000 or not text.isprintable() or " " in text:
        raise InvalidInput(
            "a feed needs a URL that begins with http:// or https://, without a user name or password",
            field="config",
        )
    return text


def _harvest(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of an OAI source in `config`: a set, and the first and last day of changes."""
    given = {name: str(config[name]).strip() for name in ("set", "from", "until") if config.get(name)}
    if "set" in given and not _SET.fullmatch(given["set"]):
        raise InvalidInput(
            "“set” must be an arXiv set, such as cs, math, physics:hep-th or cs:cs:CL", field="config"
        )
    days = [dates.day(given[name]) for name in ("from", "until") if name in given]
    if None in days or any(len(given[name]) != len("2026-11-20") for name in given if name != "set"):
        raise InvalidInput("“from” and “until” must be dates, such as 2026-11-20", field="config")
    if len(days) == 2 and given["from"] > given["until"]:
        raise InvalidInput("“from” must not be after “until”", field="config")
    return given


def _categories(value: object) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, list | tuple)
        or not 0 < len(names) <= MAX_CATEGORIES
        or not all(isinstance(name, str) and ARXIV_CATEGORY.fullmatch(name) for name in names)
    ):
        raise InvalidInput(
            f"a source of this kind needs 1 to {MAX_CATEGORIES} arXiv categories, such as cs.CL and stat.ML",
            field="config",
        )
    return list(dict.fromkeys(names))
