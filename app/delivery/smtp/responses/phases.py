"""PURE. Phrases that name the refused command, written as in `reason_phrases`."""

from enum import StrEnum


class Phase(StrEnum):
    """The command that was refused."""

    CONNECT = "connect"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    UNKNOWN = ""


PHASES: dict[Phase, str] = {
    Phase.CONNECT: r"""
        refused to talk to me
        after initial connection
        performing the (?:he|eh)lo
        in reply to (?:he|eh)lo
        >>> (?:he|eh)lo
        greeting wait
    """,
    Phase.MAIL: r"""
        in re(?:ply|sponse) to (?:the )?mail from
        after (?:pipelined )?mail from
        does not like sender
        sender was rejected
        >>> mail from
        \[mail_from\]
        our mail from
        rejected mail from
    """,
    Phase.RCPT: r"""
        in re(?:ply|sponse) to (?:the )?rcpt
        after (?:pipelined )?rcpt to
        rcpt to\b<80>\b(?:failed|rejected|refused|returned)
        >>> rcpt to
        \[rcpt_to\]
        our rcpt to
        smtp:rcpt
        does not like recipient
        unknown address error
        \(state 1[34]\)
        recipient address rejected
    """,
    Phase.DATA: r"""
        in re(?:ply|sponse) to (?:the )?(?:end of )?data
        after (?:pipelined )?(?:end of )?data
        >>> data
        \[(?:body|data)\]
        our final data
        failed after i sent the message
        \(state 1[5-9]\)
        text command
        after data\b
        after sending data
    """,
}
