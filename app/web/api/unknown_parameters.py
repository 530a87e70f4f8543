"""Refuse requests whose URL has an unknown or repeated parameter, which FastAPI ignores by default."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi._compat import ModelField, field_annotation_is_sequence
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.errors import InvalidInput


def reject(request: Request) -> None:
    """Raise InvalidInput if the URL has a parameter that the operation does not take, or takes only once.

    If a misspelt filter were ignored, the response would contain all rows. If a filter were ignored because
    it is given again, the response would lack rows.
    """
    route: APIRoute = request.scope["route"]
    allowed = {field.alias: field for field in _fields(route.dependant)}
    for name in request.query_params:
        if name not in allowed:
            names = ", ".join(sorted(allowed)) or "none"
            raise InvalidInput(f"there is no parameter “{name[:40]}”: this operation takes {names}", name)
        is_list = field_annotation_is_sequence(allowed[name].field_info.annotation)
        if not is_list and len(request.query_params.getlist(name)) > 1:
            raise InvalidInput(f"give the parameter “{name}” only once", name)


def _fields(dependant: Dependant) -> Iterator[ModelField]:
    yield from dependant.query_params
    for needed in dependant.dependencies:
        yield from _fields(needed)
