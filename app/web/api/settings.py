"""The settings in effect, without secrets. Changes to the environment take effect after a restart."""

from fastapi import APIRouter
from pydantic import Field

from app.effective_settings import list_effective
from app.web.api.auth import CanRead
from app.web.api.etags import Versioned
from app.web.api.values import Representation

router = APIRouter(prefix="/settings", tags=["settings"])

Value = str | bool | int | float | list[str]


class SettingOut(Representation):
    """A setting in effect."""

    name: str = Field(examples=["PAPERBOY_SMTP_PORT"], description="The name of the environment variable.")
    value: Value = Field(examples=[587], description="“…” stands for a secret. URLs have no credentials.")
    default: Value = Field(examples=[25])
    changed: bool = Field(description="Whether the value differs from the default.")
    secret: bool


class SettingList(Versioned):
    """All settings, in the order of .env.example."""

    items: list[SettingOut]


@router.get("")
def list_settings(caller: CanRead) -> SettingList:
    """List the settings in effect in this process, without secrets. `.env.example` explains them."""
    return SettingList(items=[SettingOut.model_validate(each) for each in list_effective(caller.settings)])
