"""PURE. Phrases with which mail servers refuse mail, by reason. They were collected from real refusals.

Each line is one phrase, a case-insensitive regular expression. A line that is indented further continues the
one above it. `<30>` stands for up to 30 characters in the same sentence; `<who>`, `<gone>` and `<full>` stand
for the words below. All repetitions are bounded, so that matching is fast for any text.
"""

from __future__ import annotations

from app.delivery.smtp.responses.reasons import Reason

RECIPIENT_WORDS = r"""
    user|recipient|mail ?box|account|address(?:ee)?|person|e-?mail(?: account| address)?|alias|userid
    |destinataire|adresse|compte|utilisateur|benutzer|empf[äa]nger|konto|postfach|utente|casella|indirizzo
    |destinat[aá]rio|usu[aá]rio|cuenta|direcci[oó]n|пользователь|получатель|адрес|ящик
"""
UNKNOWN_WORDS = r"""
    (?:(?:does|did|do) ?(?:not|n[o'’]t)|doesn['’]t|not|no longer) exists?|unknown|(?:not|wasn.t) found
    |(?:could(?: not|n.t)|can ?not|can.t) be (?:found|located|resolved)|(?:not|un)[ -]?recogni[sz]ed
    |not (?:known|listed|registered|defined|hosted)|(?:not|appear) (?:to be )?(?:a )?valid\b
    |(?:is )?incorrect|no longer valid|invalid\b(?! (?:syntax|format|header))|non-?existent
    |(?:been|was) (?:deleted|removed)|n'existe pas|inconnue?|nicht (?:gefunden|bekannt)|unbekannt
    |existiert nicht|(?:no|não|nao) existe|inexistente|des(?:conocid|conhecid)[oa]|sconosciut[oa]|non esiste
    |не (?:найден|существует)
"""
FULL_WORDS = r"""
    full|(?:über)?voll|überfüllt|pleine?|llen[oa]|chei[oa]|pien[oa]|переполнен
"""

# In this order, so that more specific phrases take precedence over "no such mailbox".
PHRASES_BY_REASON: dict[Reason, str] = {
    Reason.BAD_REPUTATION: r"""
        \breputation\b
        unexpected volume or user complaints
        temporarily deferred due to user complaints
    """,
    Reason.TOO_MANY_CONNECTIONS: r"""
        too many (?:concurrent |simultaneous |open )?(?:smtp )?(?:connections|sessions|recipients|
            rcpts)\b(?! (?:this|per|in an?|within) (?:hour|minute|day|second|short|\d))
        (?:connection|frequency|concurrency|session)s? (?:limit|rate)
        (?:max(?:imum)?|number of)(?: number of)?(?: concurrent| simultaneous)? (?:connections|
            sessions|recipients)
        trop de (?:connexions|destinataires)
    """,
    Reason.SPEEDING: r"""
        too many (?:recipients|messages|mails|e-?mails) (?:this|per|in an?|within) (?:hour|minute|day|second|
            short|\d)
        sending (?:too (?:fast|quickly|many)|rate)
        unusual rate
        (?:rate|hourly|daily|sending)\b<20>\b(?:limit|quota)(?:s|ed)?\b<40>\b(?:exceed|reach|hit)
        exceed\w{0,3}<30>\b(?:rate|hourly|daily|sending (?:limit|quota))\b
        rate[- ]limit(?:ed|ing)
        excessive (?:message )?(?:rate|volume)
        throttl(?:ed|ing)
        \bslow(?:ing)? down\b
        receiving (?:e-?)?mail (?:too quickly|at a rate)
        exceeded <30>messages per
        mail flood
        too much (?:e-?)?mail from
    """,
    Reason.SYSTEM_FULL: r"""
        insufficient system (?:storage|resources|space)
        \bsystem\b<20>\b(?:out of|no|lacks)\b<20>\b(?:storage|space)
        no space left on
        (?:file ?system|disk) (?:is )?full
    """,
    Reason.MAILBOX_FULL: r"""
        \b(?:mail ?box|inbox|account|user|recipient|folder|maildir)\b<60>\b(?:is |are )?(?:full|
            over ?quota)\b
        \b(?:over|exceed(?:s|ed|ing)?|out of|above|beyond)\b<30>\bquota\b
        \boverquota\b
        \bquota\b<30>\b(?:exceed|full|reached|violation|limit)
        \b(?:mail ?box|account)\b(?: size)?<40>\bexceed
        full mailbox
        not enough (?:storage|disk|mailbox) space
        insufficient (?:storage|disk|quota|space)
        (?:disk|storage|mailbox)\b<20>\b(?:quota|limit) (?:was |is |has been )?(?:exceeded|reached)
        (?:out of|no more|no) (?:storage|mailbox|disk) space
        too much mail(?:box)? data
        too many (?:messages|e?-?mails) (?:in|on)[ ]
        \b(?:not enough|insufficient|no)<20>\b(?:space|room)<20>\b(?:mail ?box|inbox)
        number of messages in <30>mailbox exceed
        bo[iî]te<60>\b<full>\b
        (?:mail ?box|account|storage) limit
        exceeded <20>\bstorage\b
        exhausted <20>storage
        \b(?:mail ?box|inbox|account|user|recipient)\b<40>\b(?:no|not enough|insufficient|out of|
            lacks)\b<20>\b(?:space|storage|room|quota)\b
        \b(?:mail ?box|inbox|account|user|recipient)\b<60>\breached<30>\b(?:maximum|limit|quota)
        used up<30>\b(?:quota|storage|space)
        \b<who>\b<50>\b<full>\b
        (?:mail ?box|inbox) space not enough
        over the (?:maximum|allowed)<20>\bsize
        exced\w{2,4}<20>\b(?:quota|cuota)
        zu viele (?:e-?)?mails
        (?:buz[oó]n|casilla|caixa)<40>\b<full>\b
        (?:メールボックス|受信箱|容量)<20>(?:一杯|いっぱい|満杯|超過|超え|オーバー)
    """,
    Reason.SPAM_DETECTED: r"""
        (?:blacklisted|blocked|listed) (?:url|link|uri)
        message content rejected
        content (?:is )?(?:considered|classified)
        \bunsolicited\b
        bulk e-?mail filter
        spam (?:content|message|score|filter|classification)
        \b(?:likely|possible|suspected|probable|considered|detected as|classified as|as|is|be|
            looks like|judged|identified) (?:an? )?(?:to be )?(?:spam|junk|bulk)\b
        [-:] *spam\b
        \bspam[- ]like\b
        spam detected
        \b(?:contains?|rejected|refused|denied|blocked|message|mail)\b<20>\b(?:spam|
            junk(?: mail)?)\b(?! ?(?:list|trap|source|policy))
        consider(?:s|ed)? <20>\b(?:spam|junk)\b
        seems? to be (?:spam|junk)
        spam ?score
        \bfor spam\b
        \bphishing\b
        spamassassin
        \bdt:spm\b
        behaviou?r spam
        mail content denied
        unacceptable content
        \d spam points
        \bspam\b<10>\b(?:rejected|refused|denied)
        ^\d{3} (?:\d·\d·\d )?spam$
        scored? <20>spam
        rejected as spam
        high probability of spam
        mail re[jfv]e?t[eé]
        (?:do not|don't) accept spam
        \bofr_506\b
        \bbulk mail\b
    """,
    Reason.NO_RELAYING: r"""
        \brelay(?:ing)?\b(?![·-])<30>\b(?:den(?:y|ied)|prohibited|not (?:permitted|allowed)|disallowed|
            refused|rejected|disabled|forbidden|attempt)
        \b(?:unable|not (?:allowed|permitted|configured|able)|refus\w{1,4}|cannot|won't|don't|do not|
            will not)\b(?: to)? relay\b
        \bnot? (?:an )?(?:open )?relay(?:ing)?\b
        (?:not|isn't) in my list of allowed rcpthosts
        insecure mail relay
        attempt(?:s|ed|ing)? to relay
        (?:not|n't) (?:allowed|permitted)<20>\brelay
        (?:e-?mail )?address is not verified
        not (?:a )?(?:local|hosted) (?:domain|host)
    """,
    Reason.REQUIRE_PTR: r"""
        \b(?:no|without|missing|invalid|require[sd]?|valid|have|fix|bad|
            lacks?)\b<40>\b(?:reverse[- ]?(?:dns|lookup|mapping)|rdns|ptr)\b
        \b(?:reverse[- ]?(?:dns|lookup|mapping|hostname)|rdns|ptr(?: record)?s?)\b<60>\b(?:fail|not|no|
            missing|invalid|required|reject|match|generic)
        cannot (?:find|resolve) your (?:reverse )?(?:hostname|ip)
        ip name lookup failed
        not (?:found )?in (?:the )?reverse
        unverif(?:y|i)able sending ip
        (?:hostname|name|ip) lookup<20>\byour\b<30>\bfail
        client host rejected: cannot find
    """,
    Reason.AUTH_FAILURE: r"""
        \b(?:spf|dmarc|domainkeys)\b
        \bdkim\b<60>\b(?:fail|pass|invalid|required|check)
        unauthenticated (?:e-?mail|mail|message)
        sender is unauthenticated
        \bopenspf\b
        authentication information
        multiple authentication checks failed
        sender policy framework
    """,
    Reason.VIRUS_DETECTED: r"""
        \bvirus(?:es)?\b<40>\b(?:found|detected|infected|contain)
        \b(?:virus|worm|malware)[- ](?:infected|found|detected)
        \binfected(?: (?:with|by|message|mail|file|attachment)\b|:)
        \b(?:contains?|found|detected)(?: an?)? (?:virus|malware|worm|trojan)
    """,
    Reason.MAILER_ERROR: r"""
        command output:
        mailer error
        \bpipe to\b
        (?:child process|pipe transport)\b<60>\breturned
        unknown mailer
        (?:procmail|maildrop|vdelivermail|deliver(?:y)? agent)\b<60>\b(?:fail|error|couldn't|cannot|
            exit)
        died with (?:signal|status)
        exit(?:ed)? (?:with )?(?:status|code)
    """,
    Reason.NOT_ACCEPT: r"""
        (?:host|domain|server|system|site|machine)\b<30>\b(?:does|do|will|is) ?(?:not|n't|
            never) (?:accept|receiv|accepting)\w{0,4}(?: any)? e?-?mail
        \bnull ?mx\b
        indicated no smtp service
        no mx found
        type=mx: malformed or unexpected name server reply
        no mail (?:service|server) here
        does not (?:accept|receive) (?:any )?mail\b(?! from)
    """,
    Reason.SUSPEND: r"""
        account is temporarily limited
        no longer accepts? (?:e-?)?mail
        \b(?:account|mail ?box|user(?:\(s\))?|recipient|address|e-?mail|compte|subscriber|
            domain)s?\b<60>\b(?:disabled|suspended|inactive|locked|frozen|is blocked|deactivated|
            discontinued|terminated|bloqu[eé]|closed|(?:not|no longer) active|overdue|cancell?ed)
        \b(?:account|mail ?box|user)\b<20>\bblocked\b(?! (?:by|using|your?|mail|messages?)\b)
        \b(?:account|mail ?box|domain) (?:has |is )?expired
        \b(?:konto|postfach|compte|cuenta|conta|ящик)\b<50>\b(?:gesperrt|deaktiviert|désactivé|
            (?:desactivad|suspendid)[oa]|заблокирован|отключен)
        \b(?:disabled|suspended|inactive|locked|frozen|deactivated|discontinued|
            cancell?ed) (?:account|mail ?box|user|recipient|(?:e-?mail )?address)
    """,
    Reason.HAS_MOVED: r"""
        \b(?:has|have) (?:been )?(?:moved|changed|replaced)(?: (?:to|by)\b|<40>address)
        new (?:e-?mail )?address is
        \buser (?:has )?moved\b
        user not local; please
        address (?:has )?(?:been )?changed
        no longer (?:in use|at this address|with (?:us|this))
        please (?:use|send)<40>\binstead
    """,
    Reason.FILTERED: r"""
        recipient(?:'s)? preferences
        (?:refused|rejected|blocked|not accepted) by (?:the )?(?:recipient|user|addressee)
        (?:user|recipient|addressee) (?:does not|doesn't) (?:want|accept|have an? [^ ]{1,100} account)
        (?:user|recipient|addressee) (?:has )?(?:refuse|reject|block)(?:s|ed)\b<20>\b(?:mail|messages?|you)\b
        not on (?:the )?(?:white|allow) ?list
        restricts? (?:incoming )?mail
        only accepts? (?:mail|messages) from
    """,
    Reason.POLICY_VIOLATION: r"""
        policy reasons?
        (?:by|of|due to|against|violat\w{1,4}|because of)(?: our| local| the| a| site)? polic(?:y|ies)\b
        policy (?:violation|rejection|restriction)
        violat\w{1,4}\b<40>\bpolic(?:y|ies)\b
        polic(?:y|ies)\b<30>\b(?:forbid|prohibit|reject|refuse)
        content (?:examination )?polic(?:y|ies)
        not allowed by policy
        content presents a potential
        administrative prohibition
        security polic(?:y|ies)
        (?:do not|don't) accept<40>\battachment
    """,
    Reason.REJECTED: r"""
        sender(?:'s)?(?: e-?mail)? (?:address|domain|verify|is|was|not|id)?\s?<20>\b(?:rejected|refused|
            denied|failed|invalid|blocked|callout|not (?:allowed|accepted|exist|found))
        (?:domain of )?sender address [^\s]{1,200} (?:does not (?:exist|resolve))
        domain of sender
        \bsender\b<20>\bunknown\b
        verification failed for (?:the )?sender
        rejected mail from
        denied by mail from
        sender domain
        envelope[- ]sender
        from: ?\s?domain
        invalid (?:sender|from)
        mail from [^\s]{1,200} rejected
        not (?:a |are |an )?(?:registered|member|subscribed|authori[sz]ed|allowed|
            permitted)<40>\b(?:gateway user|mailing list|of th|to (?:post|send))
        only (?:members|subscribers) (?:can|may)
        groups.google.com/
        not(?: be)? authori[sz]ed to (?:post|send)
        recipient address(?:es)? rejected ?: access denied
    """,
    Reason.BLOCKED: r"""
        \b(?:client (?:host|address)|ip(?: address)?|your (?:host|ip|server|network|mail server)|
            connections? from|(?:mail|messages?|e-?mails?) from (?:your|\[?\d[\d·:.]{2,40}))\b[^\n]{0,80}\b(?:
            weren't sent|blocked|banned|rejected|refused|denied|permanently deferred|black ?list|listed|
            not (?:allowed|welcome|accepted))
        (?<!not )\b(?:blocked|listed|blacklisted|denied) (?:using|by|at|in|for|on|-|see)\b
        \b(?:rbl|dnsbl|dnswl|spamhaus|spamcop|barracuda|sorbs|abuseat|block ?list|black ?list)\b
        banned sending
        denied \[
        server refused connection
        \b(?:helo|ehlo)\b<40>\b(?:rejected|refused|denied|invalid|not|unknown)\b
        (?<!indicated )no smtp service
        \d[\d·:]{6,40}\]? is (?:on|in) (?:the|an?|our)\b
        \bdynamic (?:ip|address)
        connection denied
        (?:mail|messages?) from \d[\d.·:]{6,40} (?:not allowed|refused|rejected)
        unwanted messages
        invalid ip for sending
        blocked ip
        refused to talk to me
        service refused
        connection refused
        smtp server of your isp
        access denied\b.{0,20}\bip
        blocked - see
        please use <30>(?:smtp|isp|mail server)
    """,
    Reason.MESSAGE_TOO_BIG: r"""
        (?:message|mail|size|file|line)s?\b<60>\b(?:too (?:big|large)|exceed(?:s|ed)? <40>(?:size|
            limit of|maximum)|size limit|size exceed)
        (?:size|line|length) limit exceeded
        (?:message|mail)<20>\blarger than
        size of (?:the |your )?(?:message|mail)<20>\bexceed
        nachricht<20>\bzu gro(?:ß|ss)
        message<20>\btrop (?:volumineux|gros|grand)
        exceeds? (?:the )?(?:maximum|fixed|size|allowed)<40>(?:size|limit|allowed)
        message size
    """,
    Reason.EXCEED_LIMIT: r"""
        exceeds? (?:the )?(?:administrative|local) limit
    """,
    Reason.HOST_UNKNOWN: r"""
        \b(?:host|domain)(?: name)?(?: or domain name)?\b[^.:;\[]{0,60}\b(?:unknown|not found|not exist|
            does(?:n't| not) exist|unrouteable|(?:can ?not|can't|could not|couldn't) be (?:found|resolved))
        (?:could not|couldn't|can ?not|can't|unable to) (?:find|resolve|look up) (?:the |a )?(?:domain|host)\b
        domain is not reachable
        \b(?:unknown|no such|invalid|bad|nonexistent) (?:host|domain|destination|mail ?server)\b
        unroute?able (?:mail )?(?:domain|address)(?!\?)
        nxdomain
        no mx (?:or a )?(?:record|host)
        host found but no data record
        domain[^.:;]{0,40}existiert nicht
        illegal host
        name or service not known
        couldn't find any host
        all relevant mx records point to non-existent
    """,
    Reason.USER_UNKNOWN: r"""
        \b(?:unknown|no such|invalid|unrecognized|illegal|bad|undeliverable|nonexistent|
            non-existent)(?: or \w{1,12})?(?: local| final| virtual| delivery| destination| e-?mail|
             smtp){0,2} <who>\b(?! (?:agent|name or password))
        (?<!sender )\b<who>\b(?:\(s\))?(?![^.:]{0,60}\b(?:header|password|credential|authentication|
            sender|for spf))[^.:]{0,60}[:,-]{0,2} ?\b<gone>
        \b(?:no|not a|isn't a|is not a)(?: valid| known| registered| local| such)? (?:mail ?box|user|
            recipient|account|address)\b(?! (?:space|quota|size|limit|specified|given))
        \bnobody (?:by|with|here)\b
        (?:unable to|can(?:not|'t)|could not|failed to) (?:find|locate|verify) (?:the |your )?(?:recipient|
            user|mail ?box|\S{1,100}@)
        mail ?box (?:is )?(?:unavailable|not available)
        \b<who>\b<40>\bnot in (?:my|our|the|this)\b<30>\b(?:list|directory|database|system)
        (?:address|recipient)<20>\b(?:misspell?ed|mistyped|possibly incorrect)
        (?:recipient|address|callout) verif\w{1,9} fail
        (?:not|isn't) (?:listed|found) in
        \bno (?:mail ?box|one|user|recipient|account|person)<20>\b(?:here|by that|with that|under)
        (?:recipient|destinataire)s? invalide
        destinataire <20>in(?:valide|connu)
        ディレクトリのリストにありません|見つかりません|宛先不明|存在しません
        unknown local[- ]part
        validrcptto
        (?:does not have an?|doesn't have an?|has no) (?:mail ?box|account)
        recip(?:ient)?notfound
        delivery userid
        not our customer
    """,
    Reason.NOT_COMPLIANT: r"""
        \brfc ?-?\d{3,4}\b<40>\b(?:compl|violat)
        violat\w{1,4}<20>\brfc
        (?:not|non)[- ](?:rfc[- ])?complian
        multiple (?:addresses|from)
        messages? with multiple
        missing (?:a )?valid (?:message-?id|from|date)
        message is not rfc
    """,
    Reason.CONTENT_ERROR: r"""
        improper use of 8-?bit
        duplicate header
        media error
        (?:malformed|invalid|bad) (?:mime|header|message (?:structure|format))
        (?:header|body|message|mail)s?\b<30>\b(?:illegal|invalid|forbidden|8-?bit|non-ascii) character
        (?:illegal|invalid|forbidden|prohibited) attachment
        (?:8-?bit|non-ascii|illegal|invalid|bad) (?:data|characters?|attachment)<40>\b(?:header|message|
            body|mail)
        (?:header|mime|attachment|charset|content)s?\b<30>\b(?:error|invalid|malformed|not allowed|
            illegal|forbidden|rejected)
    """,
    Reason.NETWORK_ERROR: r"""
        no route to\b
        \bunreachable\b
        loop detected
        (?:dns|mx|cname|name|host)\b<20>\blookup failed temporarily
        temporary failure in (?:mx|dns|name)
        lost connection
        network (?:is )?(?:error|down)
        dns (?:query|lookup|error)<20>\b(?:fail|error)
        name (?:service|server) (?:error|lookup failure|reply)
        (?:mail|routing|forwarding) loop
        loops? back
        too many (?:hops|received)
        hop count
        connection (?:reset|dropped|closed|lost)
        bad connection
    """,
    Reason.EXPIRED: r"""
        tim(?:e|ed) ?-?out
        \bexpired\b
        (?:could not|not|hasn't|has not|not yet) (?:be|been)(?: able to be)? delivered (?:for|within|
            after|in)
        multiple retries
        giving up
        (?:not|isn't|is not) respond
        unable to (?:connect|reach)
        host not reachable
        has been delayed
        requests to connect
        still being retried
        retry time
        (?:host name|hostname) lookup failure
        was not delivered within
        too old
        (?:in|on) the queue (?:for )?too long
        queue (?:life)?time
        queued? for<20>\b(?:days|hours)
    """,
    Reason.FAILED_STARTTLS: r"""
        \b(?:starttls|tls|encryption)\b<30>\b(?:required|needed|not available|failed)
        must issue a starttls
        (?:cannot|can't|unable to|failed to) (?:start|negotiate) (?:tls|ssl)
        (?:tls|ssl) handshake
    """,
    Reason.SECURITY_ERROR: r"""
        \b(?:authentication|authorization|tls|encryption|starttls)\b<40>\b(?:required|failed|needed|
            not supported)
        unauthenticated senders
        must authenticate
        not authenticated
        security (?:reasons|violation|policy)
        executable (?:attachment|content)
        mta-?sts
        sender not (?:permitted|authenticated)
    """,
    Reason.SYNTAX_ERROR: r"""
        malformed address
        syntax error
        (?:command|parameter)<30>\b(?:unrecogni[sz]ed|not (?:implemented|recogni[sz]ed|supported))
        bad (?:sequence|syntax)
        (?:unrecogni[sz]ed|unknown|invalid) command
        must precede
        incorrectly constructed
    """,
    Reason.SYSTEM_ERROR: r"""
        (?:service|server|system|mail ?box)\b<20>\b(?:unavailable|not available|busy|error|down|problem)
        internal <20>error
        temporary <20>\b(?:failure|error|problem)
        (?:permanent|transient) exception
        i/o error
        could not load
        insufficient (?:permission|system)
        (?:local|write|configuration|config|processing) (?:error|failure)
        queue file
        transport error
        unable to (?:process|create|open)
        permission denied
        try again later
        out of memory
        resources? (?:temporarily )?unavailable
    """,
}
