"""The ledger: one row for each mail, always in exactly one state.

    pending ─▶ claimed ─▶ committing ─▶ sent
       ▲          │            ├──▶ deferred (next_attempt_at) ─▶ claimed …
       └──────────┘            ├──▶ failed
     its sender died           └──▶ uncertain: the connection or the process died after the body

`committing` is in the sender's journal before the body leaves, and in its row when that lasts longer than a
second. So a crash leaves at most the mails in flight uncertain; whatever was only claimed is provably
unsent. Functions take a session and never commit, except for `SenderLedger` and `recover`, because a mail
that was sent cannot be rolled back.

snapshots      what digests show of papers, stored once for all readers of a day
entries        add mails and skips; the papers promised so far
claims         hand mails out to senders
sender_ledger  what one sender may send, and what came of it
outcomes       record the results of attempts; retry delays
transitions    how a row changes its state
recovery       after a crash, and past the time limit
controls       pause, resume, cancel, resend
signatures     signatures made ahead
queries        counts, lists and totals
retention      delete what is past its retention
"""

from app.delivery.ledger.claims import EVERYTHING, LEASE, ClaimedBatch, claim, letters, still_sendable
from app.delivery.ledger.controls import cancel, pause, pauses, resend, resume
from app.delivery.ledger.entries import (
    UNDELIVERED,
    Entry,
    enqueue,
    enter,
    paper_ids_promised,
    skipped_since_last_digest,
    withdraw,
)
from app.delivery.ledger.outcomes import OnFailed, record_results, retry_delay
from app.delivery.ledger.queries import Waiting, counts, digests, editions, of_late, totals, waiting
from app.delivery.ledger.recovery import has_work, recover
from app.delivery.ledger.retention import prune_deliveries, prune_events
from app.delivery.ledger.sender_ledger import SenderLedger
from app.delivery.ledger.signatures import Signature, lock_unsigned, store_signatures
from app.delivery.ledger.snapshots import RestoredDigest, SnapshotStore, paper_ids, prune_cards, store
