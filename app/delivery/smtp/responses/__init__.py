"""PURE. What an SMTP refusal means: code, enhanced status and words → a reason and an outcome.

One set of tables serves the relay's answers and the notices that come back later. A specific enhanced status
decides. Many servers write 5.0.0, 5.7.1 or none at all, whatever happened: then the words decide, then the
generic status.

reasons          the vocabulary
status_codes     enhanced statuses → reasons
phrases          the phrases in which servers refuse mail
phrase_matching  phrases → reasons
phases           which command was refused
classify         all of it together
"""

from app.delivery.smtp.responses.classify import Diagnosis, classify, diagnose
from app.delivery.smtp.responses.phrase_matching import speaks_of_failure
from app.delivery.smtp.responses.reasons import HARD, NOT_ABOUT_RECIPIENT, Reason
from app.delivery.smtp.responses.status_codes import status_in
