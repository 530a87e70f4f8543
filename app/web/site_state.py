"""Typed access to what `site.create` stores for all requests, and values that are cached for all of them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from fastapi import Request
from sqlmodel import Session

from app import clock
from app.application import Application
from app.storage.database import Database
from app.web.capacity import Capacity

Value = TypeVar("Value")


def application(request: Request) -> Application:
    app: Application = request.app.state.paperboy
    return app


def db(request: Request) -> Database:
    return application(request).db


def capacity(request: Request) -> Capacity:
    """Return the limits of the application that handles this request."""
    limits: Capacity = request.app.state.capacity
    return limits


def cached(
    request: Request, name: str, lifetime: timedelta, read: Callable[[Session, datetime], Value]
) -> Value:
    """Return the last result of `read` if it is younger than `lifetime`. Otherwise, call `read` again.

    While one thread calls it, the others wait. None is not cached.
    """
    values: dict[str, tuple[datetime, Value]] = request.app.state.cached_values
    with request.app.state.cache_locks[name]:
        now = clock.utcnow()  # not before the lock, or a value that was read meanwhile would be newer
        read_at, value = values.get(name, (now, None))
        if value is None or not timedelta() <= now - read_at < lifetime:
            with db(request).read() as session:
                value = read(session, now)
            values[name] = now, value
        return value
