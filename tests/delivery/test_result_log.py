"""Test the log of results of sending."""

from structlog.testing import capture_logs

from app.delivery import result_log
from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome, SendResult


def test_a_batch_and_each_failure_are_logged() -> None:
    """Emails that were sent, withdrawn or not attempted have no line of their own."""
    outcomes = {
        1: SendResult(SendOutcome.ACCEPTED, 250),
        2: SendResult(SendOutcome.HARD_BOUNCE, 550),
        3: SendResult(SendOutcome.THROTTLED, 421),
        4: SendResult(SendOutcome.NOT_ATTEMPTED),
        5: SendResult(SendOutcome.WITHDRAWN),
    }
    batch = [AttemptResult(number, result, 0.0) for number, result in outcomes.items()]
    states = {1: "sent", 2: "failed", 4: "pending", 5: "pending"}  # another sender has taken over the third
    with capture_logs() as lines:
        result_log.log_results(batch, states, {**dict.fromkeys(outcomes, "2026-11-20"), 2: "2026-11-19"})
    level = {"log_level": "info"}
    of_mail = {**level, "event": "email not sent"}
    assert lines == [
        {
            **level,
            "event": "emails recorded",
            "editions": ["2026-11-19", "2026-11-20"],
            "deliveries": [1, 5],
            "states": {"sent": 1, "failed": 1, "pending": 2},
        },
        {
            **of_mail,
            "delivery": 2,
            "edition": "2026-11-19",
            "state": "failed",
            "outcome": SendOutcome.HARD_BOUNCE.value,
            "code": 550,
        },
        {
            **of_mail,
            "delivery": 3,
            "edition": "2026-11-20",
            "state": "taken over",
            "outcome": SendOutcome.THROTTLED.value,
            "code": 421,
        },
    ]
