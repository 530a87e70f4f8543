"""PURE. The reasons for refusals and bounces, and the consequences of each."""

from enum import StrEnum


class Reason(StrEnum):
    """The reason why an email was refused or bounced. In the comments, "we" is the sender."""

    AUTH_FAILURE = "authfailure"  # SPF, DKIM or DMARC
    BAD_REPUTATION = "badreputation"  # of our network
    BLOCKED = "blocked"  # our host is on a list, or a local rule blocks it
    CONTENT_ERROR = "contenterror"
    DELIVERED = "delivered"
    EXCEED_LIMIT = "exceedlimit"  # larger than this mailbox accepts
    EXPIRED = "expired"  # not delivered in time
    FAILED_STARTTLS = "failedstarttls"
    FEEDBACK = "feedback"
    FILTERED = "filtered"  # by the recipient's own filter, or after RCPT was accepted
    HAS_MOVED = "hasmoved"
    HOST_UNKNOWN = "hostunknown"
    MAILBOX_FULL = "mailboxfull"
    MAILER_ERROR = "mailererror"  # a program that handles the recipient's mail failed
    MESSAGE_TOO_BIG = "mesgtoobig"
    NETWORK_ERROR = "networkerror"
    NO_RELAYING = "norelaying"
    NOT_ACCEPT = "notaccept"  # this host does not accept any email
    NOT_COMPLIANT = "notcompliantrfc"
    ON_HOLD = "onhold"  # the text names no reason that we recognize
    POLICY_VIOLATION = "policyviolation"
    REJECTED = "rejected"  # because of our sender address
    REQUIRE_PTR = "requireptr"
    SECURITY_ERROR = "securityerror"
    SPAM_DETECTED = "spamdetected"
    SPEEDING = "speeding"
    SUPPRESSED = "suppressed"  # by our relay: its own list names the address
    SUSPEND = "suspend"
    SYNTAX_ERROR = "syntaxerror"
    SYSTEM_ERROR = "systemerror"
    SYSTEM_FULL = "systemfull"
    TOO_MANY_CONNECTIONS = "toomanyconn"
    UNDEFINED = "undefined"
    USER_UNKNOWN = "userunknown"
    VACATION = "vacation"
    VIRUS_DETECTED = "virusdetected"


class Action(StrEnum):
    """The consequence of a notice for its address."""

    SUPPRESS = "suppress"  # the address will never accept mail
    COUNT = "count"  # the address may accept mail again; suppress it if this happens too often
    OURS = "ours"  # about us, our network or this one email
    COMPLAINT = "complaint"  # the subscriber does not want our email
    IGNORE = "ignore"


# No mail will ever reach this address. Any other cause may go away: a mailbox is emptied, an account is
# reopened, a filter changes, or we correct our own error.
HARD = frozenset({Reason.USER_UNKNOWN, Reason.HOST_UNKNOWN, Reason.HAS_MOVED, Reason.NOT_ACCEPT})
# These are hard only with a permanent status (5.x.x). With a temporary status, the host is being set up, or
# its name server failed temporarily. The other reasons are final even with a temporary status, such as 4.1.1,
# if the text states them and does not say that the failure may be temporary.
HARD_BY_STATUS = frozenset({Reason.NOT_ACCEPT})
# Reasons that concern us, our network or this one email, but not the recipient's address.
NOT_ABOUT_RECIPIENT = frozenset(
    {
        Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.BLOCKED, Reason.CONTENT_ERROR,
        Reason.FAILED_STARTTLS, Reason.MESSAGE_TOO_BIG, Reason.NO_RELAYING, Reason.NOT_COMPLIANT,
        Reason.POLICY_VIOLATION, Reason.REJECTED, Reason.REQUIRE_PTR, Reason.SECURITY_ERROR,
        Reason.SPAM_DETECTED, Reason.SPEEDING, Reason.SYNTAX_ERROR, Reason.TOO_MANY_CONNECTIONS,
        Reason.VIRUS_DETECTED,
    }
)  # fmt: skip
