"""Subscribers: signing up, preferences, feedback, and leaving.

preferences       the values that a subscriber may choose, and clear errors for invalid ones
stored_interests  interest texts, stored once for all subscribers who share them
feedback          likes, dislikes and pasted papers
form_submissions  submitted public forms
mailbox_limits    limit the emails that can be requested, per mailbox, and per subscriber and kind
declines          remember declined sign-ups, and block further confirmations for a while
signup            sign up, confirm, decline, request a link
changes           change preferences, follow authors, mute words, resubscribe
pausing           pause, optionally until a day, and resume
first_digest      the first digest, sent at once on request
address           PURE: normalize addresses, suggest corrections, find the mailbox of an address
address_change    change the address after confirmation from the old and the new address
privacy           unsubscribe, new links, export, erase, delete former subscribers' preferences and feedback
csv_transfer      import and export
csv_format        columns, cells and rows of the CSV files
csv_opt_outs      PURE: find the people in another service's export who get no mail from it
bulk              add many subscribers in one transaction
repository        find, list and lock rows, set the next due date, enqueue service emails
event_log         record events for operators and webhooks, count them, compute earlier states
event_labels      PURE: name events and changed preferences in the words of the preferences page
schedule          PURE: when a subscriber's digests are due, in their time zone
"""

from app.subscribers.address import normalize_address, suggest_correction
from app.subscribers.address_change import (
    confirm_change,
    expire_changes,
    new_address,
    open_change,
    replace_address,
    request_change,
    request_change_by_operator,
)
from app.subscribers.changes import (
    change,
    changed_fields,
    follow,
    lift_suppression,
    mute,
    resubscribe,
    unfollow,
    unmute,
)
from app.subscribers.csv_format import survey, write_csv, write_header, write_rows
from app.subscribers.csv_transfer import ImportReport, exported, import_file, preview_file
from app.subscribers.declines import DECLINE_LASTS
from app.subscribers.event_log import count_changes, events, is_current_pause, preference_events, state_at
from app.subscribers.feedback import (
    MatchedReferences,
    feedback_for_ranking,
    feedback_on,
    ignore_author,
    like,
    match_references,
    remove_feedback,
    remove_private_paper,
    set_feedback,
    unignore_author,
)
from app.subscribers.feedback import forget as forget_feedback
from app.subscribers.first_digest import first_digest, request_first_digest
from app.subscribers.form_submissions import SignUp, mailbox_hash
from app.subscribers.form_submissions import prune as prune_form_submissions
from app.subscribers.form_submissions import unprocessed as unprocessed_form_submissions
from app.subscribers.mailbox_limits import was_mailed_recently
from app.subscribers.pausing import end_expired_pauses, pause, pause_date_range, resume
from app.subscribers.preferences import (
    ABSOLUTE_MAX_INTERESTS,
    AMOUNTS,
    MAX_MUTED,
    MAX_PAPERS,
    Preferences,
    check,
    deduplicate,
    default_preferences,
    lacks_interests,
    normalize_preferences,
    problems,
)
from app.subscribers.privacy import (
    delete_unconfirmed_sign_ups,
    erase,
    export,
    forget_former_subscribers,
    new_links,
    request_erasure,
    request_export,
    require_new_links,
    unsubscribe,
)
from app.subscribers.repository import (
    addresses_of,
    count_by_day,
    count_by_state,
    find,
    get,
    get_for_update,
    history,
    is_anyone_due_far_ahead,
    mails,
    preferences_of,
    query_by_address,
    require_not_suppressed,
    reschedule_far_ahead,
)
from app.subscribers.signup import (
    CONSENT_GIVEN_ELSEWHERE,
    CONSENT_TEXT,
    add,
    allow_again,
    confirm,
    decline,
    end_sign_up,
    expire_pending,
    invite,
    is_declined,
    last_confirmation,
    pending_choices,
    process,
    request_link,
    request_sign_up,
    requested_preferences,
    send_link,
)
from app.subscribers.stored_interests import forget_unused_queries, interests_of
