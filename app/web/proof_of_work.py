"""Limit forms that send mail. Above a threshold, they need a proof of work or a pause.

Forms are never rejected permanently: a whole laboratory may sign up from one address, and a flood must not
keep others out. The work is an ALTCHA challenge (PBKDF2, solved by static/challenge.js). Without scripts, the
same signed challenge admits its form after a pause. A challenge is valid for one mailbox and admits one form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import altcha

from app.storage import hit_counters
from app.storage.database import Database
from app.subscribers import mailbox_hash
from app.web.visitors import network

HOUR = timedelta(hours=1)
PER_MAILBOX = 5  # forms an hour
ALL_VISITORS = 25  # all visitors together may send as many forms as this many separate visitors
ALGORITHM = "PBKDF2/SHA-256"
ITERATIONS = 1_000  # per attempt; the server needs as many to create a challenge, and none to verify it
ATTEMPTS = 1_500  # about a second in a laptop's browser
MAX_WORK = 16  # maximum factor for ATTEMPTS; if only the total for all visitors is too high, the factor is 1
PAUSE = timedelta(seconds=60)
# Added for each further form from the same network, so that the forms are admitted one by one.
SPACING = timedelta(seconds=10)
LONGEST_PAUSE = HOUR
ADMITTED_AFTERWARDS = timedelta(minutes=30)
MAX_CHARS = 2_000  # in a proof; a valid one has about 900


@dataclass(frozen=True, slots=True)
class Challenge:
    """The work or the pause required before a form is admitted."""

    puzzle: str  # JSON, for the script that solves it
    attempts: int  # maximum number needed to solve it
    proof: str  # sent back with the form; the script adds the solution
    pause: int | None  # seconds after which no solution is needed; None if a solution is always needed


@dataclass(frozen=True, slots=True)
class _Permit:
    """An authentic challenge that was sent back with a form."""

    nonce: str
    solved: bool
    ready_at: datetime | None  # when it admits the form without a solution
    parameters: altcha.Challenge


class Admission:
    """Limits for forms, counted in the database across all processes.

    `attempts` sets the work of a challenge.
    """

    def __init__(
        self, db: Database, per_visitor: int, secret_keys: Sequence[str], attempts: int = ATTEMPTS
    ) -> None:
        self._db = db
        self._per_visitor = per_visitor
        self._secrets = [
            hashlib.blake2b(key.encode(), digest_size=32, person=b"admission").digest() for key in secret_keys
        ]
        self._attempts = attempts

    def admit(self, ip: str, email: str, proof: str, now: datetime) -> Challenge | None:
        """Count a form. Return None to admit it, or the challenge that must be solved first.

        The result does not depend on whether the address is known. `email` must be normalised.
        """
        mailbox = mailbox_hash(email)
        permit = self._read(proof, mailbox, now)
        if permit and not permit.solved and (permit.ready_at is None or permit.ready_at > now):
            # The form was sent too early: return the same challenge with the rest of its pause.
            return _to_challenge(permit.parameters, permit.ready_at - now if permit.ready_at else None)
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
        return self._challenge(mailbox, strain, pause if pause <= LONGEST_PAUSE else None, now)

    def _challenge(self, mailbox: str, strain: float, pause: timedelta | None, now: datetime) -> Challenge:
        """Return a new challenge. If `pause` is None, it always needs a solution."""
        attempts = math.ceil(self._attempts * min(max(strain, 1), MAX_WORK))
        challenge = altcha.create_challenge(
            ALGORITHM,
            ITERATIONS,
            counter=attempts // 2 + secrets.randbelow(attempts // 2 + 1),
            data={
                "mailbox": mailbox,
                "attempts": attempts,
                "ready": int((now + pause).timestamp()) if pause else 0,
                "until": int((now + (pause or PAUSE) + ADMITTED_AFTERWARDS).timestamp()),
            },
            hmac_secret=self._secrets[0],
            hmac_key_secret=self._secrets[0],
        )
        return _to_challenge(challenge, pause)

    def _read(self, proof: str, mailbox: str, now: datetime) -> _Permit | None:
        """Return the challenge in a proof: None if malformed, forged, expired or for another mailbox."""
        if not proof or len(proof) > MAX_CHARS:
            return None
        try:
            decoded = json.loads(base64.b64decode(proof, validate=True))
            payload = altcha.Payload(
                challenge=altcha.Challenge.from_dict(decoded["challenge"]),
                solution=altcha.Solution.from_dict(decoded["solution"]),
            )
        except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        results = (altcha.verify_solution(payload, key, hmac_key_secret=key) for key in self._secrets)
        result = next((result for result in results if result.invalid_signature is False), None)
        if result is None:
            return None
        data: dict[str, Any] = payload.challenge.parameters.data or {}
        if data.get("mailbox") != mailbox or data["until"] < now.timestamp():
            return None
        ready = datetime.fromtimestamp(data["ready"], now.tzinfo) if data["ready"] else None
        return _Permit(payload.challenge.parameters.nonce, result.verified, ready, payload.challenge)


def _to_challenge(challenge: altcha.Challenge, pause: timedelta | None) -> Challenge:
    unsolved = {"challenge": challenge.to_dict(), "solution": {"counter": 0, "derivedKey": ""}}
    proof = base64.b64encode(json.dumps(unsolved).encode()).decode()
    attempts = (challenge.parameters.data or {})["attempts"]
    seconds = math.ceil(pause.total_seconds()) if pause else None
    return Challenge(json.dumps(challenge.to_dict()), attempts, proof, seconds)
