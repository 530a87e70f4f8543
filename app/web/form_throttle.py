"""Limit forms that send email. Above a limit, a form needs a proof of work or has to wait.

Forms are never rejected permanently: a whole laboratory may sign up from one IP address, and a flood
must not keep other visitors out. The limit for one visitor is the setting `signups_per_hour`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from app.storage import hit_counters
from app.storage.database import Database
from app.subscribers import mailbox_hash
from app.web import proof_of_work
from app.web.proof_of_work import Challenge, Puzzles
from app.web.visitors import network

HOUR = timedelta(hours=1)
PER_MAILBOX = 5  # forms an hour
ALL_VISITORS = 25  # the limit for all visitors together, as a multiple of the limit for one
PAUSE = timedelta(seconds=60)
# Added to the pause for each further form from a network, so that its forms are admitted one by one.
SPACING = timedelta(seconds=10)
LONGEST_PAUSE = HOUR


class FormThrottle:
    """Limits for forms. Forms sent to any process are counted together, in the database.

    A visitor may send `per_visitor` forms an hour without a challenge. `attempts` is the work of a challenge:
    see `Puzzles`.
    """

    def __init__(
        self,
        db: Database,
        per_visitor: int,
        secret_keys: Sequence[str],
        attempts: int = proof_of_work.ATTEMPTS,
    ) -> None:
        self._db = db
        self._per_visitor = per_visitor
        self._puzzles = Puzzles(secret_keys, attempts)

    def admit(self, ip: str, email: str, proof: str, now: datetime) -> Challenge | None:
        """Count a form submission. Return None to admit it, or the challenge that must be solved first.

        The result does not depend on whether the address is known. `email` must be normalized.
        """
        mailbox = mailbox_hash(email)
        permit = self._puzzles.permit(proof, mailbox, now)
        if permit and not permit.admits(now):
            return permit.challenge(now)  # the same challenge, with the rest of its pause
        with self._db.write() as session:
            if permit and hit_counters.hit(session, f"proof {permit.nonce}", now, 2 * HOUR).hits == 1:
                return None
            visitor = hit_counters.hit(session, f"visitor {network(ip)}", now, HOUR)
            address = hit_counters.hit(session, f"mailbox {mailbox}", now, HOUR)
            everybody = hit_counters.hit(session, "everybody", now, HOUR)
        strain = max(visitor.hits / self._per_visitor, address.hits / PER_MAILBOX)
        if strain <= 1 and everybody.hits / (self._per_visitor * ALL_VISITORS) <= 1:
            return None
        pause = PAUSE + SPACING * max(0, visitor.hits - self._per_visitor - 1)
        return self._puzzles.create(mailbox, strain, pause if pause <= LONGEST_PAUSE else None, now)
