"""PURE. Limits on the papers and bytes of a pasted text or an uploaded file."""

from app.errors import InvalidInput

MAX_PAPERS = 200
MAX_REJECTIONS = 200  # a text with more is unlikely to be a bibliography
MAX_BYTES = 200_000  # in a pasted text
MAX_FILE_BYTES = 600_000
MAX_AUTHORS = 30  # of an entry


def check_size(text: str) -> None:
    """Raise InvalidInput if a pasted text is too long."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise InvalidInput(f"This is more than {MAX_BYTES // 1000} kB of text: please paste less.", "liked")
