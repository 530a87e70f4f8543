"""PURE. Recognize automatic replies (RFC 3834), such as those of people who are out of the office."""

import re

from app.bounces.mime_parser import Part
from app.delivery.smtp import responses

# Fields that only automatic replies have.
_FIELDS = ("x-autoreply", "x-autorespond", "x-autoresponder", "x-auto-response-suppress")
_AWAY = re.compile(
    r"\b(?:out of (?:the )?office|auto(?:matic|mated)?[- ]?(?:reply|response|answer)|away (?:until|from)|"
    r"on (?:vacation|holiday|leave)|currently away|vacation (?:reply|response)|abwesen|auto: |autosvar|"
    r"automatisch(?:e antwort| antwoord)|réponse automatique|absence du bureau|"
    r"r(?:espuesta|isposta|esposta) autom[aá]tica|fuera de (?:la )?oficina|автоматический ответ|автоответ)|"
    r"自動(?:応答|返信|回覆)|自动(?:回复|答复)",
    re.IGNORECASE,
)
FROM_A_DAEMON = re.compile(r"mailer-daemon|post_?master|mail delivery|mdaemon", re.IGNORECASE)


def is_automatic_reply(mail: Part) -> bool:
    """Return whether a message is an automatic reply. A bounce is none, even if a server marked it so."""
    subject = mail.header("subject")
    automatic = mail.header("auto-submitted").lower().startswith("auto-replied")
    automatic = automatic or any(map(mail.header, _FIELDS))
    daemon = FROM_A_DAEMON.search(mail.header("from")) or mail.header("x-failed-recipients")
    away = _AWAY.search(subject)
    if daemon or not (automatic or away):
        return False
    # "Undeliverable: Automatic reply" is a bounce of an automatic reply.
    return not responses.mentions_failure(subject[: away.start()] if away else subject)
