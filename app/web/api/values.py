"""Strict types for parameters. Pydantic alone accepts 0 as a day, false as a number and "1" as true."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator

_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,30}", re.ASCII)


def _day(value: object) -> object:
    if isinstance(value, date) or (isinstance(value, str) and _DAY.fullmatch(value)):
        return value
    raise ValueError("a day is written as 2026-11-20")


def _moment(value: object) -> object:
    """Reject numbers, which Pydantic reads as seconds since 1970."""
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[Tt ]", value, re.ASCII):
        return value
    raise ValueError("a moment is written as 2026-11-20T08:00:00Z")


def _number(value: object) -> object:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError("this has to be a number")


def _integer_in_url(value: object) -> object:
    if value is None or isinstance(value, int) or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        return value
    raise ValueError("this has to be an integer")


def _boolean_in_url(value: object) -> object:
    if value in ("true", "false"):
        return value == "true"
    raise ValueError("this has to be true or false")


Day = Annotated[date, BeforeValidator(_day)]
Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
FROM_JSON = BeforeValidator(_number)  # for a number in a body
Integer = Annotated[int, FROM_JSON]
Number = Annotated[float, BeforeValidator(_number)]
FROM_URL = BeforeValidator(_integer_in_url)  # for an integer in a URL; it has to come after the bounds
UrlBoolean = Annotated[bool, BeforeValidator(_boolean_in_url)]
