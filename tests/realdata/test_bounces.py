"""All recorded bounces and complaints: most are read as those who collected them say, and none breaks us."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from app.bounces import Kind, Notice, parse_mail
from app.delivery.smtp import responses
from tests.conftest import SHARED_DATA
from tests.support.mutations import mutated

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(400)]

FOLDER = SHARED_DATA / "bounces"
MAILS = 289
# As measured; what is asked for is 95 % and 85 % of 289: 275 and 246.
HARD_AGREES, REASON_AGREES = 281, 273
IS_NO_BOUNCE = {"vacation", "feedback", "delivered"}


def labels() -> list[dict[str, Any]]:
    lines = (FOLDER / "labels.jsonl").read_text().splitlines() if FOLDER.is_dir() else []
    return [json.loads(line) for line in lines]


def read(label: dict[str, Any]) -> tuple[Notice, ...]:
    return parse_mail((FOLDER / label["file"]).read_bytes())


def test_most_are_read_as_labelled() -> None:
    """The first recipient decides. What is no bounce is neither hard nor soft."""
    agreed: Counter[str] = Counter()
    for label in labels():
        first, wanted = read(label)[0], label["expected"][0]
        agreed["mails"] += 1
        agreed["hard"] += (first.hard is True) == (wanted["hardbounce"] == "1")
        agreed["reason"] += first.reason.value == wanted["reason"]
    assert agreed == {"mails": MAILS, "hard": HARD_AGREES, "reason": REASON_AGREES}


def test_no_absence_and_no_complaint_is_a_bounce() -> None:
    """Not one, and neither is a note that a mail arrived."""
    wrong = {
        label["file"]
        for label in labels()
        if label["expected"][0]["reason"] in IS_NO_BOUNCE
        and any(notice.hard is not None or notice.kind is Kind.BOUNCE for notice in read(label))
    }
    assert wrong == set()


def test_every_reason_is_of_the_vocabulary() -> None:
    """Whoever labelled them and we speak the same language."""
    known = {reason.value for reason in responses.Reason}
    assert {each["reason"] for label in labels() for each in label["expected"]} <= known


def test_ten_thousand_mutations_break_nothing() -> None:
    """Cut, doubled, mixed and sprinkled with random bytes: each is read, and none takes long."""
    mails = [path.read_bytes() for path in sorted(Path(FOLDER / "mails").iterdir())]
    dice, slowest = random.Random(20261121), 0.0  # noqa: S311
    for _ in range(10_000):
        mail, began = mutated(dice.choice(mails), dice.choice(mails), dice), time.process_time()
        assert parse_mail(mail)
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 2, "many times what the largest takes: something grows faster than the mail"
