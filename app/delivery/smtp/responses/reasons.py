"""PURE. The vocabulary of reasons, and what follows from one."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a mail was refused or came back. Below, `we` are who sent it."""

    AUTH_FAILURE = "authfailure"  # SPF, DKIM or DMARC
    BAD_REPUTATION = "badreputation"  # what is thought of our network
    BLOCKED = "blocked"  # our host, by a list or a local rule
    CONTENT_ERROR = "contenterror"
    DELIVERED = "delivered"
    EXCEED_LIMIT = "exceedlimit"  # larger than this mailbox takes
    EXPIRED = "expired"  # tried for too long
    FAILED_STARTTLS = "failedstarttls"
    FEEDBACK = "feedback"
    FILTERED = "filtered"  # by the recipient's own choice, or after their address had been accepted
    HAS_MOVED = "hasmoved"
    HOST_UNKNOWN = "hostunknown"
    MAILBOX_FULL = "mailboxfull"
    MAILER_ERROR = "mailererror"  # a program of the recipient's
    MESSAGE_TOO_BIG = "mesgtoobig"
    NETWORK_ERROR = "networkerror"
    NO_RELAYING = "norelaying"
    NOT_ACCEPT = "notaccept"  # this host takes no mail at all
    NOT_COMPLIANT = "notcompliantrfc"
    ON_HOLD = "onhold"  # refused without a word that says why
    POLICY_VIOLATION = "policyviolation"
    REJECTED = "rejected"  # our address as a sender
    REQUIRE_PTR = "requireptr"
    SECURITY_ERROR = "securityerror"
    SPAM_DETECTED = "spamdetected"
    SPEEDING = "speeding"
    SUSPEND = "suspend"
    SYNTAX_ERROR = "syntaxerror"
    SYSTEM_ERROR = "systemerror"
    SYSTEM_FULL = "systemfull"
    TOO_MANY_CONNECTIONS = "toomanyconn"
    UNDEFINED = "undefined"
    USER_UNKNOWN = "userunknown"
    VACATION = "vacation"
    VIRUS_DETECTED = "virusdetected"


# No mail will ever reach this address: nobody there, no such host, gone elsewhere, takes none. All else
# may end: a mailbox is emptied, an account opened again, a filter forgets; our own faults are ours to mend.
HARD = frozenset({Reason.USER_UNKNOWN, Reason.HOST_UNKNOWN, Reason.HAS_MOVED, Reason.NOT_ACCEPT})
# A server says for good who its users are, even by 4.1.1 and after days of trying; that it takes no mail,
# only by a permanent status: by a temporary one it is being set up, or name servers have a bad hour.
HARD_BY_STATUS = frozenset({Reason.NOT_ACCEPT})
# About us, our network or this one mail: they say nothing about the reader's address.
NOT_ABOUT_RECIPIENT = frozenset(
    {
        Reason.AUTH_FAILURE, Reason.BAD_REPUTATION, Reason.BLOCKED, Reason.CONTENT_ERROR,
        Reason.FAILED_STARTTLS, Reason.MESSAGE_TOO_BIG, Reason.NO_RELAYING, Reason.NOT_COMPLIANT,
        Reason.POLICY_VIOLATION, Reason.REJECTED, Reason.REQUIRE_PTR, Reason.SECURITY_ERROR,
        Reason.SPAM_DETECTED, Reason.SPEEDING, Reason.SYNTAX_ERROR, Reason.TOO_MANY_CONNECTIONS,
        Reason.VIRUS_DETECTED,
    }
)  # fmt: skip
