"""API errors as application/problem+json (RFC 9457)."""

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
from app.storage.database_errors import is_unavailable
from app.text.in_words import describe_invalid, sentence
from app.web.errors import RETRY_AFTER, UNAVAILABLE, headers_of, log_refused_value, please_wait, status_of

MAX_ERRORS = 50  # listed in a problem
MEDIA_TYPE = "application/problem+json"

_DEFAULT_DETAILS = {
    404: "there is no such path: see /api/docs",
    405: "this path does not support the method: see the Allow header",
}

log = structlog.get_logger(__name__)


class FieldError(BaseModel):
    """An invalid value in the request."""

    pointer: str = Field(examples=["/body/interests/0/text"])
    detail: str = Field(examples=["It contains nothing to search for."])


class Problem(BaseModel):
    """An error (RFC 9457)."""

    type: str = "about:blank"
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(
        default="", examples=["“Mars/Olympus” is not a known time zone. Use a name such as Europe/Berlin."]
    )
    instance: str = Field(default="", examples=["/api/v1/subscribers"])
    errors: list[FieldError] = []


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of the errors with these statuses."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in statuses
    }


def schemas() -> dict[str, Any]:
    """Return the OpenAPI schemas that `responses` refers to."""
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**problem.pop("$defs"), "Problem": problem}


def describe_bodies(document: dict[str, Any]) -> None:
    """Document the errors of unsuitable bodies on the operations of an OpenAPI document that take one."""
    for operations in document["paths"].values():
        for operation in operations.values():
            if "requestBody" in operation:
                for status, response in responses(413, 415).items():
                    operation["responses"].setdefault(str(status), response)


def install(api: FastAPI) -> None:
    """Register handlers that return every error as a problem."""
    for kind in (PaperboyError, HTTPException, RequestValidationError, DataError):
        api.add_exception_handler(kind, _request_error)
    for unavailable in UNAVAILABLE:
        api.add_exception_handler(unavailable, _database_error)
    api.add_exception_handler(Exception, _unexpected_error)


def _request_error(request: Request, error: Exception) -> JSONResponse:
    match error:
        case PaperboyError():
            fields = []
            if isinstance(error, InvalidInput) and error.field:
                places = {"query": request.query_params, "path": request.path_params}
                where = next((place for place, names in places.items() if error.field in names), "body")
                fields = [FieldError(pointer=f"/{where}/" + error.field.replace(".", "/"), detail=str(error))]
            detail, headers = str(error), None
            if isinstance(error, TooManyRequests):
                detail = please_wait(error, "send the request again")
                headers = {"Retry-After": str(error.retry_after)}
            return _respond(request, status_of(error), detail, fields, headers)
        case HTTPException(status_code=HTTPStatus.BAD_REQUEST):  # FastAPI could not parse the body
            return _respond(request, 422, "the body is not JSON in UTF-8, or is nested too deeply")
        case HTTPException():
            is_default = error.detail == HTTPStatus(error.status_code).phrase
            detail = _DEFAULT_DETAILS.get(error.status_code, "") if is_default else str(error.detail)
            return _respond(request, error.status_code, detail, headers=headers_of(request, error))
        case RequestValidationError() if any(isinstance(each.get("input"), bytes) for each in error.errors()):
            return _respond(request, 415, "send JSON as the body, with Content-Type: application/json")
        case RequestValidationError():
            fields = [
                FieldError(
                    pointer="/" + "/".join(map(str, problem["loc"])), detail=describe_invalid(problem, "this")
                )
                for problem in islice(error.errors(), MAX_ERRORS)
            ]
            return _respond(request, 422, "the request does not match the documented schema", fields)
        case DataError():
            log_refused_value(request, error)
    detail = "the request has a value that the database cannot store: check for long texts and large numbers"
    return _respond(request, 422, detail)


def _database_error(request: Request, error: Exception) -> JSONResponse:
    if not is_unavailable(error):
        raise error
    log.error("database unavailable", path=request.url.path, error=str(getattr(error, "orig", error)))
    detail = "the database is busy or unavailable: please send the request again"
    return _respond(request, 503, detail, headers={"Retry-After": str(RETRY_AFTER)})


def _unexpected_error(request: Request, error: Exception) -> JSONResponse:
    log.error("unexpected error", path=request.url.path, error=repr(error))
    return _respond(request, 500, "internal error: details are in the log")


def _respond(
    request: Request,
    status: int,
    detail: str,
    errors: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=sentence(detail),
        instance=request.url.path,
        errors=[error.model_copy(update={"detail": sentence(error.detail)}) for error in errors or []],
    )
    return JSONResponse(problem.model_dump(), status, headers, MEDIA_TYPE)
