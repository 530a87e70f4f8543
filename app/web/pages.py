"""The one template environment of the web pages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.db import ROOT
from app.settings import Settings

STATIC = Path(__file__).parent / "static"


def environment(settings: Settings) -> Environment:
    """Templates that escape everything and refuse names that do not exist."""
    made = Environment(
        loader=FileSystemLoader(ROOT / "templates" / "web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(site=settings, asset=_fingerprinted())
    return made


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: Any,
) -> HTMLResponse:
    """Fill in a template."""
    made: Environment = request.app.state.templates
    return HTMLResponse(made.get_template(template).render(values), status_code=status, headers=headers)


def _fingerprinted() -> dict[str, str]:
    """File name → URL that changes with the content, so that it may be cached for ever."""
    return {
        path.name: f"/static/{path.name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
        for path in STATIC.iterdir()
    }
