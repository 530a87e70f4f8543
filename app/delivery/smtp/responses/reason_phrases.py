"""PURE. Phrases with which mail servers refuse mail, by reason. They were collected from real refusals.

Each line is one phrase, a regular expression for text in lower case. A line that is indented further
continues the one above it. `<30>` stands for up to 30 characters in the same sentence; `<who>`, `<gone>` and
`<full>` stand for the words below. All repetitions are bounded, so that matching is fast for any text.
"""

from app.delivery.smtp.responses.refusal_reasons import Reason

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

# Ordered so that more specific phrases take precedence over "no such mailbox".
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
        (?:do not|don't) accept spam
        \bbulk mail\b
    """,
    Reason.NO_RELAYING: r"""
        \brelay(?:ing)?\b(?![·-])<30>\b(?:den(?:y|ied)|prohibited|not (?:permitted|allowed)|disallowed|
            refused|rejected|disabled|forbidden|attempt)
        \b(?:unable|not (?:allowed|permitted|configured|able)|refus\w{1,4}|cannot|won't|don't|do not|
            will not)\b(?: to)? relay\b
        \bnot? (?:an )?(?:open )?relay(?:ing)?\b
        (?:not|isn't) in my list of allowed rcpthosts
        attempt(?:s|ed|ing)? to relay
        (?:not|n't) (?:allowed|permitted)<20>\brelay
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
        (?:hostname|name|ip) lookup<20>\byour\b<30>\bfail
        client host rejected: cannot find
    """,
    Reason.AUTH_FAILURE: r"""
        \b(?:spf|dkim|dmarc|domainkeys)\b
        unauthenticated (?:e-?mail|mail|message)
        sender is unauthenticated
        \bopenspf\b
        authentication information
        sender policy framework
    """,
    Reason.VIRUS_DETECTED: r"""
        \bvirus(?:es)?\b<40>\b(?:found|detected|infected|contain)
        \b(?:virus|worm|malware)[- ](?:infected|found|detected)
        \binfected(?: (?:with|by|message|mail|file|attachment)\b|:)
        \b(?:contains?|found|detected)(?: an?)? (?:virus|malware|worm|trojan)
    """,
    Reason.MAILER_ERROR: r"""
        \b(?:command output|mailer error|pipe to|child process|pipe transport|unknown mailer|procmail|
            maildrop)\b
        (?:vdelivermail|deliver(?:y)? agent)\b<60>\b(?:fail|error|couldn't|cannot|exit)
        \b(?:died|exit(?:ed)?) (?:with )?(?:signal|status|code)
    """,
    Reason.NOT_ACCEPT: r"""
        (?:host|domain|server|system|site|machine)\b<30>\b(?:does|do|will|is) ?(?:not|n't|
            never) (?:accept|receiv|accepting)\w{0,4}(?: any)? e?-?mail
        \bnull ?mx\b|\bno mx\b(?! or)|\bmx\b<40>\bno smtp service
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
        \b(?:refused|rejected|blocked|not accepted) (?:by|due to)(?: the)? (?:recipient|user|addressee)
        (?:user|recipient|addressee) (?:does not|doesn't) (?:want|accept)
        5·[07]·[01][^\n]{0,340}\brecipient address rejected ?: access denied
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
        \bsender\b<20>\bunknown\b
        verification failed for (?:the )?sender
        denied by mail from
        envelope[- ]sender
        invalid (?:sender|from)
        not (?:a |are |an )?(?:registered|member|subscribed|authori[sz]ed|allowed|
            permitted)<40>\b(?:gateway user|mailing list|of th|to (?:post|send))
        only (?:members|subscribers) (?:can|may)
        not(?: be)? authori[sz]ed to (?:post|send)
    """,
    Reason.BLOCKED: r"""
        \b(?:client (?:host|address)|ip(?: address)?|your (?:host|ip|server|network|mail server)|
            connections? from|(?:mail|messages?|e-?mails?) from (?:your|\[?\d[\d·:.]{2,40}))\b[^\n]{0,80}\b(?:
            weren't sent|blocked|banned|rejected|refused|denied|permanently deferred|black ?list|listed|
            not (?:allowed|welcome|accepted))
        (?<!not )\b(?:blocked|listed|blacklisted|denied) (?:using|by|at|in|for|on|-|see)\b
        \b(?:rbl|dnsbl|dnswl|spamhaus|spamcop|barracuda|sorbs|abuseat|block ?list|black ?list)\b
        server refused connection
        \b(?:helo|ehlo)\b<40>\b(?:rejected|refused|denied|invalid|not|unknown)\b
        (?<!indicated )no smtp service
        \d[\d·:]{6,40}\]? is (?:on|in) (?:the|an?|our)\b
        \bdynamic (?:ip|address)
        connection denied
        denied \[
        (?:mail|messages?) from \d[\d.·:]{6,40} (?:not allowed|refused|rejected)
        refused to talk to me
        connection refused
        access denied\b.{0,20}\bip
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
        \b(?:unknown|no such|invalid|bad|illegal|non-?existent|unroute?able)(?: mail)? (?:host|
            domain|destination|
            mail ?server|(?<=ble )address)\b(?!\?)
        nxdomain
        no mx (?:or a )?(?:record|host)
        host found but no data record
        domain[^.:;]{0,40}existiert nicht
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
        \b(?:no|not an?|isn't an?|does(?: not|n't) have an?)(?: valid| known| registered|
             local| such| \S{1,100})? (?:
            mail ?box|user|recipient|account|address)\b(?! (?:space|quota|size|limit|specified|given))
        5·4·1 (?:\S{1,320} )?recipient address rejected
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
        recip(?:ient)?notfound
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
        \b(?:connection|network)(?: is)? (?:reset|dropped|closed|lost|error|down)|\blost connection
        dns (?:query|lookup|error)<20>\b(?:fail|error)
        name (?:service|server) (?:error|lookup failure|reply)
        (?:mail|routing|forwarding) loop
        loops? back
        too many (?:hops|received)
        hop count
        bad connection
    """,
    Reason.EXPIRED: r"""
        tim(?:e|ed) ?-?out
        \bexpired\b
        (?:could not|not|hasn't|has not|not yet) (?:be|been)(?: able to be)? delivered (?:for|within|
            after|in)
        giving up
        (?:not|isn't|is not) respond
        unable to (?:connect|reach)
        host not reachable
        has been delayed
        requests to connect
        still being retried
        retry time
        (?:host name|hostname) lookup failure
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
        must authenticate
        not authenticated
        security (?:reasons|violation|policy)
        executable (?:attachment|content)
        mta-?sts
        sender not (?:permitted|authenticated)
    """,
    Reason.SYNTAX_ERROR: r"""
        \b(?:malformed|syntax error|incorrectly constructed|may not follow|must precede)\b
        (?:command|parameter)<30>\b(?:unrecogni[sz]ed|not (?:implemented|recogni[sz]ed|supported))
        bad (?:sequence|syntax)
        (?:unrecogni[sz]ed|unknown|invalid) command
    """,
    Reason.SYSTEM_ERROR: r"""
        (?:service|server|system|mail ?box)\b<20>\b(?:unavailable|not available|busy|error|down|problem)
        internal <20>error
        temporary <20>\b(?:failure|error|problem)
        (?:permanent|transient) exception
        i/o error
        (?:local|write|configuration|config|processing) (?:error|failure)
        transport error
        unable to (?:process|create|open)
        permission denied
        \b(?:try|essayer|r[eé]essayer)(?: again)? (?:later|plus tard)
        out of memory
        resources? (?:temporarily )?unavailable
    """,
}

# Words that suggest the reason if none of the phrases above matches. The order matters here, too.
WORDS_BY_REASON: dict[Reason, str] = {
    Reason.VIRUS_DETECTED: r"""
        \b(?:virus|worm|malware|trojan|infected)
    """,
    Reason.SPAM_DETECTED: r"""
        spam|\b(?:junk|unsolicited|phishing|bulk|ube|uce)\b
    """,
    Reason.AUTH_FAILURE: r"""
        \b(?:dkim|dmarc|spf|arc)\b|authenticat|\bverif(?:ied|ication)\b
    """,
    Reason.REQUIRE_PTR: r"""
        \b(?:ptr|rdns|reverse)\b|\bip\b<20>\b(?:name|lookup)
    """,
    Reason.NO_RELAYING: r"""
        \brelay(?:ing)?\b
    """,
    Reason.SPEEDING: r"""
        too (?:many|much|fast|quickly)\b(?! hops)|\b(?:rate|frequency|volume|limit(?:s|ed)?|throttl\w{1,4}|
            per (?:hour|minute|day|second))\b
    """,
    Reason.BLOCKED: r"""
        \b(?:black|block|deny|access) ?list
        \b(?:blocked|blacklisted|banned|blocking|unblock|delist\w{0,3}|listed)\b
        \b(?:ip|helo|ehlo|rbl|dnsbl)\b(?!=)
        \byour (?:isp|server|host|network|provider|mail ?server)\b
        \bcomplain(?:ts?|ed)
    """,
    Reason.CONTENT_ERROR: r"""
        \b(?:content|headers?|attachments?|mime|characters?|8-?bit|charset|encoding|body)\b
    """,
    Reason.REJECTED: r"""
        \bsend(?:er|ers|ing)\b|\b(?:not|cannot|can't)\b<30>\bsend\b|\bmail from\b|\bfrom:|\breturn[- ]path\b
        \b(?:groups?|lists?|members?|post(?:ing)?|subscri\w{1,6})\b
    """,
    Reason.SECURITY_ERROR: r"""
        \b(?:access|permission) denied\b
    """,
    Reason.POLICY_VIOLATION: r"""
        \bpolic(?:y|ies)\b|\bprohibit|\bforbid
        \b(?:(?:e-?)?mails?(?! server)|messages?|transaction)\b<20>\b(?:rejected|refused|denied|not accepted)
    """,
}
