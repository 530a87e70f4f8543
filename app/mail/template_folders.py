"""The folders with the templates of pages and emails: the operator's own, then the one of the release."""

from pathlib import Path

from app.errors import InvalidSettings
from app.settings import Settings

SHIPPED = Path(__file__).resolve().parents[2] / "templates"


def search_path(settings: Settings, kind: str) -> tuple[Path, ...]:
    """Return the folders with the templates of a kind, `email` or `web`. Files in the first take precedence.

    Raise InvalidSettings if PAPERBOY_TEMPLATES_DIR is set, but is not a folder.
    """
    if not settings.templates_dir:
        return (SHIPPED / kind,)
    own = Path(settings.templates_dir)
    if not own.is_dir():
        raise InvalidSettings(
            f"PAPERBOY_TEMPLATES_DIR: there is no folder {own.absolute()}: correct the setting, or leave it "
            "empty to use only the templates of the release"
        )
    return own / kind, SHIPPED / kind


def find(folders: tuple[Path, ...], name: str) -> Path | None:
    """Return the file of a template in the first folder that has it, or None."""
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
