"""Challenges that must be solved before a form is admitted, and the proofs that are sent with the form.

The work is an ALTCHA challenge (PBKDF2, solved by static/challenge.js). Without scripts, a form with the
signed but unsolved challenge is admitted after a pause. A challenge is valid for one mailbox and one form.
"""

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

ALGORITHM = "PBKDF2/SHA-256"
ITERATIONS = 1_000  # per attempt; the server makes one attempt to create a challenge, and none to verify it
ATTEMPTS = 1_500  # about a second in a laptop's browser
MAX_WORK = 16  # maximum factor for ATTEMPTS; if only the total for all visitors is too high, the factor is 1
TIME_TO_SOLVE = timedelta(seconds=60)  # if there is no pause
VALID_AFTERWARDS = timedelta(minutes=30)
MAX_CHARS = 2_000  # in a proof; a valid one has about 900


@dataclass(frozen=True, slots=True)
class Challenge:
    """The work or the pause required before a form is admitted."""

    puzzle: str  # JSON, for the script that solves it
    attempts: int  # maximum number needed to solve it
    proof: str  # sent back with the form; the script adds the solution
    pause: int | None  # seconds after which no solution is needed; None if a solution is always needed


@dataclass(frozen=True, slots=True)
class Permit:
    """An authentic challenge that was sent back with a form."""

    nonce: str
    solved: bool
    ready_at: datetime | None  # when the form is admitted without a solution; None if never
    parameters: altcha.Challenge

    def admits(self, now: datetime) -> bool:
        return self.solved or (self.ready_at is not None and self.ready_at <= now)

    def challenge(self, now: datetime) -> Challenge:
        """Return the same challenge again, with the remainder of its pause."""
        return _to_challenge(self.parameters, self.ready_at - now if self.ready_at else None)


class Puzzles:
    """Challenges, signed and verified with keys derived from the secret keys.

    `attempts` is the maximum number of keys to derive for a challenge with the usual work.
    """

    def __init__(self, secret_keys: Sequence[str], attempts: int = ATTEMPTS) -> None:
        self._secrets = [
            hashlib.blake2b(key.encode(), digest_size=32, person=b"admission").digest() for key in secret_keys
        ]
        self._attempts = attempts

    def create(self, mailbox: str, strain: float, pause: timedelta | None, now: datetime) -> Challenge:
        """Return a challenge for a mailbox. `strain` multiplies the usual work, by 1 to MAX_WORK.

        If `pause` is None, the challenge always needs a solution.
        """
        attempts = math.ceil(self._attempts * min(max(strain, 1), MAX_WORK))
        challenge = altcha.create_challenge(
            ALGORITHM,
            ITERATIONS,
            counter=attempts // 2 + secrets.randbelow(attempts // 2 + 1),
            data={
                "mailbox": mailbox,
                "attempts": attempts,
                "ready": int((now + pause).timestamp()) if pause else 0,
                "until": int((now + (pause or TIME_TO_SOLVE) + VALID_AFTERWARDS).timestamp()),
            },
            hmac_secret=self._secrets[0],
            hmac_key_secret=self._secrets[0],
        )
        return _to_challenge(challenge, pause)

    def permit(self, proof: str, mailbox: str, now: datetime) -> Permit | None:
        """Return the permit in a proof, or None if the proof is invalid, expired or for another mailbox."""
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
        return Permit(payload.challenge.parameters.nonce, result.verified, ready, payload.challenge)


def _to_challenge(challenge: altcha.Challenge, pause: timedelta | None) -> Challenge:
    unsolved = {"challenge": challenge.to_dict(), "solution": {"counter": 0, "derivedKey": ""}}
    proof = base64.b64encode(json.dumps(unsolved).encode()).decode()
    attempts = (challenge.parameters.data or {})["attempts"]
    seconds = math.ceil(pause.total_seconds()) if pause else None
    return Challenge(json.dumps(challenge.to_dict()), attempts, proof, seconds)
