"""The daily report to the operators."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from app.doctor import daily_report
from app.web.api.auth import CanRead
from app.web.api.values import Day, Representation

router = APIRouter(prefix="/report", tags=["report"])


class SectionOut(Representation):
    """A part of the report."""

    heading: str = Field(examples=["Mail"])
    lines: list[str] = Field(examples=[["google: 78 sent, 1 bounce, 0 complaints"]])


class ReportOut(Representation):
    """The report about a day, as it is sent to the operators."""

    subject: str = Field(examples=["Paperboy, 2026-11-20: 78 digests sent"])
    sections: list[SectionOut]


@router.get("")
def get_report(
    caller: CanRead,
    day: Annotated[Day | None, Query(description="Default: yesterday.", examples=["2026-11-20"])] = None,
) -> ReportOut:
    """Return the report about a day: digests, reasons for unsent digests, mail, subscribers, sources.

    Days are those of PAPERBOY_DEFAULT_ZONE. The findings and the states of subscribers and sources are the
    current ones. With over 10,000 subscribers, the numbers of digests and emails may be up to ten
    minutes old.
    """
    return ReportOut.model_validate(daily_report.build(caller.app, caller.now, day, caller.figures))
