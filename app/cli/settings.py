"""settings: show the settings in effect, without secrets."""

from dataclasses import asdict
from typing import Annotated

import typer

from app.cli import output
from app.effective_settings import list_effective
from app.settings import load


def settings(
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only settings that differ from their defaults.")
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """Show the settings in effect, without secrets. .env.example explains them."""
    listed = list_effective(load(needs_secret=False))
    listed = [each for each in listed if each.changed or not changed]
    for finding in output.unknown_settings():
        problem = f"{finding.check}: {finding.message}: {finding.fix}"
        output.err().print(output.escaped(problem), soft_wrap=True)
    if as_json:
        output.print_json([asdict(each) for each in listed])
        return
    rows = [
        (
            each.name,
            _text(each.value),
            "" if each.secret else _text(each.default),
            "*" if each.changed else "",
        )
        for each in listed
    ]
    output.table(["name", "value", "default", "changed"], rows)


def _text(value: object) -> str:
    """Format a value as in an environment variable."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
