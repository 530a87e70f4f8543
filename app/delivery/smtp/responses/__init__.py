"""PURE. The meaning of SMTP refusals: code, enhanced status and text → a reason and an outcome.

The same tables are used for the relay's replies and for bounce notices. A specific enhanced status decides.
Many servers send 5.0.0, 5.7.1 or no status, whatever the cause. Then the text decides, and the generic status
only if the text is not recognized.

reasons          the reasons, and the consequences of each
status_codes     enhanced statuses → reasons
phrases          the phrases with which servers refuse mail
phrase_matching  phrases → reasons
phases           which command was refused
failure_phrases  the phrases by which bounce notices are recognised
classify         status, text and command → `Diagnosis` of a notice, `SendOutcome` of a reply
"""

from app.delivery.smtp.responses.classify import Diagnosis, classify, diagnose
from app.delivery.smtp.responses.phrase_matching import mentions_failure
from app.delivery.smtp.responses.reasons import HARD, NOT_ABOUT_RECIPIENT, Action, Reason
from app.delivery.smtp.responses.status_codes import status_in
