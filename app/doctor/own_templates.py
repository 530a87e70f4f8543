"""Check that each of the operator's own templates replaces one of the release. `templates` renders them."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from app.doctor.findings import Finding, error, ok, warning
from app.errors import InvalidSettings
from app.mail import template_folders
from app.settings import Settings
from app.text.in_words import count_of

CHECK = "templates_dir"


def check(settings: Settings) -> Iterator[Finding]:
    """Check the files in PAPERBOY_TEMPLATES_DIR. A file that another one includes is a template, too."""
    if not settings.templates_dir:
        return
    try:
        template_folders.search_path(settings, "email")
        sources = _read(Path(settings.templates_dir))
    except InvalidSettings as fault:
        yield error(CHECK, str(fault), "correct the file, or PAPERBOY_TEMPLATES_DIR")
        return
    shipped = _names(template_folders.SHIPPED)
    used = 0
    for name in sources:
        _, _, included_as = name.partition("/")
        is_included = included_as and any(included_as in each for each in sources.values())
        if not (name in shipped or is_included):
            similar = get_close_matches(name, shipped, n=1)
            fix = f"did you mean {similar[0]}?" if similar else "templates/README.md lists the templates"
            yield warning(CHECK, f"{name} replaces no template, so it is not used", fix)
        else:
            used += 1
    yield ok(CHECK, f"{count_of(used, 'template')} of your own in {settings.templates_dir}")


def _read(folder: Path) -> dict[str, str]:
    """Return the contents of the files in a folder by name. Raise InvalidSettings if one cannot be read."""
    sources = {}
    for name in _names(folder):
        try:
            sources[name] = (folder / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as fault:
            raise InvalidSettings(f"{name} cannot be read as UTF-8: {fault}") from None
    return sources


def _names(folder: Path) -> list[str]:
    """Return the paths of the files in a folder, without hidden ones, such as those of Git and editors."""
    files = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [file.as_posix() for file in files if not any(part.startswith(".") for part in file.parts)]
