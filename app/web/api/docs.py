"""The API documentation as an HTML page, built from the OpenAPI document."""

import json
from collections import defaultdict
from itertools import chain
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from app.web.templating import page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """Show each operation with its scope, parameters and examples."""
    schema = request.app.openapi()
    components = schema["components"]["schemas"]
    operations = defaultdict(list)  # by tag
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            required = [scopes for requirement in operation["security"] for scopes in requirement.values()]
            success = min(code for code in operation["responses"] if code.startswith("2"))
            operations[operation["tags"][0]].append(
                {
                    "method": method.upper(),
                    "path": f"/api{path}",
                    "description": operation["description"],
                    "scope": " ".join(chain.from_iterable(required)),
                    "parameters": operation.get("parameters", []),
                    "request": _example(operation.get("requestBody", {}), components),
                    "response": _example(operation["responses"][success], components),
                }
            )
    return page(request, "api_docs.html", info=schema["info"], operations=operations)


def _example(message: dict[str, Any], components: dict[str, Any]) -> str:
    content = message.get("content", {}).get("application/json")
    if not content:
        return ""
    return json.dumps(_value(content["schema"], components), ensure_ascii=False, indent=2)


def _value(schema: dict[str, Any], components: dict[str, Any]) -> Any:
    """Return the example in a schema, or build one from the examples of its properties."""
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
