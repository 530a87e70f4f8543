"""Test that API models have the fields of the dataclasses that fill them. Pydantic ignores other fields."""

from dataclasses import fields

import pytest
from pydantic import BaseModel

from app.bounces.rates import ReceiverRate
from app.relevance.suggestions import InterestHint
from app.subscribers import Preferences
from app.types import PaperRecord
from app.web.api.interests import HintOut
from app.web.api.sources import TrialPaperOut
from app.web.api.statistics import MailRate
from app.web.api.subscriber_files import ImportedRow

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("model", "filled_from", "added", "omitted"),
    [
        (HintOut, InterestHint, {"message"}, {"is_foreign", "topics_are_near"}),  # which the message says
        (
            ImportedRow,
            Preferences,
            {"email", "state", "paused_until", "consent_at", "consent_version"},
            set(),
        ),
        (MailRate, ReceiverRate, {"complaint_percent"}, set()),
    ],
)
def test_model_has_all_fields(
    model: type[BaseModel], filled_from: type, added: set[str], omitted: set[str]
) -> None:
    """A new field of the dataclass belongs in the model, or in the fields that it omits."""
    names = {field.name for field in fields(filled_from)}
    assert omitted <= names
    assert set(model.model_fields) == names - omitted | added


def test_paper_of_a_trial() -> None:
    """It has only some of the fields of a record, and all other fields are given."""
    assert set(TrialPaperOut.model_fields) - {field.name for field in fields(PaperRecord)} == {"paper_id"}
