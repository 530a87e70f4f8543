"""The command line.

Exit codes: 0 success, 1 something failed, 2 wrong usage, 3 `serve` could not start, 130 Ctrl-C,
141 standard output or standard error was closed (SIGPIPE).
With --json, commands print one JSON document to standard output and nothing else. Logs go to standard error.

commands      all commands in one typer application
serve         run the web app, and by default the jobs
worker        run the jobs without the web app
workers       list the processes that run jobs; open procrastinate's shell
migrate       migrate the database
doctor        check this installation
ingest        poll the sources, or read files
sources       sources list, try, add, edit, pause, resume, remove
papers        papers search, show, edit, hide, unhide, pin, unpin, merge, split
model         model train, list
preview       show the digest for some interests
backtest      show which papers interests would have matched over recent days
explain       show why a paper was or was not sent
send          compose and send the digests that are due
sending       sending status, rates, notices, sample, hold, pause, resume, cancel, resend,
              arrived, retry
subscribers   subscribers list, add, show, why, send-test
subscriber_history  subscribers why, and explain without a paper
subscriber_changes  subscribers set, pause, resume, unsubscribe, erase, delete-feedback, new-links
subscriber_files    subscribers import, export
changes       list the changes made by operators
deliveries    list the emails in the ledger
runs          list the job runs
report        show the daily report, or send it to the operators
settings      show the settings in effect, without secrets
backup        backup, restore
move          move to another database
keys          key create, list, rotate, revoke, secret, dkim
webhooks      webhooks list, add, test, messages, rotate, enable, disable, resend, remove
bounces       parse bounce emails
suppressions  suppressions list, add, lift
output        functions that all commands use: options, tables, JSON, errors
demo          demo
sample        the recorded responses that the demo and the doctor read
"""

import os
import sys
from io import TextIOWrapper
from pathlib import Path

from app.runtime import interpreter

INTERRUPTED = 130  # the exit code of a program that Ctrl-C ends, also in Typer
CLOSED_PIPE = 141  # that of a program that SIGPIPE ends, such as `git log` in `git log | head`


def main() -> None:
    """Run the console script. Print “?” for a character that the encoding of the terminal does not have."""
    if sys.stdin is None:  # it is closed: abort questions, as at its end
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - the whole process uses it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        with interpreter.importing():
            from app.cli.commands import cli
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        cli()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer and Rich exit with 1, as if a command failed
            sys.exit(CLOSED_PIPE)
        raise
