"""PURE. The meaning of SMTP refusals: code, enhanced status and text → a reason and an outcome.

The same tables are used for the relay's replies and for bounce notices. A specific enhanced status
determines the reason. Many servers send 5.0.0, 5.7.1 or no status, whatever the reason. In that case, the
text determines it. The generic status counts only if the text is not recognized.

refusal_reasons           the reasons, and the consequences of each
enhanced_status           enhanced statuses → reasons
reason_phrases            the phrases with which servers refuse mail, by reason
phrase_matching           phrases → reasons
phases                    which command was refused
notice_detection_phrases  the phrases that identify a text as a notice of failure, whatever the reason
diagnosis                 status, text and command of a refusal → `Diagnosis`
throttling_phrases        the codes and phrases with which receivers ask us to slow down
reply_outcomes            a relay's reply → `SendOutcome`
"""

from app.delivery.smtp.responses.diagnosis import diagnose
from app.delivery.smtp.responses.enhanced_status import status_in
from app.delivery.smtp.responses.phases import Phase
from app.delivery.smtp.responses.phrase_matching import mentions_failure
from app.delivery.smtp.responses.refusal_reasons import HARD, NOT_ABOUT_RECIPIENT, Action, Reason
from app.delivery.smtp.responses.reply_outcomes import classify
