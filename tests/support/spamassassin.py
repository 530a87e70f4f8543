"""Score emails with SpamAssassin and its bundled rules, offline."""

import email
import email.policy
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.support.mail_server import Received

# All rules with their points, and nothing learned from other emails on this machine.
OPTIONS = (
    "--local", "--nocreate-prefs", "--cf=use_bayes 0", "--cf=use_auto_welcomelist 0",
    "--cf=add_header all Points _SCORE_ _TESTSSCORES( )_",
)  # fmt: skip
RULES = Path("/usr/share/spamassassin")  # newer rules from sa-update would differ between machines
FIRST = b"X-Spam-Checker-Version: "  # the first line of each email that it returns


@dataclass(frozen=True, slots=True)
class Verdict:
    """The score of an email and the rules that matched."""

    subject: str
    score: float
    rules: tuple[str, ...]


def score_mails(mails: Sequence[Received], at: datetime, folder: Path) -> list[Verdict]:
    """Score each email as delivered to a mailbox, all in one process because it takes seconds to start."""
    program = shutil.which("spamassassin")
    if program is None:
        missing = "SpamAssassin is not installed: run scripts/ensure-tools as root to install it"
        if os.environ.get("PAPERBOY_REQUIRE_SPAMASSASSIN") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    files = [folder / f"{number}.eml" for number, _ in enumerate(mails)]
    for file, mail in zip(files, mails, strict=True):
        file.write_bytes(add_delivery_headers(mail, at))
    alone = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    own = [f"--configpath={RULES}"] if RULES.is_dir() else []
    process = subprocess.run([program, *OPTIONS, *own, *files], env=alone, capture_output=True, check=True)  # noqa: S603
    return [_parse_verdict(FIRST + output) for output in process.stdout.split(FIRST)[1:]]


def add_delivery_headers(mail: Received, at: datetime) -> bytes:
    """Return the email with the headers that the receiving server adds."""
    domain = mail.sender.rpartition("@")[2]
    above = (
        f"Return-Path: <{mail.sender}>\r\n"
        f"Received: from mail.{domain} (mail.{domain} [IPv6:2001:db8::25])\r\n"
        f"\tby mx.example.org (Postfix) with ESMTPS id 4SxYzT2Q; {format_datetime(at)}\r\n"
    )
    return above.encode() + mail.data


def _parse_verdict(output: bytes) -> Verdict:
    head = email.message_from_bytes(output, policy=email.policy.default)
    score, *rules = str(head["X-Spam-Points"]).split()
    return Verdict(str(head["Subject"]), float(score), tuple(rules))
