"""Every error of the API as application/problem+json (RFC 9457): what is wrong, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException

from app.errors import InvalidInput, PaperboyError, TooManyRequests
from app.storage.database import is_unavailable
from app.web.errors import RETRY_AFTER, UNAVAILABLE, headers_of, status_of

MOST_ERRORS = 50  # that are listed
MEDIA_TYPE = "application/problem+json"

_OF_NO_ROUTE = {
    404: "there is no such path; those of the API are listed at /api/docs",
    405: "there is such a path, but not for this method: see the Allow header",
}

log = structlog.get_logger(__name__)


class FieldError(BaseModel):
    """One thing in the request that cannot be used."""

    pointer: str = Field(examples=["/body/interests/0/text"])
    detail: str = Field(examples=["there is nothing to search for in it"])


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(default="", examples=["the zone “Mars/Olympus” does not exist"])
    instance: str = Field(default="", examples=["/api/v1/subscribers"])
    errors: list[FieldError] = []


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors that a route may answer with, for its documentation."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in statuses
    }


def schemas() -> dict[str, Any]:
    """The shapes that `responses` refers to, for the documentation."""
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**problem.pop("$defs"), "Problem": problem}


def install(api: FastAPI) -> None:
    """Let no error leave the API in another shape."""
    api.add_exception_handler(PaperboyError, _known)
    api.add_exception_handler(HTTPException, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(DataError, _unkeepable)
    for kind in UNAVAILABLE:
        api.add_exception_handler(kind, _busy)
    api.add_exception_handler(Exception, _unknown)


def _known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PaperboyError)  # noqa: S101 - what it was registered for
    fields = []
    if isinstance(error, InvalidInput) and error.field:
        where = "query" if error.field in request.query_params else "body"
        fields = [FieldError(pointer=f"/{where}/" + error.field.replace(".", "/"), detail=str(error))]
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, TooManyRequests) else None
    return _answer(request, status_of(error), str(error), fields, headers)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI could not parse the body
        return _answer(request, 422, "the body is not JSON in UTF-8, or is nested too deeply")
    plain = error.detail == HTTPStatus(error.status_code).phrase
    detail = _OF_NO_ROUTE.get(error.status_code, "") if plain else str(error.detail)
    return _answer(request, error.status_code, detail, headers=headers_of(request, error))


def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    fields = [
        FieldError(pointer="/" + "/".join(str(part) for part in problem["loc"]), detail=problem["msg"])
        for problem in islice(error.errors(), MOST_ERRORS)
    ]
    return _answer(request, 422, "the request does not have the form that is documented", fields)


def _unkeepable(request: Request, _error: Exception) -> JSONResponse:
    return _answer(request, 422, "the request holds a value that the database cannot keep")


def _busy(request: Request, error: Exception) -> JSONResponse:
    if not is_unavailable(error):
        raise error
    log.error("database unavailable", path=request.url.path, error=str(getattr(error, "orig", error)))
    detail = "the database is busy or away: please send the request again"
    return _answer(request, 503, detail, headers={"Retry-After": str(RETRY_AFTER)})


def _unknown(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected error", path=request.url.path, error=repr(error))
    return _answer(request, 500, "something went wrong on our side, and has been noted")


def _answer(
    request: Request,
    status: int,
    detail: str,
    errors: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
        errors=errors or [],
    )
    return JSONResponse(problem.model_dump(), status, headers, MEDIA_TYPE)
