"""PURE. Remove openings that refer to the previous sentence, so that a sentence can stand alone.

"To address this, we propose X" becomes "We propose X". Two kinds of openings are removed: connectives
("However,"), and phrases before a comma that contain a demonstrative ("Motivated by these findings,"). If
what remains would not be a sentence, nothing is removed.
"""

import re

MAX_OPENING = 160  # characters; a longer opening has content of its own

_PAPER = (
    r"(?:paper|work|study|report|survey|review|article|letter|brief|tutorial|thesis|manuscript|research)\b"
)
# --- connectives, which can be removed regardless of what follows

_CONNECTIVES = (
    r"(?:however|therefore|thus|hence|moreover|furthermore|additionally|also|besides|then|next|finally|lastly"
    r"|consequently|accordingly|meanwhile|instead|nevertheless|nonetheless|conversely|similarly|likewise"
    r"|otherwise|overall|altogether|together|here|so|yet|but|and|still|specifically|particularly|concretely"
    r"|notably|importantly|interestingly|surprisingly|crucially|indeed|namely|subsequently|alternatively"
    r"|more \w+ly|most \w+ly|first(?:ly)?|second(?:ly)?|third(?:ly)?|fourth|(?:to|towards?) (?:this|that) end"
    r"|to do (?:so|this|that)|in (?:addition|particular|contrast|response|turn|summary|short|essence|fact)"
    r"|by contrast|in doing so|as (?:such|a result|a consequence|a first step|a remedy)"
    r"|for (?:example|instance|this|that)|on the (?:one|other) hand|at the same time|with this in mind"
    r"|at (?:its|the) core|that said|after all|even so|rather)"
)
_IN_PAPER = rf"in (?:this|the present|our) (?:[\w-]+ ){{0,2}}{_PAPER}"
_CONNECTIVE = re.compile(
    rf"(?:{_CONNECTIVES}|{_IN_PAPER}), ?|(?:but|and|so|yet) (?!far|called|another|that|much|many)",
    re.IGNORECASE,
)
# Without a comma, these words are connectives only before a subject.
_BEFORE_WE = re.compile(rf"(?:{_CONNECTIVES}|{_IN_PAPER}) (?=(?:we|this {_PAPER}) )", re.IGNORECASE)
_AFTER_WE = re.compile(
    r"(we) (?:also|therefore|thus|hence|then|further|furthermore|additionally|moreover|accordingly"
    r"|consequently|finally|subsequently|instead) (?=[a-z])",
    re.IGNORECASE,
)
# --- phrases, which can be removed before the subject of a sentence

_NOUN = (
    r"(?:issue|gap|challenge|problem|limitation|finding|insight|observation|shortcoming|drawback|question|need"
    r"|bottleneck|concern|difficult(?:y|ie)|deficienc(?:y|ie)|weakness(?:e)?|obstacle|idea|result)s?"
)
_DEMONSTRATIVE = re.compile(
    r"\b(?:this|these|those|such(?! as)|aforementioned|the (?:above|former|latter|foregoing)"
    rf"|(?:the|our|both|all) (?:\w+ )?{_NOUN}$)",
    re.IGNORECASE,
)
# Before a subject other than "we", a pronoun may refer to that subject: "Despite its size, the model …".
_PRONOUN = re.compile(r"\b(?:it|its|they|their|them)\b", re.IGNORECASE)
_PHRASE = re.compile(
    r"(?:to|in|on|at|by|with|within|without|from|for|of|under|through|towards?|beyond|across|after|before"
    r"|against|amid|among|around|upon|via|due to|during|along|as|given|despite|unlike|like|since|because"
    r"|while|although|though|when|whereas|if|where|once|instead of|\w+(?:ing|ed|wn))\b",
    re.IGNORECASE,
)
# A second phrase with content of its own: "To address this, based on an analogy, we …".
_SECOND_PHRASE = re.compile(r"(?:based on|\w+ed by|to|in|by)\b(?=[^,]*, (?:we|this)\b)", re.IGNORECASE)
_PAPER_SUBJECT = re.compile(
    rf"(?:(?:here |then |thus )?we|this (?:\w+ ){{0,2}}{_PAPER}|our)\b", re.IGNORECASE
)
_SUBJECT = re.compile(
    rf"{_PAPER_SUBJECT.pattern}|(?:the|an?|most|many|some|several|each|every|existing|current|recent)\b"
    r"|(?-i:[A-Z])[\w.-]* (?:\([^)]*\) )?(?:is|are|can|does|has|\w{2,}s) ",
    re.IGNORECASE,
)
# --- openings that refer to the previous sentence but are not phrases

_REFERS = re.compile(
    rf"(?:this|these|those|such)\b(?! (?:\w+ ){{0,2}}{_PAPER})"
    r"|(?:they|their|its|them|neither|another|others)\b"
    r"|it\b(?! (?:is|remains|has been|was) (?:\w+ ){1,3}(?:to|that|whether|how)\b)"
    r"|the (?:former|latter|resulting|same|above|second|third|other)\b"
    rf"|we (?:\w+ly )?\w+ (?:this|these|those|it)\b(?! (?:\w+ ){{0,2}}{_PAPER})|{_CONNECTIVES},",
    re.IGNORECASE,
)


def without_opening(sentence: str) -> str:
    """Return a sentence without the openings that refer to the previous sentence."""
    rest = sentence
    while (shorter := _without_first_opening(rest)) != rest:
        rest = shorter
    return sentence if rest == sentence else _capitalized(rest)


def refers_back(sentence: str) -> bool:
    """Return whether a sentence begins with a reference to the previous sentence."""
    return bool(_REFERS.match(sentence))


def _without_first_opening(text: str) -> str:
    if match := _CONNECTIVE.match(text) or _BEFORE_WE.match(text):
        return text[match.end() :] or text
    if match := _AFTER_WE.match(text):
        return f"{match[1]} {text[match.end() :]}"
    if not _PHRASE.match(text):
        return text
    for comma in re.finditer(", ?", text[:MAX_OPENING]):
        opening, rest = text[: comma.start()], text[comma.end() :]
        if _SECOND_PHRASE.match(rest) and _DEMONSTRATIVE.search(opening):
            return rest
        if _PAPER_SUBJECT.match(rest):
            return rest if _DEMONSTRATIVE.search(opening) or _PRONOUN.search(opening) else text
        if _SUBJECT.match(rest) and "," not in opening:
            return rest if _DEMONSTRATIVE.search(opening) else text
    return text


def _capitalized(text: str) -> str:
    """Capitalize the first letter, unless the first word is a name such as "vLLM"."""
    word = text.split(None, 1)[0].rstrip(",;:")
    return text[:1].upper() + text[1:] if word.isascii() and word.replace("-", "").islower() else text
