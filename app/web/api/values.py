"""Strict values in URLs and bodies. By default, pydantic accepts 0 as a day and ignores unknown fields."""

import re
from datetime import date
from types import NoneType
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict


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
EditionDay = Annotated[str, _only("an edition is a day such as 2026-11-20", pattern=r"\d{4}-\d\d-\d\d")]
FROM_JSON = _only("this must be a number", int, float)  # for a number in a body
Integer = Annotated[int, FROM_JSON]
Number = Annotated[float, FROM_JSON]
# For an integer in a URL. In an Annotated type, it must come after the bounds.
FROM_URL = _only("this must be a whole number", int, NoneType, pattern=r"-?\d{1,30}")
UrlBoolean = Annotated[bool, _only("this must be true or false", pattern="true|false")]


class RequestBody(BaseModel):
    """The body of a request, or a part of it. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Representation(BaseModel):
    """A response or a part of one, which can be made from an object with the same attributes."""

    model_config = ConfigDict(from_attributes=True)
