"""Refuse unknown query parameters, which FastAPI ignores, and repeated ones, of which it reads the last."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.errors import InvalidInput


def reject(request: Request) -> None:
    """Raise InvalidInput if the URL has a parameter that the operation does not take, or takes only once.

    If a misspelled filter were ignored, the response would contain all rows. If a filter were ignored because
    it is given again, the response would lack rows.
    """
    route: APIRoute = request.scope["route"]
    allowed = dict(_parameters(route.dependant))
    for name in request.query_params:
        if name not in allowed:
            names = ", ".join(sorted(allowed)) or "none"
            raise InvalidInput(f"there is no parameter “{name[:40]}”: this operation takes {names}", name)
        is_list = list in {get_origin(part) for part in (allowed[name], *get_args(allowed[name]))}
        if not is_list and len(request.query_params.getlist(name)) > 1:
            raise InvalidInput(f"give the parameter “{name}” only once", name)


def _parameters(dependant: Dependant) -> Iterator[tuple[str, Any]]:
    """Yield the name and the type of each query parameter that an operation takes."""
    for field in dependant.query_params:
        yield field.alias, field.field_info.annotation
    for needed in dependant.dependencies:
        yield from _parameters(needed)
