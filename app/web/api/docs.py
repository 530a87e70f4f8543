"""The API documentation as an HTML page, built from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.web.templating import page

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as the page shows it."""

    tag: str
    method: str
    path: str
    about: str
    scope: str
    parameters: list[dict[str, Any]] = field(default_factory=list)
    body: str = ""
    answer: str = ""


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """Show every operation with its scope, parameters and examples."""
    schema = request.app.openapi()
    operations = list(_operations(schema))
    groups = [(tag, list(group)) for tag, group in groupby(operations, lambda operation: operation.tag)]
    return page(request, "reference.html", info=schema["info"], groups=groups)


def _operations(schema: dict[str, Any]) -> Iterator[Operation]:
    components = schema["components"]["schemas"]
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            success = next(
                response for code, response in operation["responses"].items() if code.startswith("2")
            )
            yield Operation(
                tag=operation["tags"][0],
                method=method.upper(),
                path=f"/api{path}",
                about=operation["description"],
                scope=" ".join(
                    scope
                    for requirement in operation["security"]
                    for scopes in requirement.values()
                    for scope in scopes
                ),
                parameters=operation.get("parameters", []),
                body=_example(operation.get("requestBody", {}), components),
                answer=_example(success, components),
            )


def _example(message: dict[str, Any], components: dict[str, Any]) -> str:
    content = message.get("content", {}).get("application/json")
    if not content:
        return ""
    return json.dumps(_value(content["schema"], components), ensure_ascii=False, indent=2)


def _value(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """Return an example of a schema: its own, or one built from its parts."""
    if "$ref" in schema:
        return _value(components[schema["$ref"].rpartition("/")[2]], components)
    if "examples" in schema:
        return schema["examples"][0]
    if "anyOf" in schema:
        return _value(schema["anyOf"][0], components)
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: _value(part, components) for name, part in schema["properties"].items()}
    if "items" in schema:
        return [_value(schema["items"], components)]
    formats = {"date-time": "2026-11-20T08:00:00Z", "date": "2026-11-20"}
    plain = {"integer": 1, "number": 1.0, "boolean": False, "object": {}, "string": "…"}
    return formats.get(schema.get("format", "")) or plain.get(schema.get("type", ""))
