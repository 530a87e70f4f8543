"""Test the delays between attempts."""

import itertools
from datetime import timedelta

import pytest

from app.delivery.ledger import retry_delays
from app.storage import webhook_outbox
from app.storage.growing_delays import GrowingDelays

POLICIES = {"mails": retry_delays.EMAILS, "webhooks": webhook_outbox.RETRY_DELAYS}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_delays_grow_to_the_longest_one(policy: GrowingDelays) -> None:
    """Of one row, each delay is the previous one times the factor. Many attempts don't overflow."""
    delays = [policy.after(attempts, 7) for attempts in range(1, 20)]
    growth = [delay / delays[0] for delay in delays[:3]]
    assert growth == pytest.approx([1, policy.factor, policy.factor**2])
    assert all(earlier <= later for earlier, later in itertools.pairwise(delays))
    assert 0.75 * policy.longest <= delays[-1] == policy.after(10**6, 7) <= 1.25 * policy.longest


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_delays_differ_between_rows(policy: GrowingDelays) -> None:
    """Emails that failed together are not all sent again at the same moment."""
    delays = {policy.after(1, number) for number in range(1, 500)}
    assert len(delays) == 499
    assert 0.75 * policy.first <= min(delays) < max(delays) <= 1.25 * policy.first


def test_mails_and_webhooks_have_delays_of_their_own() -> None:
    mails, webhooks = POLICIES.values()
    assert mails == GrowingDelays(timedelta(minutes=5), timedelta(hours=4), factor=2)
    assert webhooks == GrowingDelays(timedelta(minutes=1), timedelta(hours=6), factor=4)
