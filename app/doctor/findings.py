"""The result of a check: its name, level, message and fix, and the action that resolves the problem."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"  # the service works, but not as well as it should
    ERROR = "error"  # a part of the service does not work, so that, for example, no mail is sent


class RemedyAction(StrEnum):
    """An action that resolves a finding. The admin pages have a button for it."""

    POLL_SOURCE = "poll_source"
    RESUME_SOURCE = "resume_source"
    RESUME_SENDING = "resume_sending"
    SEND_FIRST_DIGESTS = "send_first_digests"
    RESUME_EDITION = "resume_edition"
    APPROVE_EDITION = "approve_edition"
    RETRY_FAILED = "retry_failed"
    REPLACE_KEY = "replace_key"
    REVOKE_KEY = "revoke_key"
    ENABLE_WEBHOOK = "enable_webhook"
    TRAIN_MODEL = "train_model"


@dataclass(frozen=True, slots=True)
class Remedy:
    """The action that resolves a finding.

    `action` is None if an operator has to choose an action. `subject` is the edition, or the id of
    the source, key or webhook, to which the action applies. It is "" for other actions.
    """

    action: RemedyAction | None
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. A warning or error always has a fix.

    It is shown as "check: message". The message is a sentence without its period, or a phrase, and begins
    in lower case. Operators get an alert if `urgent` is set. Errors are always urgent. If `since` is set, a
    later time means another problem, about which they get another alert.
    """

    check: str
    level: Level
    message: str
    fix: str = ""
    urgent: bool = False
    remedy: Remedy | None = None
    since: datetime | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what operators and their programs see: all fields but `since`."""
        return {name: value for name, value in asdict(self).items() if name != "since"}


def ok(check: str, message: str, advice: str = "") -> Finding:
    return Finding(check, Level.OK, message, advice)


def warning(
    check: str, message: str, fix: str, *, urgent: bool = False, remedy: Remedy | None = None
) -> Finding:
    return Finding(check, Level.WARNING, message, fix, urgent, remedy)


def error(check: str, message: str, fix: str, *, remedy: Remedy | None = None) -> Finding:
    return Finding(check, Level.ERROR, message, fix, urgent=True, remedy=remedy)


Check = Callable[[], Iterable[Finding]]


def run_check(name: str, check: Check) -> list[Finding]:
    """Return a check's findings, with one for an exception that it raises, so that other checks still run."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as fault:
        log.exception("a check could not run", check=name)
        message = f"the check could not run: {type(fault).__name__}: {str(fault).partition(chr(10))[0]}"
        fix = "remove the cause that the message names; if it names none, please report a bug with this line"
        findings.append(error(name, message, fix))
    return findings
