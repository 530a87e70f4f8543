"""The findings of the `paperboy doctor` checks that need no network, as on the first admin page."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.doctor import local_checks
from app.doctor.findings import Level, RemedyAction
from app.web.api.auth import CanRead
from app.web.api.values import Representation

router = APIRouter(prefix="/findings", tags=["findings"])


class RemedyOut(Representation):
    """The action that resolves a finding. If `action` is set, the first admin page has a button for it."""

    action: RemedyAction | None = Field(description="Null if an operator has to choose an action.")
    subject: str = Field(description="The ID or the edition to which the action applies.", examples=["3"])


class FindingOut(Representation):
    """The result of one check."""

    check: str = Field(examples=["source The lab"])
    level: Level
    message: str = Field(
        examples=["it failed 3 times in a row: status 404"],
        description="The problem or, at level `ok`, the state. Show it after `check` and a colon.",
    )
    fix: str = Field(description="Advice on how to resolve a warning or an error.")
    urgent: bool = Field(description="Whether operators get an alert by email.")
    remedy: RemedyOut | None


class FindingList(BaseModel):
    """The selected findings, those about the settings last."""

    items: list[FindingOut]


@router.get("")
def list_findings(caller: CanRead, level: Annotated[list[Level] | None, Query()] = None) -> FindingList:
    """Check the database, sources, jobs, late digests, pauses, keys, webhooks, models, disk and settings.

    Repeat `level` to select several: `level=warning&level=error` selects those on the first admin page.
    `paperboy doctor` also checks the relay, the DNS and a test digest. With over 10,000 subscribers, figures
    that are slow to count, such as the digests that can be sent again, may be up to ten minutes old.
    """
    findings = local_checks.all_findings(caller.app, caller.now, caller.figures)
    return FindingList(
        items=[FindingOut.model_validate(each) for each in findings if not level or each.level in level]
    )
