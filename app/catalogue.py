"""The list of sources that are polled: add one, change it, pause it, let it go on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from sqlmodel import Session, col, select

from app import sources
from app.errors import Conflict, InvalidInput, NotFound
from app.models import Source, SourceKind

# "stat.ML", "hep-th", "cs.CL"
_CATEGORY = re.compile(r"[a-z]+(-[a-z]+)*(\.[A-Za-z]{2}(-[a-z]+)?)?")
_NAME = re.compile(r"[\w][\w .:/-]{0,99}")


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
    """Ask a source again, at once, from where it stopped."""
    source.paused, source.failures, source.last_error, source.next_poll_at = False, 0, None, now
    session.add(source)


def _rename(session: Session, source: Source, name: str) -> None:
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise InvalidInput("a source's name has 1 to 100 letters, digits, spaces or . : / -", field="name")
    other = session.exec(select(Source).where(Source.name == name)).one_or_none()
    if other is not None and other is not source:
        raise Conflict(f"there is a source named “{name}” already")
    source.name = name


def _checked(kind: SourceKind, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it is stored, or InvalidInput with what the kind needs."""
    if kind not in sources.POLLED:
        raise InvalidInput(f"a source of the kind “{kind}” is read from files, not polled", field="kind")
    if kind is SourceKind.FEED:
        return _only(config, {"url": _web_address(config.get("url")), "allow_private": False})
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
    if "allow_private" in checked:
        checked["allow_private"] = config.get("allow_private") is True
    return checked


def _web_address(value: object) -> str:
    text = str(value or "").strip()
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        good = False
    if not good or len(text) > 2000 or re.search(r"[\s\x00-\x1f]", text):
        raise InvalidInput(
            "a feed needs its address: {“url”: “https://…”}, without a name or password in it", field="config"
        )
    return text


def _query(value: object) -> str:
    text = " ".join(str(value).split())
    if len(text) > 500:
        raise InvalidInput("a query of arXiv has at most 500 characters", field="config")
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
