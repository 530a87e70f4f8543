"""The readers: how they come, what they wish for, and how they go.

preferences   what a reader may wish for, and what to change about a wish that cannot be met
register      the rows: find a reader, note what happened, say when the next digest is due
feedback      what readers say of papers, and the papers that they pasted
interests     the texts of interests, stored once however many readers share them
mail_requests what the public forms ask for, the limits by mailbox, and the memory of a decline
joining       signing up, confirming, declining, asking for a link by mail
staying       changing preferences, following, muting, pausing, coming back
leaving       unsubscribing, new links, exporting, erasing
"""

from app.subscribers.feedback import (
    Recognised,
    count_again,
    like,
    opinions,
    recognise,
    say,
    set_aside,
    take_back,
    take_back_own,
    word_on,
)
from app.subscribers.feedback import forget as forget_opinions
from app.subscribers.interests import forget_unused_queries, wishes
from app.subscribers.joining import (
    CONSENT_TEXT,
    add,
    allow_again,
    awaiting,
    confirm,
    decline,
    expire_pending,
    invite,
    is_declined,
    process,
    request_link,
    request_sign_up,
    send_link,
    sign_up,
)
from app.subscribers.leaving import (
    erase,
    export,
    new_links,
    request_erasure,
    request_export,
    unsubscribe,
)
from app.subscribers.mail_requests import DECLINE_LASTS, Choices, SignUp, mailbox_hash
from app.subscribers.mail_requests import prune as prune_requests
from app.subscribers.mail_requests import unprocessed as unprocessed_requests
from app.subscribers.preferences import (
    MAX_INTERESTS,
    MAX_MUTED,
    MAX_PAPERS,
    MAX_WEIGHT,
    Preferences,
    check,
    distinct,
    normalise_address,
    problems,
)
from app.subscribers.register import find, get, history, preferences_of, state_at
from app.subscribers.staying import (
    change,
    come_back,
    ends_of_pauses,
    follow,
    mute,
    pause,
    resume,
    trust_again,
    unfollow,
    unmute,
    wake,
)

__all__ = [
    "CONSENT_TEXT",
    "DECLINE_LASTS",
    "MAX_INTERESTS",
    "MAX_MUTED",
    "MAX_PAPERS",
    "MAX_WEIGHT",
    "Choices",
    "Preferences",
    "Recognised",
    "SignUp",
    "add",
    "allow_again",
    "awaiting",
    "change",
    "check",
    "come_back",
    "confirm",
    "count_again",
    "decline",
    "distinct",
    "ends_of_pauses",
    "erase",
    "expire_pending",
    "export",
    "find",
    "follow",
    "forget_opinions",
    "forget_unused_queries",
    "get",
    "history",
    "invite",
    "is_declined",
    "like",
    "mailbox_hash",
    "mute",
    "new_links",
    "normalise_address",
    "opinions",
    "pause",
    "preferences_of",
    "problems",
    "process",
    "prune_requests",
    "recognise",
    "request_erasure",
    "request_export",
    "request_link",
    "request_sign_up",
    "resume",
    "say",
    "send_link",
    "set_aside",
    "sign_up",
    "state_at",
    "take_back",
    "take_back_own",
    "trust_again",
    "unfollow",
    "unmute",
    "unprocessed_requests",
    "unsubscribe",
    "wake",
    "wishes",
    "word_on",
]
