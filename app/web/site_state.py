"""Typed access to what `site.create` stores for all requests."""

from __future__ import annotations

from fastapi import Request

from app.application import Application
from app.storage.database import Database
from app.web.capacity import Capacity


def application(request: Request) -> Application:
    app: Application = request.app.state.paperboy
    return app


def db(request: Request) -> Database:
    return application(request).db


def capacity(request: Request) -> Capacity:
    """Return the limits of the application that handles this request."""
    limits: Capacity = request.app.state.capacity
    return limits
