"""Test the log of the changes that operators make."""

import ast
from pathlib import Path
from typing import Any

import pytest

import app as package
from app.application import Application
from app.storage import audit_log
from tests.conftest import NOW

# Functions that record a change, with the place of the action among their arguments
PLACES = {"audit_log.record": 2, "caller.record": 1, "operator.record": 1, "change.record": 0}


def test_every_action_has_words() -> None:
    """Names that are composed, such as those of papers, are checked when they are recorded."""
    files = Path(package.__file__).parent.rglob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    places = [(PLACES.get(ast.unparse(call.func)), call.args) for call in calls]
    named = [values[place] for place, values in places if place is not None]
    actions = {action.value for action in named if isinstance(action, ast.Constant)}
    assert len(actions) > 30
    assert actions - set(audit_log.ACTIONS) == set()


def test_action_without_words_is_refused(app: Application) -> None:
    """So the test of whatever makes such a change fails. Old entries keep the name."""
    with app.db.write() as session, pytest.raises(ValueError, match="no description"):
        audit_log.record(session, "cli", "paper.burn", 1, NOW)
    assert audit_log.describe("paper.burn") == "paper.burn"
    assert audit_log.describe("edition.confirm_uncertain") == "recorded uncertain emails as sent"


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        (
            {"pinned_until": "2026-04-08T07:40:37.236128+00:00", "previously": None},
            "pinned until: 2026-04-08 07:40 UTC",
        ),
        ({"hidden_since": "2026-04-01T07:10:21.889302+00:00"}, "hidden since: 2026-04-01 07:10 UTC"),
        ({"reason": "2026-04-08T07:40"}, "reason: 2026-04-08T07:40"),
        ({"reason": "0001-01-01T00:00:00+14:00"}, "reason: 0001-01-01T00:00:00+14:00"),
        ({"reason": "", "left_out_of_digests": 0}, "left out of digests: 0"),
        ({"reason": "Too slow"}, "reason: Too slow"),
        (
            {"old": {"published_on": None, "authors": []}, "new": {"authors": ["Ann Li", "Bo Wu"]}},
            "old: no published on, no authors, new: authors “Ann Li, Bo Wu”",
        ),
        ({}, ""),
    ],
)
def test_details_have_no_internal_values(detail: dict[str, Any], text: str) -> None:
    assert audit_log.describe_details(detail) == text
