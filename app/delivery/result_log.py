"""Log the results of sending: a line for each batch, and a line for each email that was not sent."""

from collections import Counter
from collections.abc import Mapping, Sequence

import structlog

from app.delivery.journal import AttemptResult
from app.delivery.send_result import SendOutcome

TAKEN_OVER = "taken over"  # in place of the state, if another sender now has the email

log = structlog.get_logger(__name__)


def log_results(
    batch: Sequence[AttemptResult], states: Mapping[int, str], editions: Mapping[int, str]
) -> None:
    """Log one line for the batch, and one for each email that was attempted but not sent.

    `states` and `editions` are by delivery id. An email without a state was taken over by another sender.
    """
    log.info(
        "emails recorded",
        editions=sorted(set(editions.values())),
        deliveries=[min(editions), max(editions)],
        states=dict(Counter(states.values())),
    )
    for attempt in batch:
        outcome = attempt.result.outcome
        if outcome not in (SendOutcome.ACCEPTED, SendOutcome.NOT_ATTEMPTED, SendOutcome.WITHDRAWN):
            log.info(
                "email not sent",
                delivery=attempt.delivery_id,
                edition=editions[attempt.delivery_id],
                state=states.get(attempt.delivery_id, TAKEN_OVER),
                outcome=outcome.value,
                code=attempt.result.code,
            )
