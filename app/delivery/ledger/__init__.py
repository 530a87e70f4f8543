"""The ledger: one row per email, always in exactly one state.

    pending ─▶ claimed ─▶ committing ─▶ sent
       ▲          │            ├──▶ deferred (next_attempt_at) ─▶ claimed …
       └──────────┘            ├──▶ failed
   the sender died             └──▶ uncertain: the connection or the process died before the reply

A sender writes `committing` to its journal before it sends the body, and to the row if the reply takes longer
than a second. So after a crash, only the emails in flight are uncertain. Emails that were only claimed are
provably unsent. Functions take a session and never commit. The exceptions are `SenderLedger` and `recover`,
because an email that was sent cannot be rolled back.

snapshots          copies of papers as digests show them, shared by all digests of a day
entries            add emails and skipped digests; find papers that were already promised
claims             claim emails for a sender, with a lease
sender_ledger      claim, journal, commit and record, for one running sender
circuit_breaker    pause sending when the relay refuses too many emails
suspected_refusals  pause sending when the relay seems to refuse us
receiver_backoffs  delay emails to receivers that asked us to send less
daily_limits       limit the emails to each receiver while a sending domain warms up
outcomes           record the results of attempts
retry_delays       when an email is sent again
transitions        change a row's state
recovery           recover the emails of dead senders
expiry             give up on emails that have waited too long
sending_pauses     pause, resume, hold until approved
controls           cancel, resend, confirm, retry
removal            remove hidden and repeated papers from digests that have not been sent yet
paper_history      the digests that contain a paper
signatures         DKIM signatures made before a digest is due
queries            totals, editions, waiting emails
edition_totals     cache the totals of past editions
held_after_restore  hold emails that may have been sent since the backup was made; skip their ids
retention          delete old deliveries and events; drop the signatures and senders of sent emails
"""

from app.delivery.ledger.claims import (
    ALL_EDITIONS,
    LEASE,
    ClaimedBatch,
    claim,
    exceeds_a_batch,
    mail_requests,
    sendable_addresses,
)
from app.delivery.ledger.controls import (
    cancel,
    confirm_arrival,
    confirm_uncertain,
    count_cancellable,
    count_held_uncertain,
    count_retryable,
    has_retryable,
    resend,
    resend_uncertain,
    retry_failed,
    uncertain_ids,
)
from app.delivery.ledger.daily_limits import is_limited, warm_up_of, warm_up_status
from app.delivery.ledger.edition_totals import EditionTotals
from app.delivery.ledger.entries import (
    UNDELIVERED,
    Entry,
    PromisedContent,
    add_entries,
    awaiting_first_digest,
    enqueue,
    first_undelivered,
    is_awaiting_first_digest,
    last_due_times,
    paper_ids_promised,
    promised_content,
    skipped_since_last_digest,
    withdraw,
)
from app.delivery.ledger.expiry import expire_before_next, is_recent_or_waiting, with_unsettled_digest
from app.delivery.ledger.held_after_restore import ID_GAP, PAPER_ID_GAP, copy_since, hold_waiting, skip_ids
from app.delivery.ledger.outcomes import OnFailed, lock_subscribers, record_results
from app.delivery.ledger.paper_history import paper_history
from app.delivery.ledger.queries import (
    WaitingMails,
    any_sent,
    commonest_reasons,
    count_held,
    describe_lack_of_digests,
    digest_totals_by_edition,
    digest_totals_since,
    draw_held,
    draw_waiting,
    editions,
    of_kind,
    restored_digests,
    stored_digests,
    totals,
    waiting_mails,
)
from app.delivery.ledger.receiver_backoffs import active as backoffs
from app.delivery.ledger.recovery import has_work, recover
from app.delivery.ledger.removal import leave_out, leave_out_repeated
from app.delivery.ledger.retention import (
    drop_sender_data,
    first_id_since,
    prune_deliveries,
    prune_events,
    retained_since,
)
from app.delivery.ledger.sender_ledger import SenderLedger
from app.delivery.ledger.sending_pauses import (
    ALSO,
    AWAITS_APPROVAL,
    FIRST_DIGESTS,
    IMPORTED,
    MOVED,
    awaits_approval,
    end_import_pause,
    first_digests_to_hold,
    hold,
    hold_new,
    hold_reason,
    is_moved,
    is_paused,
    is_released,
    last_automatic,
    lock_pause,
    pause,
    pause_automatically,
    pause_edition,
    pauses,
    planned_editions,
    prune_pauses,
    reasons,
    reasons_by_delivery,
    remove_reason,
    resume,
    unsent_editions,
)
from app.delivery.ledger.signatures import Signature, encoded_digests, lock_unsigned, store_signatures
from app.delivery.ledger.snapshots import (
    ItemEncoder,
    RestoredDigest,
    SnapshotStore,
    paper_ids,
    prune_snapshots,
    store,
)
from app.delivery.ledger.suspected_refusals import SENDER_REJECTION
