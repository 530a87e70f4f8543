"""doctor: look for what is wrong with this installation, and say how to mend it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app import clock, doctor, logs, main
from app.cli import output, sample
from app.doctor import Finding, Level, TemporaryService
from app.errors import InvalidSettings
from app.papers.sources import http_client

FILES = 12  # of the sample: what has come within its last days
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


def temporary_service() -> TemporaryService:
    """Return how the doctor makes the service that sends its test digest."""
    files = [(reading.at, reading.path) for reading in sample.sample_files()[-FILES:]]
    return TemporaryService(main.build, main.create_app, files)


def doctor_command(
    online: Annotated[bool, typer.Option("--online", help="Ask PAPERBOY_BASE_URL by network, too.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Look for what is wrong, and say how to mend it. Exit code 1 when something is.

    The relay is greeted and the DNS asked. A digest is sent to a mail server of the doctor's own, and left by
    its one click, in a second service that lives for this moment: no reader gets a mail.
    """
    findings = _findings(http_client.HttpTransport() if online else None)
    if as_json:
        output.print_json({"findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(1)


def _findings(online: http_client.HttpTransport | None) -> list[Finding]:
    strange = list(doctor.unknown_settings(os.environ, Path(".env")))
    try:
        settings = output.load_settings()
    except InvalidSettings as error:
        told = str(error).split("\n")
        return [*(Finding("settings", Level.ERROR, said, "see .env.example") for said in told), *strange]
    logs.configure(settings, level="CRITICAL")  # what would be logged is among the findings
    return [
        *strange,
        *doctor.run_checks(settings, clock.utcnow(), online=online, service=temporary_service()),
    ]


def _show(findings: list[Finding]) -> None:
    console = output.out()
    for finding in findings:
        colour = _COLOURS[finding.level]
        said = output.escaped(finding.said)
        console.print(f"[{colour}]{finding.level:7}[/] [bold]{output.escaped(finding.check)}[/] {said}")
        if finding.fix:
            console.print(f"        → {output.escaped(finding.fix)}")
