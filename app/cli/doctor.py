"""doctor: check this installation and suggest how to fix each problem."""

from contextlib import nullcontext
from typing import Annotated

import typer

from app import clock, doctor, logs, main
from app.cli import output, sample
from app.doctor import Finding, Level, TemporaryService
from app.errors import InvalidSettings
from app.papers.sources import http_client

FILES = 12  # the number of sample files to read, from the sample's last days
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "red"}


def temporary_service() -> TemporaryService:
    """Return the factories for the service that sends the doctor's test digest."""
    files = [(reading.at, reading.path) for reading in sample.sample_files()[-FILES:]]
    return TemporaryService(main.build, main.create_app, files)


def doctor_command(
    online: Annotated[bool, typer.Option("--online", help="Also request PAPERBOY_BASE_URL.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Check this installation and suggest how to fix each problem. Exit code 1 if there is an error.

    The checks connect to the relay and query DNS. A temporary second service sends a test digest to its
    own mail server and unsubscribes with the link in the digest. Subscribers get no mail.
    """
    findings = list(output.unknown_settings())
    try:
        settings = output.load_settings()
    except InvalidSettings as error:
        messages = str(error).split("\n")
        invalid = [Finding("settings", Level.ERROR, message, "see .env.example") for message in messages]
        findings = [*invalid, *findings]
    else:
        logs.configure(settings, level="CRITICAL")  # the findings report the errors
        http = http_client.HttpTransport() if online else None
        console = output.err()
        visible = console.is_terminal and not as_json
        progress = "Checking the settings, the database, the relay, the DNS and a test digest …"
        with console.status(progress) if visible else nullcontext():
            findings += doctor.run_checks(settings, clock.utcnow(), online=http, service=temporary_service())
    if as_json:
        output.print_json({"findings": [finding.as_dict() for finding in findings]})
    else:
        console = output.out()
        for finding in findings:
            colour = _COLOURS[finding.level]
            name, message = output.escaped(finding.check), output.escaped(finding.message)
            console.print(f"[{colour}]{finding.level:7}[/] [bold]{name}:[/] {message}")
            if finding.fix:
                console.print(f"        → {output.escaped(finding.fix)}")
    if any(finding.level is Level.ERROR for finding in findings):
        raise typer.Exit(1)
