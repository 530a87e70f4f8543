"""List the settings in effect, without secrets, for operators to read."""

import re
from dataclasses import dataclass
from typing import Any

from app.settings import Settings

HIDDEN = "…"  # instead of a secret


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """A setting in effect. The value of a secret is HIDDEN if the secret is set."""

    name: str  # of the environment variable
    value: Any
    default: Any
    changed: bool  # differs from the default
    secret: bool


def list_effective(settings: Settings) -> list[EffectiveSetting]:
    """Return all settings in effect, in the order of .env.example, for operators to read.

    The values of secrets, which are the fields with `repr=False`, are hidden, and so are user names,
    passwords and parameters in URLs.
    """
    plain = settings.model_dump(mode="json")
    listed = []
    for name, field in Settings.model_fields.items():
        value, default = getattr(settings, name), field.default
        visible = _readable(plain[name]) if field.repr else (HIDDEN if value else "")
        visible = "" if visible is None else visible
        default_value = "" if default is None else list(default) if isinstance(default, tuple) else default
        listed.append(
            EffectiveSetting(
                f"PAPERBOY_{name.upper()}", visible, default_value, value != default, secret=not field.repr
            )
        )
    return listed


def _readable(value: Any) -> Any:
    if isinstance(value, list):
        return [_readable(each) for each in value]
    return hide_credentials(value) if isinstance(value, str) else value


def hide_credentials(text: str) -> str:
    """Hide the user name, the password and all parameters if a text is a URL. Return other texts unchanged.

    A parameter may be a password: postgresql+psycopg://host/name?password=…
    """
    if "://" not in text:
        return text
    return re.sub(r"([?&][^=&#]*=)[^&#]+", rf"\1{HIDDEN}", re.sub(r"://.*@", f"://{HIDDEN}@", text))
