"""PURE. Recognize the comments in which authors withdraw an arXiv paper.

arXiv has no field for it. Authors write “Withdrawn by the authors”, for example, and arXiv's form for
withdrawals appends “Withdrawn: ” and the reason to the comment.
"""

import re

_TEXT = r"(?:article|draft|manuscript|paper|preprint|submission|version|work)"
_WITHDRAWN = re.compile(rf"\bwithdrawn\b|\b{_TEXT} (?:has been|was) (?:retracted|removed)\b", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[.;!?]\s+")
# Clauses in which something else was withdrawn, such as an earlier version or the submission to a conference.
_OTHER = re.compile(
    r"\b(?:earlier|first|former|old(?:er)?|original|previous|prior) "
    rf"(?:[\w-]+ ){{0,2}}{_TEXT}\b.*\bwithdrawn\b"
    r"|\b(?:formerly|never|not|previously) (?:been |be )?withdrawn\b"
    r"|\b(?:that|which) (?:are|has been|have been|is|was|were) withdrawn\b"
    r"|^(?!.*\bthis\b.*\bwithdrawn).*\barxiv: ?[a-z./-]*\d.*\bwithdrawn\b"
    rf"|\bwithdrawn (?:(?-i:[A-Z])\S+ |['’\d]+ )*(?:{_TEXT}|arxiv:)"
    r"|\bwithdrawn from (?!(?:the )?(?:arxiv|circulation|consideration|publication))"
    r"|(?-i:\b[A-Z][A-Za-z]+) ?['’]?\d{2,4} ?[(\[]?withdrawn\b(?! (?:because|by|due))",
    re.IGNORECASE,
)


def is_stated_in(comment: str) -> bool:
    """Return whether an arXiv comment says that the paper was withdrawn."""
    clauses = _CLAUSE_END.split(comment)
    return any(_WITHDRAWN.search(clause) and not _OTHER.search(clause) for clause in clauses)


def state(comment: str, abstract: str) -> bool | None:
    """Return whether a paper is withdrawn, or None if the comment does not say so, but the abstract may."""
    if is_stated_in(comment):
        return True
    return None if _WITHDRAWN.search(abstract) else False
