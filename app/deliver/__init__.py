"""The ledger: one row for each mail to a reader, always in exactly one state.

    pending ─▶ claimed ─▶ committing ─▶ sent
       ▲          │            ├──▶ deferred (next_attempt_at) ─▶ claimed …
       └──────────┘            ├──▶ failed
     its sender died           └──▶ uncertain: the connection or the process died after the body

`committing` is in the sender's journal before the body leaves, and in its row when that lasts longer than a
second. So a crash leaves at most the mails in flight uncertain; whatever was only claimed is provably
unsent. Functions take a session and never commit, except for `Ledger`, the sender's own hand, and
`recover`, because a mail that was sent cannot be rolled back.

cards      what digests show of papers, written once for all readers of a day
entries    into the ledger: mails to be sent, digests that are none, the papers promised so far
claims     out of the ledger, to be sent
outcomes   what became of an attempt, and what follows from it
recovery   after a crash, and past the time
operating  the operator's hand
queries    what the ledger knows
balance    what the ledger holds, compared with who was due
hand       the sender's own hand
retention  what is deleted after its time
signatures what is signed ahead
marking    how a row changes
"""

from app.deliver.balance import Balance, balance, recent
from app.deliver.cards import Cards, Restored, paper_ids, prune_cards, stored
from app.deliver.claims import (
    EVERYTHING,
    LEASE,
    Shard,
    claim,
    letters,
    may_still_leave,
)
from app.deliver.entries import UNDELIVERED, Entry, enqueue, enter, papers_promised, silences, withdraw
from app.deliver.hand import Ledger
from app.deliver.operating import cancel, pause, pauses, release, resume
from app.deliver.outcomes import record, retry_delay
from app.deliver.queries import Waiting, counts, digests, editions, of_late, totals, waiting
from app.deliver.recovery import anything_to_do, recover
from app.deliver.retention import prune_deliveries, prune_events
from app.deliver.signatures import Signature, lock_unsigned, store_signatures

__all__ = [
    "EVERYTHING",
    "LEASE",
    "UNDELIVERED",
    "Balance",
    "Cards",
    "Entry",
    "Ledger",
    "Restored",
    "Shard",
    "Signature",
    "Waiting",
    "anything_to_do",
    "balance",
    "cancel",
    "claim",
    "counts",
    "digests",
    "editions",
    "enqueue",
    "enter",
    "letters",
    "lock_unsigned",
    "may_still_leave",
    "of_late",
    "paper_ids",
    "papers_promised",
    "pause",
    "pauses",
    "prune_cards",
    "prune_deliveries",
    "prune_events",
    "recent",
    "record",
    "recover",
    "release",
    "resume",
    "retry_delay",
    "silences",
    "store_signatures",
    "stored",
    "totals",
    "waiting",
    "withdraw",
]
