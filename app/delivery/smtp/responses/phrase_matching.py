"""PURE. A refusal's words → the reason that they name, and the command that they tell was refused."""

from __future__ import annotations

import re

from app.delivery.smtp.responses import phases, phrases
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.reasons import Reason

_CONTINUED = re.compile(r"\n {12}")
_SHORT = {"<who>": phrases.WHO, "<gone>": phrases.GONE, "<full>": phrases.FULL}


def _alternatives(block: str) -> str:
    """The phrases of a block as one expression."""
    whole = "|".join(line.strip() for line in _CONTINUED.sub("", block).strip().split("\n"))
    for name, choice in _SHORT.items():
        whole = whole.replace(name, "(?:" + "".join(line.strip() for line in choice.split("\n")) + ")")
    return re.sub(r"<(\d+)>", r"[^.]{0,\1}", whole)


_FAMILIES = {
    reason: re.compile(_alternatives(block), re.IGNORECASE) for reason, block in phrases.MEANING.items()
}
_PHASE = re.compile(
    "|".join(f"(?P<{phase}>{_alternatives(block)})" for phase, block in phases.PHASES.items()), re.IGNORECASE
)
_FAILURE = re.compile(_alternatives(phases.FAILURE), re.IGNORECASE)
_DOT_INSIDE = re.compile(r"\.(?=\S)")


def reason_in(text: str) -> Reason | None:
    """The reason that a text, on one line, names."""
    text = _DOT_INSIDE.sub("·", text)  # a full stop ends a sentence, those of addresses do not
    return next((reason for reason, family in _FAMILIES.items() if family.search(text)), None)


def phase_in(text: str) -> Phase:
    """The last command that a text tells to have been refused."""
    last = Phase.UNTOLD
    for found in _PHASE.finditer(text):
        last = Phase(found.lastgroup or "")
    return last


def speaks_of_failure(text: str) -> bool:
    """Whether a text sounds like mail that was not delivered."""
    return bool(_FAILURE.search(text))
