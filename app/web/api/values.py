"""Strict parameters.

By default, FastAPI ignores unknown parameters, and pydantic accepts 0 as a day and false as a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from types import NoneType
from typing import Annotated

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BeforeValidator

from app.errors import InvalidInput


def _only(problem: str, *types: type, pattern: str = "(?!)") -> BeforeValidator:
    """Return a validator that accepts only values of exactly these types and text that matches `pattern`."""

    def check(value: object) -> object:
        if type(value) in types or (isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII)):
            return value
        raise ValueError(problem)

    return BeforeValidator(check)


Day = Annotated[date, _only("a day must have the form 2026-11-20", date, pattern=r"\d{4}-\d\d-\d\d")]
Moment = Annotated[
    AwareDatetime,
    _only("a time must have the form 2026-11-20T08:00:00Z", pattern=r"(?s)\d{4}-\d\d-\d\d[Tt ].*"),
]
FROM_JSON = _only("this must be a number", int, float)  # for a number in a body
Integer = Annotated[int, FROM_JSON]
Number = Annotated[float, FROM_JSON]
# For an integer in a URL. In an Annotated type, it must come after the bounds.
FROM_URL = _only("this must be an integer", int, NoneType, pattern=r"-?\d{1,30}")
UrlBoolean = Annotated[bool, _only("this must be true or false", pattern="true|false")]


def reject_unknown_parameters(request: Request) -> None:
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
