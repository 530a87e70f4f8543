"""PURE. The text of a refusal → its reason and the refused command."""

import re
from collections.abc import Mapping, Sequence

from app.delivery.smtp.responses import notice_detection_phrases, phases, reason_phrases
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.reason_phrases import PHRASES_BY_REASON, WORDS_BY_REASON
from app.delivery.smtp.responses.refusal_reasons import Reason
from app.text import sanitize

_CONTINUED = re.compile(r"\n {12}")
_ABBREVIATIONS = {
    "<who>": reason_phrases.RECIPIENT_WORDS,
    "<gone>": reason_phrases.UNKNOWN_WORDS,
    "<full>": reason_phrases.FULL_WORDS,
}


def phrases_in(block: str) -> list[str]:
    """Return the phrases in a block, which contains one phrase per line."""
    return [line.strip() for line in _CONTINUED.sub("", block).strip().split("\n")]


def compile_phrase(phrase: str) -> re.Pattern[str]:
    """Compile one phrase, or several alternatives, for text in lower case.

    With re.IGNORECASE, a search would take twice as long.
    """
    for name, choice in _ABBREVIATIONS.items():
        phrase = phrase.replace(name, "(?:" + "".join(line.strip() for line in choice.split("\n")) + ")")
    return re.compile(re.sub(r"<(\d+)>", r"[^.]{0,\1}", phrase))


def compile_reasons(blocks: Mapping[Reason, Sequence[str]]) -> dict[Reason, re.Pattern[str]]:
    """Compile the phrases of each reason."""
    return {reason: compile_phrase("|".join(block)) for reason, block in blocks.items() if block}


def compile_phases(blocks: Mapping[Phase, Sequence[str]]) -> re.Pattern[str]:
    """Compile the phrases of all phases, each as a named group."""
    return compile_phrase("|".join(f"(?P<{phase}>{'|'.join(block)})" for phase, block in blocks.items()))


_PHRASES = compile_reasons({reason: phrases_in(block) for reason, block in PHRASES_BY_REASON.items()})
_WORDS = compile_reasons({reason: phrases_in(block) for reason, block in WORDS_BY_REASON.items()})
_PHASE = compile_phases({phase: phrases_in(block) for phase, block in phases.PHASES.items()})
_FAILURE = compile_phrase("|".join(phrases_in(notice_detection_phrases.FAILURE)))
DOT_INSIDE = re.compile(r"\.(?=\S)")


def without_addresses(text: str) -> str:
    """Return a text with a neutral address in place of each one, so that their words match no phrase.

    Anyone can subscribe an address such as spamhaus@example.org, and refusals quote it.
    """
    return sanitize.EMAIL_ADDRESS.sub("x@x", text)


def reason_in(text: str) -> Reason | None:
    """Return the reason that a text names, or None. The text must be one line."""
    text = DOT_INSIDE.sub("·", text.lower())  # only a dot at the end of a word ends a sentence
    return next((reason for reason, phrase in _PHRASES.items() if phrase.search(text)), None)


def topic_in(text: str) -> Reason | None:
    """Return the reason that single words of a text suggest, or None."""
    text = text.lower()
    return next((reason for reason, words in _WORDS.items() if words.search(text)), None)


def phase_in(text: str) -> Phase:
    """Return the last refused command that a text names, or UNKNOWN."""
    last = Phase.UNKNOWN
    for match in _PHASE.finditer(text.lower()):
        last = Phase(match.lastgroup or "")
    return last


def mentions_failure(text: str) -> bool:
    """Return whether a text says that email was not delivered."""
    return bool(_FAILURE.search(text.lower()))
