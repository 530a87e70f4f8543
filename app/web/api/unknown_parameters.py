"""Refuse requests whose URL has an unknown parameter. By default, FastAPI ignores such parameters."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.errors import InvalidInput


def reject(request: Request) -> None:
    """Raise InvalidInput if the URL has a parameter that the operation does not take.

    If a misspelt filter were ignored, the response would contain all rows.
    """
    route: APIRoute = request.scope["route"]
    allowed = set(_names(route.dependant))
    for name in request.query_params:
        if name not in allowed:
            names = ", ".join(sorted(allowed)) or "none"
            raise InvalidInput(f"there is no parameter “{name[:40]}”: this operation takes {names}", name)


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for needed in dependant.dependencies:
        yield from _names(needed)
