"""PURE. The text of a refusal → its reason and the refused command."""

from __future__ import annotations

import re

from app.delivery.smtp.responses import phases, phrases
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.reasons import Reason

_CONTINUED = re.compile(r"\n {12}")
_ABBREVIATIONS = {
    "<who>": phrases.RECIPIENT_WORDS,
    "<gone>": phrases.UNKNOWN_WORDS,
    "<full>": phrases.FULL_WORDS,
}


def _alternatives(block: str) -> str:
    """Return the phrases in a block as one regular expression."""
    expression = "|".join(line.strip() for line in _CONTINUED.sub("", block).strip().split("\n"))
    for name, choice in _ABBREVIATIONS.items():
        expression = expression.replace(
            name, "(?:" + "".join(line.strip() for line in choice.split("\n")) + ")"
        )
    return re.sub(r"<(\d+)>", r"[^.]{0,\1}", expression)


_PHRASES = {
    reason: re.compile(_alternatives(block), re.IGNORECASE)
    for reason, block in phrases.PHRASES_BY_REASON.items()
}
_PHASE = re.compile(
    "|".join(f"(?P<{phase}>{_alternatives(block)})" for phase, block in phases.PHASES.items()), re.IGNORECASE
)
_FAILURE = re.compile(_alternatives(phases.FAILURE), re.IGNORECASE)
_DOT_INSIDE = re.compile(r"\.(?=\S)")


def reason_in(text: str) -> Reason | None:
    """Return the reason that a text names, or None. The text must be one line."""
    text = _DOT_INSIDE.sub("·", text)  # only a dot at the end of a word ends a sentence
    return next((reason for reason, phrase in _PHRASES.items() if phrase.search(text)), None)


def phase_in(text: str) -> Phase:
    """Return the last refused command that a text names, or UNKNOWN."""
    last = Phase.UNKNOWN
    for match in _PHASE.finditer(text):
        last = Phase(match.lastgroup or "")
    return last


def mentions_failure(text: str) -> bool:
    """Return whether a text says that mail was not delivered."""
    return bool(_FAILURE.search(text))
