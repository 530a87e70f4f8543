"""Paperboy: trending research papers in your inbox, picked for you.

The stages, in the order in which data passes through them:

    pipeline      READ FIRST: the verbs of the whole service, each reads as prose
    intake        its first half: ask sources, read files, fill the archive
    planning      its middle: everyone who is due gets a delivery, or a reason why not
    desk          where planning lays out digests: candidates ranked and matched once a run
    hindsight     what interests would have brought over the last days
    search        the whole archive, by words and by meaning
    explaining    why a reader was sent a paper, or why not
    posting       its second half: what the ledger gives out is written and handed to the relay
    signing       what was composed ahead of its hour is signed ahead
    returns       what comes back: whose mail it was, and what follows
    bibliography  PURE: pasted links, ids and titles, BibTeX, RIS, CSL JSON or CSV → records
    sources       one file an upstream: huggingface, arxiv, feed, pages; client is the polite HTTP client
    ingest        records → new, changed, unchanged or rejected rows of the archive
    duplicates    which papers of the archive new records may be, found before anything is locked
    dedupe        PURE: is this the same paper?
    votes         the votes for a paper as one source counted them, over time
    merges        two rows are one paper, and how that is taken back
    archive       the papers as the later stages see them
    words         PURE: a text → its words, stemmed
    abbreviations PURE: short forms and what they stand for, learned from texts
    space         PURE: papers as rows of numbers: BM25F, TF-IDF, LSA
    corpus        PURE: the archive as numbers: all that was learned from its papers
    lexicon       keeps the corpus current
    trend         PURE: votes over time → how a paper is doing, in words
    interest      PURE: what a reader typed → words, phrases, exclusions, filters
    passages      PURE: what literally stands in a paper
    concordance   PURE: where runs of words stand, in many papers at once
    filters       PURE: what must, and must not, stand in papers: of all of them at once
    match         PURE: interests × papers → relevance with its reason
    taste         PURE: likes and dislikes → how close papers are to them
    cadence       PURE: who is due, and when next, in their own time zone
    summaries     a language model's sentence on a paper, where an operator wants it
    gist          PURE: an abstract → the sentence that tells most
    ranking       PURE: readers × papers → what is relevant enough, the best score first
    compose       PURE: pick, section, never repeat → Digest
    render        Digest → subject, HTML and text
    message       RenderedMail → RFC 5322 bytes
    fragments     what digests show, rendered and encoded once
    letters       Letter → Outgoing: from fragments that are encoded once, and signed
    dkim          the signatures of mails, and the keys they are made with
    wire          PURE: SMTP as bytes: commands, bodies, replies
    pace          PURE: whose turn it is: the mails of one provider never hold up others
    conversation  one connection to the relay, a round trip a mail
    smtp          connections to the relay: opened as mails wait, kept, and renewed
    refusals      PURE: what an answer of the relay's, or a notice's words, mean
    deliver       the ledger: claim, commit, send, record, retry, recover
    journal       what a sender is about to do, where a dying process cannot lose it

The people and their links:

    subscribers   sign up, confirm, preferences, pause, unsubscribe, export, erase
    bounces       what comes back: notices → events → scores → suppression
    suppression   addresses that get no mail, known by their hash
    tokens        PURE: signed links that can do one thing each

What operators see:

    runs          the record of each job's run
    catalogue     the list of sources that are polled
    keys          the keys of the admin API: scoped, hashed, revoked
    audit         what operators changed, and by which door
    doctor        what is wrong with this installation, and how to mend it
    logs          structured logs without secrets, and traces where they are asked for

The doors:

    web           public pages, readers' pages and the admin API
    jobs          the only APScheduler file: a table of pipeline functions and triggers
    cli           the same functions from a shell
    demo          the bundled sample, a local mail server and its inbox page
    main          the composition root
    parts         what it makes: the parts of one running Paperboy

The ground:

    records       PURE: the values that cross from stage to stage
    models        the tables, in flow order
    characters    PURE: the characters of strangers' text: one spelling, nothing that deceives
    sandbox       parsers in a child process, with a limit of time and of memory
    db            sessions and column types
    presence      which processes live, told by locks that end with them
    interpreter   what belongs to the whole process: garbage collection, threads, memory arenas
    counters      how often something was asked for, counted by all processes together
    leases        who may run what only one process may run at a time
    settings      what an operator can set
    clock         the one clock
    errors        everything raised on purpose
"""

import os

# One thread of BLAS: products as small as these gain nothing from a second. On a busy machine it made them
# several times slower: threads spin while they wait for each other. numpy reads this when first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
