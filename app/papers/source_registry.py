"""The list of sources: add one, change it, pause it, let it go on; and when each is asked next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from sqlmodel import Session, col, or_, select

from app.errors import Conflict, InvalidInput, NotFound
from app.papers import sources
from app.papers.sources import http_client
from app.papers.sources.state import FetchedPage, SourceState
from app.storage.models import Source
from app.types import SourceKind

# "stat.ML", "hep-th", "cs.CL"
_CATEGORY = re.compile(r"[a-z]+(-[a-z]+)*(\.[A-Za-z]{2}(-[a-z]+)?)?")
MAX_NAME = 100

POLL_EVERY = {
    SourceKind.HUGGINGFACE: timedelta(hours=1),  # a third of a day's papers arrive after the morning
    SourceKind.ARXIV: timedelta(hours=6),  # its answers change once a day
    SourceKind.ARXIV_FEED: timedelta(hours=1),  # once a day, too, but an unchanged one costs nothing
    SourceKind.FEED: timedelta(hours=1),
}
BACK_OFF = tuple(timedelta(minutes=minutes) for minutes in (5, 15, 60, 240))
OF_ARXIV = (SourceKind.ARXIV, SourceKind.ARXIV_FEED)
UNFINISHED = "the last poll has not ended: it is under way, or the process died of it"
_OF_FILES = {
    SourceKind.ARXIV: "Saved answers of arXiv",
    SourceKind.FEED: "Saved feeds",
    SourceKind.PAGE: "Saved search pages",
    SourceKind.JSONL: "Saved rows",
}


def listed(session: Session) -> Sequence[Source]:
    """Every source, in the order of their names."""
    return session.exec(select(Source).order_by(col(Source.name))).all()


def get(session: Session, source_id: int) -> Source:
    """The source of this id, or NotFound."""
    source = session.get(Source, source_id)
    if source is None:
        raise NotFound(f"there is no source {source_id}")
    return source


def named(session: Session, name: str) -> Source:
    """The source of this name, or NotFound."""
    source = session.exec(select(Source).where(Source.name == name)).one_or_none()
    if source is None:
        raise NotFound(f"there is no source named “{name}”")
    return source


def add(session: Session, name: str, kind: SourceKind, config: Mapping[str, Any], now: datetime) -> Source:
    """A new source, due at once."""
    if kind is SourceKind.HUGGINGFACE:
        _refuse_another(session, kind)
    source = Source(name="", kind=kind, config=_checked(kind, config), next_poll_at=now, created_at=now)
    _rename(session, source, name)
    session.add(source)
    session.flush()
    return source


def change(
    session: Session, source: Source, *, name: str | None = None, config: Mapping[str, Any] | None = None
) -> None:
    """Rename a source, or ask it for something else: then it begins anew, as far back as a new one does."""
    if name is not None:
        _rename(session, source, name)
    if config is not None and (checked := _checked(source.kind, config)) != source.config:
        source.config = checked
        source.etag = source.last_modified = source.watermark = None
    session.add(source)


def pause(session: Session, source: Source) -> None:
    """Ask a source no more until it is resumed."""
    source.paused = True
    session.add(source)


def resume(session: Session, source: Source, now: datetime) -> None:
    """Ask a source again, at once, from where it stopped. One that only names files cannot be asked."""
    # What was stored before `allow_private` became a setting may still hold it.
    config = {name: value for name, value in source.config.items() if name != "allow_private"}
    source.config = _checked(source.kind, config)
    source.paused, source.failures, source.last_error, source.next_poll_at = False, 0, None, now
    session.add(source)


def seed(session: Session, categories: Sequence[str], now: datetime) -> None:
    """The sources that a new service begins with; nothing once there is one that is polled."""
    if session.exec(select(Source.id).where(col(Source.kind).in_(sources.POLLED))).first() is None:
        add(session, "Hugging Face Daily Papers", SourceKind.HUGGINGFACE, {}, now)
        if categories:
            config = {"categories": list(categories)}
            add(session, "arXiv announcements", SourceKind.ARXIV_FEED, config, now)


def source_for_files(session: Session, kind: SourceKind, now: datetime) -> Source:
    """The source that what files of this kind tell is filed under.

    Days of Hugging Face and of arXiv's announcements are the same days that polling reads, so they
    belong to the source that is polled; other files have one name a kind.
    """
    named = Source.name == _OF_FILES[kind] if kind in _OF_FILES else Source.kind == kind
    found = session.exec(select(Source).where(named).order_by(col(Source.id))).first()
    if found is None:
        name = _OF_FILES.get(kind, f"Saved answers ({kind.value})")
        found = Source(name=name, kind=kind, paused=True, created_at=now)
        session.add(found)
        session.flush()
    return found


def sources_to_poll(session: Session, now: datetime, source_id: int | None = None) -> Sequence[Source]:
    """The sources to ask now: those that are due, or the one that somebody wants asked."""
    if source_id is None:
        return due_sources(session, now)
    source = get(session, source_id)
    if source.kind not in sources.POLLED:
        raise Conflict(f"“{source.name}” is read from files, not polled")
    return [source]


def due_sources(session: Session, now: datetime) -> Sequence[Source]:
    """The sources that want to be asked."""
    wanted = select(Source).where(
        col(Source.paused).is_(False),
        col(Source.kind).in_(sources.POLLED),
        or_(col(Source.next_poll_at).is_(None), col(Source.next_poll_at) <= now),
    )
    return session.exec(wanted.order_by(col(Source.id))).all()


def state(source: Source, backfill_days: int) -> SourceState:
    """What the fetching half is told of a source."""
    return SourceState(
        source.kind,
        backfill_days,
        source.config,
        source.etag,
        source.last_modified,
        source.watermark,
    )


def lease_of(source: Source) -> str:
    """Return the name of the lease under which a source is polled: arXiv allows one connection for all."""
    return http_client.ARXIV if _is_arxivs(source) else f"source:{source.id}"


def _is_arxivs(source: Source) -> bool:
    if source.kind is SourceKind.FEED:
        return http_client.party_of(str(source.config.get("url", ""))) == http_client.ARXIV
    return source.kind in OF_ARXIV


def is_doubtful(source: Source) -> bool:
    """Return whether the last poll never came to its end. The source may be what the process died of."""
    return source.last_error == UNFINISHED


def begin(source: Source, now: datetime) -> None:
    """Move the source's turn on before it is asked, and further with each poll that has not ended."""
    source.failures += is_doubtful(source)
    source.next_poll_at, source.last_error = now + _delay(source), UNFINISHED


def interrupted(source: Source, now: datetime) -> None:
    """A poll was given up because the service stops: the source is due at once."""
    source.next_poll_at, source.last_error = now, "the poll was interrupted: the service was stopped"


def _delay(source: Source) -> timedelta:
    return BACK_OFF[min(source.failures, len(BACK_OFF) - 1)]


def advance(source: Source, piece: FetchedPage) -> None:
    """Remember how far a source was read: the next poll goes on from there."""
    if piece.watermark and (source.watermark is None or piece.watermark > source.watermark):
        source.watermark = piece.watermark
    source.etag = piece.etag or source.etag
    source.last_modified = piece.last_modified or source.last_modified


def succeeded(source: Source, now: datetime) -> None:
    """A poll worked to its end."""
    source.failures, source.last_error = 0, None
    source.polled_at, source.next_poll_at = now, now + POLL_EVERY[source.kind]


def failed(session: Session, source: Source, error: str, now: datetime, retry_at: datetime | None) -> None:
    """A poll did not: ask again later, and later still if that fails, too."""
    delay = _delay(source)
    source.failures, source.last_error = source.failures + 1, error
    source.next_poll_at = max(now + delay, retry_at or now)
    if retry_at and _is_arxivs(source):  # what one of its interfaces asks holds for all of them
        waiting = or_(col(Source.next_poll_at).is_(None), col(Source.next_poll_at) < retry_at)
        for other in filter(_is_arxivs, session.exec(select(Source).where(waiting))):
            other.next_poll_at = retry_at


def _refuse_another(session: Session, kind: SourceKind) -> None:
    """There is one Hugging Face: asked under two names, its votes would count twice."""
    known = session.exec(select(Source).where(Source.kind == kind)).first()
    if known is not None:
        raise Conflict(f"“{known.name}” is this source already: pause it, resume it or rename it")


def _rename(session: Session, source: Source, name: str) -> None:
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInput(f"a source needs a name of 1 to {MAX_NAME} characters", field="name")
    other = session.exec(select(Source).where(Source.name == name)).one_or_none()
    if other is not None and other is not source:
        raise Conflict(f"there is a source named “{name}” already")
    source.name = name


def _checked(kind: SourceKind, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is stored, or InvalidInput with what the kind needs."""
    if kind not in sources.POLLED:
        raise InvalidInput(f"a source of the kind “{kind}” is read from files, not polled", field="kind")
    if kind is SourceKind.FEED:
        if "allow_private" in config:
            raise InvalidInput(
                "allow_private is for the operator of the service: PAPERBOY_ALLOW_PRIVATE_SOURCES names the "
                "hosts and networks of its own that feeds may be fetched from",
                field="config",
            )
        return _only(config, {"url": _web_address(config.get("url"))})
    if kind is SourceKind.HUGGINGFACE:
        return _only(config, {})
    if kind is SourceKind.ARXIV and config.get("query"):
        return _only(config, {"query": _query(config["query"])})
    return _only(config, {"categories": _categories(config.get("categories"))})


def _only(config: Mapping[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(set(config) - set(checked)):
        known = ", ".join(sorted(checked)) or "nothing"
        raise InvalidInput(
            f"{unknown[0]!r} means nothing to this kind of source: it takes {known}", field="config"
        )
    return checked


def _web_address(value: object) -> str:
    text = str(value or "").strip()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        good = False
    if not good or len(text) > 2000 or not text.isprintable() or " " in text:
        raise InvalidInput(
            "a feed needs its address: {“url”: “https://…”}, without a name or password in it", field="config"
        )
    return text


def _query(value: object) -> str:
    text = " ".join(str(value).split())
    if len(text) > 500 or not text.isprintable():
        raise InvalidInput("a query of arXiv has at most 500 characters, all printable", field="config")
    return text


def _categories(value: object) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if (
        not isinstance(names, list | tuple)
        or not 0 < len(names) <= 50
        or not all(isinstance(name, str) and _CATEGORY.fullmatch(name) for name in names)
    ):
        raise InvalidInput("it needs categories of arXiv, such as cs.CL and stat.ML", field="config")
    return list(dict.fromkeys(names))
