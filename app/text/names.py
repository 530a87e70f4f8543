"""PURE. Put given names first, and normalize names of people and organizations for comparison."""

import re
from functools import lru_cache

from app.text.characters import MARK, remove_accents
from app.text.tokenizer import WORD

# Suffixes of companies and of people. Those that are mostly initials after a comma are left out, such as
# “II”, “AG” and “S.A.”: “Smith, S.A.” is a person.
_COMPANY = r"(?i:co\.|company|corp\.?|corporation|gmbh|inc\.?|incorporated|limited|llc|ltd\.?|plc)"
_GENERATION = r"(?:Jr\.?|Sr\.?|III)"
_ENDS_WITH_COMPANY = re.compile(rf"[\s,]{_COMPANY}\s*$")
_GENERATION_AT_END = re.compile(rf"(?<![^\s,]){_GENERATION}\s*(?=,|$)")
_OUTSIDE_BRACKETS = r"(?![^()（）]{0,200}[)）])"  # which may contain an affiliation
_COMMA = re.compile(rf",{_OUTSIDE_BRACKETS}")
_BETWEEN_NAMES = re.compile(rf"(?:,(?!\s*(?:{_COMPANY}|{_GENERATION})\s*(?:,|$))|[，、]){_OUTSIDE_BRACKETS}")
_INITIALS = re.compile(rf"\s*(?:[^\W\d_]{{1,2}}\.[\s-]*)+(?:,?\s*{_GENERATION})?\s*")
_AND = re.compile(rf",?\s+(?:and|&)\s+{_OUTSIDE_BRACKETS}")
_SEMICOLON = re.compile(rf"\s*[;；]{_OUTSIDE_BRACKETS}\s*(?:(?:and|&)\s+)?")
_FAMILY_NAME_FIRST = re.compile(r"[^,]+,\s*\w[^,]*")
_SPELLED_OUT = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"})
_NAME_WORD = re.compile(rf"[^\W_](?:[^\W_]|{MARK})*+")  # the S of "D'S" is part of the name, not a possessive
_INITIAL = re.compile(r"[^\W\d_]\s")
# Words that occur in names of organizations.
_OF_ORGANIZATIONS = re.compile(r"\b(?:of|for|in|the)\b")
_ORGANIZATION = re.compile(
    r"\b(?:of|for|in|the|(?i:academy|agency|association|bureau|cent(?:er|re)|collaboration|college|company|"
    r"consortium|council|department|development|engineering|foundation|group|hospital|institute|"
    r"laborator(?:y|ies)|labs?|medicine|ministry|network|research|school|sciences?|services|society|systems|"
    r"team|technolog(?:y|ies)|university))\b"
)


@lru_cache(maxsize=100_000)
def normalized_name(author: str) -> str:
    """Return a name in normalized form: "Jané Q. Doe" and "Doe, Jane" → "jane doe", "J. Doe" → "j doe"."""
    words = words_of_name(author)
    return " ".join([*words[:1], *(word for word in words[1:-1] if len(word) > 1), *words[1:][-1:]])


def given_name_first(name: str) -> str:
    """Return a name with the given name first: “Knuth, Donald E.” becomes “Donald E. Knuth”.

    Suffixes stay at the end: “King, Martin Luther, Jr.” becomes “Martin Luther King Jr.”, and “OpenAI, Inc.”
    becomes “OpenAI Inc.”.
    """
    if "," not in name or len(parts := _COMMA.split(name, maxsplit=1)) == 1:
        return name.strip()
    if _ENDS_WITH_COMPANY.search(name):
        return " ".join(name.replace(",", " ").split())
    last, rest = parts
    generations = _GENERATION_AT_END.findall(rest)
    given = [*filter(None, map(str.strip, _COMMA.split(_GENERATION_AT_END.sub("", rest))))]
    return " ".join(filter(None, [*given[:1], last.strip(), *given[1:], *generations]))


def split_names(text: str) -> list[str]:
    """Split a list of names at semicolons if it has any, otherwise at commas.

    A comma before initials or a suffix, such as “Jr.” or “Inc.”, is not between names, and neither is that of
    a single name, “Müller, Anna”. Also split at “and” and “&”, unless they seem to be part of an
    organization's name. If each part is like “Müller, Anna”, split only at “and” and “&”. Do not split within
    brackets.
    """
    parts = _SEMICOLON.split(text.strip())
    if len(parts) > 1:
        return [name for part in parts if part for name in _split_at_and(part)]
    pieces = _split_at_and(text)
    if len(pieces) > 1 and all(map(_FAMILY_NAME_FIRST.fullmatch, pieces)):
        return pieces
    names = list[str]()
    for part in _BETWEEN_NAMES.split(", ".join(pieces)):
        if names and _INITIALS.fullmatch(part):
            names[-1] += f",{part}"
        else:
            names.append(part)
    is_name = ",".join(names) == text and len(names) == 2 and any(len(name.split()) == 1 for name in names)
    return [text] if is_name else names


def _split_at_and(text: str) -> list[str]:
    pieces = _AND.split(text)
    is_list = all(len(piece.split()) > 1 for piece in pieces)
    return pieces if is_list and not any(map(_is_one_organization, pieces, pieces[1:])) else [text]


def _is_one_organization(left: str, right: str) -> bool:
    """Return whether the “and” between two texts is part of an organization's name.

    After “of” or “for”, a field looks like a person (“Institute of Physics and Machine Learning”), so
    “University of Oxford and Bo Li” also counts as one name.
    """
    left, right = left.rpartition(",")[2], right.partition(",")[0]
    if _OF_ORGANIZATIONS.search(left):  # “Center for Data Science and Machine Learning”
        return True
    # Otherwise, “Siemens Research & Development Center” or “Texas A & M University”
    is_continued = _ORGANIZATION.search(left) or _INITIAL.match(right)
    return bool(is_continued and _ORGANIZATION.search(right))


def words_of_name(name: str) -> list[str]:
    """Return the lower-case words of a name without accents: "Nießner, José" → ["jose", "niessner"]."""
    return _NAME_WORD.findall(remove_accents(given_name_first(name)).translate(_SPELLED_OUT))


def forms_of_name(name: str) -> list[list[str]]:
    """Return the words of a name and, if it has middle initials, also the words without them.

    A paper may have either form: "Ada M. Byron" → [["ada", "m", "byron"], ["ada", "byron"]].
    """
    words, normalized = words_of_name(name), normalized_name(name).split()
    return [words] if words == normalized else [words, normalized]


def words_of_organization(name: str) -> list[str]:
    """Return the lower-case words of an organization's name without accents."""
    return WORD.findall(remove_accents(name).translate(_SPELLED_OUT))
