"""report: show the daily report, or send it to the operators."""

from dataclasses import asdict
from datetime import date
from typing import Annotated

import typer

from app import clock
from app.cli import output
from app.doctor import daily_report, operator_mail
from app.errors import InvalidSettings
from app.text.in_words import count_of


def report(
    send: Annotated[
        bool, typer.Option("--send", help="Send the report to PAPERBOY_ADMIN_ADDRESSES; do not print it.")
    ] = False,
    day: Annotated[
        date | None,
        output.day_option(
            "--day",
            "The day in PAPERBOY_DEFAULT_ZONE, such as 2026-11-20, today or yesterday.",
            in_default_zone=True,
        ),
    ] = None,
    as_json: output.AsJson = False,
) -> None:
    """Show a day's digests, mail and papers, and the current problems. Default: yesterday."""
    now = clock.utcnow()
    with output.open_application(needs_secret=False) as app:
        built = daily_report.build(app, now, day)
        if send:
            if not app.settings.admin_addresses:
                raise InvalidSettings("PAPERBOY_ADMIN_ADDRESSES is not set: list the operators' addresses")
            emails = operator_mail.emails(app, built)
            sent, operators = operator_mail.send(app, emails, now), len(emails)
            if as_json:
                output.print_json({"sent": sent, "operators": operators})
            else:
                output.out().print(f"Sent to {sent} of {count_of(operators, 'operator')}.")
            return
    if as_json:
        output.print_json(asdict(built))
        return
    console = output.out()
    console.print(f"[bold]{output.escaped(built.subject)}[/]")
    for section in built.sections:
        console.print(f"\n[bold]{output.escaped(section.heading)}[/]")
        for line in section.lines:
            console.print(output.escaped(line), soft_wrap=True)
