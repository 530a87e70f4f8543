"""PURE. Find out what has changed since a form was shown.

This prevents people from overwriting changes that they have not seen. A form contains the version of each
value that its page showed.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b


def version_of(value: str) -> str:
    """Return a digest of a value, ignoring line endings, because browsers change them."""
    plain = "\n".join(value.strip().splitlines())
    return blake2b(plain.encode(errors="replace"), digest_size=12).hexdigest()


def versions_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of the values that a page shows, keyed by field name."""
    return {name: version_of(value) for name, value in values.items()}


def parse(fields: Iterable[str]) -> dict[str, str]:
    """Return the versions that a form contains as `NAME:VERSION NAME:VERSION`, keyed by field name."""
    pairs = (pair.partition(":") for field in fields for pair in field.split())
    return {name: version for name, _, version in pairs}


def edits(typed: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """Return the typed values that differ from those that the page showed, whose versions are in `seen`."""
    return {name: value for name, value in typed.items() if version_of(value) != seen[name]}


def conflicts(
    edited: Mapping[str, str], stored: Mapping[str, str], seen: Mapping[str, str]
) -> dict[str, str]:
    """Return the current versions of edited fields that have also changed since the page was shown."""
    current = versions_of({name: stored[name] for name in edited})
    return {
        name: version
        for name, version in current.items()
        if version not in (seen[name], version_of(edited[name]))
    }


def describe_conflicts(names: Iterable[str]) -> str:
    """Return the problem with a form whose fields `names` have also been changed elsewhere."""
    return (
        "Nothing was saved, because these values have changed since the page was shown: "
        f"{', '.join(names)}. Open the page in another tab to see the current values, then save here again "
        "to replace them."
    )
