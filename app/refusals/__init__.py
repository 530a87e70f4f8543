"""PURE. What a refusal means: code, enhanced status and words → a reason, hard or soft, and a verdict.

One set of tables serves the relay's answers and the notices that come back later. The enhanced status
decides where it says enough. Many servers write 5.0.0, 5.7.1 or none at all, whatever happened: then the
words do, then the vague status.

reasons    the vocabulary                      statuses   enhanced statuses → reasons
phrases    in which servers refuse mail        signs      which command was refused, and that mail came back
words      phrases → reasons                   meanings   all of it together
"""

from app.refusals.meanings import Meaning, classify, meaning
from app.refusals.reasons import HARD, NOT_THE_READERS, Reason
from app.refusals.statuses import status_in
from app.refusals.words import speaks_of_failure

__all__ = [
    "HARD",
    "NOT_THE_READERS",
    "Meaning",
    "Reason",
    "classify",
    "meaning",
    "speaks_of_failure",
    "status_in",
]
