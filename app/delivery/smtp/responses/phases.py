"""PURE. Phrases that name the refused command or report a failed delivery, written as in `phrases`."""

from __future__ import annotations

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
FAILURE = r"""
        \bundeliver(?:ed|able)
        \breturned (?:mail|message|to sender)
        \bdeliver\w{0,3} (?:has )?(?:failed|failure|error|problem|status|delayed|report)
        failed (?:delivery|permanently|mail)
        (?:mail|message)\b<40>\b(?:failure|failed|error|returned|bounced|blocked|delayed|rejected|
            refused|not (?:be )?deliver)
        failure notice
        could(?: not|n't) (?:be )?deliver
        unable to deliver
        not (?:yet )?(?:be )?(?:been )?delivered
        did not reach
        was not relayed
        permanent (?:fatal )?error
        fatal errors?
        non-?delivery
        (?:delivery|mail) (?:system )?(?:notice|error)
        cannot be (?:delivered|sent)
        mailbox (?:is )?full
        exceeds
        transcript of session
        errors from
        not (?:a )?member
        no such user
        invalid user
        unknown user
        user unknown
        failure reasons
        delevery
        \bnicht (?:zugestellt|zustellbar)|unzustellbar
        (?:n'a pas pu|impossible d)<40>(?:remis|livr|distribu)|échec de (?:la )?(?:remise|distribution)
        no se (?:pudo|ha podido) entregar|no (?:ha sido )?entregado
        não (?:foi|pôde ser) entregue
        (?:mancata consegna|non (?:è stato )?(?:consegnat|recapitat)|invio non riuscito)
        не (?:может быть |был[оа]? |удалось )?доставлен|не доставлено
        (?:送信|配送|配信|送達|お届け)<20>(?:できません|エラー|失敗)
"""
