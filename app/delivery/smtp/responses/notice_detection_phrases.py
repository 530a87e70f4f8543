"""PURE. Phrases that only identify a text as a notice of a failed delivery.

They are written as in `reason_phrases`, whose phrases name the reason for the failure.
"""

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
