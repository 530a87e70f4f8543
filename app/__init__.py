"""Paperboy: trending research papers in your inbox, picked for you.

Read `pipeline.py` first: one function for each step from papers to emails. The packages, in the order in
which data flows through them:

    papers         upstream responses → records → one row per paper
    relevance      how well papers match interests and likes; search in the archive
    subscribers    subscribers: sign-up, preferences, feedback, privacy, schedule
    digests        which subscribers get which papers, and why
    mail           from a digest to signed bytes
    delivery       the ledger of all mail, the sender and SMTP
    bounces        bounce and complaint notices: parse them, apply them, suppress addresses

Supporting packages:

    storage        tables, sessions, locks and the service's own records
    text           PURE: text processing
    runtime        the process: garbage collection, memory, parsers in child processes
    maintenance    subscriber import, pruning, backup, restore, move to another database

The interfaces:

    web            pages, feeds, webhooks and the admin API
    cli            the commands, the demo and its sample data
    doctor         checks of the installation, each with a suggested fix
    jobs           run functions at fixed times, with APScheduler (one process) or procrastinate (many)

Modules:

    pipeline       one function for each step from papers to emails
    webhooks       events → the URLs that operators registered
    application    the application context, built once at startup
    main           composition root: `build(settings)`, `create_app(application)`
    settings       settings from the environment; .env.example explains them
    effective_settings
                   the settings in effect, without secrets, for operators to read
    types          PURE: the values that packages exchange
    links          PURE: signed links, their lifetimes, and VERP return paths
    errors         the tree of our exceptions
    clock          the only clock
    logs           logging configuration and redaction

templates/README.md lists the templates of pages and emails.

Where to find limits, weights and intervals:

    how often a source is polled (POLLED)       papers/sources/source_types.py
    how long and large a response may be        papers/sources/http_client.py, papers/poll_schedule.py
    pauses between requests to arXiv            papers/sources/host_rate_limits.py
    when two rows are the same paper            papers/dedupe.py, papers/title_differences.py
    abbreviations and numbers in titles         papers/title_normalization.py
    how relevant a paper must be (FLOOR)        relevance/cut_offs.py
    what "fewer" and "more" papers mean         subscribers/preferences.py (AMOUNTS)
    weights of words and meaning, in relevance
    (AGREEMENT_…) and in strength (STRENGTH_…)  relevance/scoring.py
    weights of titles, BM25's constants         relevance/bm25.py
    which forms and spellings are one word      text/word_forms.py
    how names and organizations are compared    text/names.py
    how relevant a search's results are         relevance/archive_search.py
    the other searches that results offer       relevance/search_offers.py
    when the model is retrained                 relevance/model_store.py
    the words that a reason quotes              relevance/highlights.py
    how many related words a reason names       relevance/reasons.py (MAX_CLOSE_WORDS)
    how a reason is worded                      relevance/reasons.py
    how trends and age change a paper's score   digests/ranking.py (TREND, FRESH)
    how votes and trends are worded             relevance/trend_notes.py
    how varied a digest is                      digests/selection.py
    when a source counts as silent              papers/silent_sources.py
    when a source counts as failing             papers/poll_schedule.py (FAILING_AFTER)
    how long a paper is pinned                  papers/pinning.py
    papers on the front page                    web/pages/home.py
    papers in a pasted or uploaded list         papers/bibliography/limits.py
    the facts on a card, and their order        mail/card_facts.py
    how much disk space must be free            doctor/disk_space.py
    the subject, the titles in the preview text mail/subject_and_preview.py
    how long texts on a card may be             mail/text_limits.py
    how many authors a card names               papers/bylines.py
    the width of the lines of plain text        text/wrapping.py
    how many papers a digest may have           subscribers/preferences.py (MAX_PAPERS)
    when a digest is held or skipped            digests/too_few_papers.py, digests/compose.py
    how many days a weekly digest covers        digests/covered_days.py
    the order of sections in a digest           digests/compose.py
    how many interests a subscriber may have    settings.py
    a new subscriber's defaults                 settings.py, types.py (DEFAULT_MIN_PAPERS)
    notes in a digest                           digests/notes.py
    reasons for a missing digest                digests/skip_reasons.py
    how long a paper gets updates (WINDOW)      papers/rechecking.py
    how many updates a digest may have          digests/paper_updates.py
    how long a subscriber may pause             subscribers/pausing.py
    headings of sections                        mail/section_headings.py
    how long we wait for the relay              delivery/smtp/timeouts.py
    connections, and messages per connection    settings.py, delivery/receivers.py
    when an email is sent again                 delivery/ledger/retry_delays.py
    when we give up on an email                 digests/planning.py, subscribers/, delivery/ledger/expiry.py
    how long we wait for replies at shutdown    delivery/sender.py (SHUTDOWN_GRACE)
    what is logged about an email               delivery/result_log.py
    when sending pauses automatically           delivery/ledger/circuit_breaker.py, bounces/rates.py
    the warm-up of a new sending domain         settings.py, delivery/warm_up.py
    who is next during this warm-up             delivery/ledger/claims.py
    how long a lease lasts                      delivery/ledger/claims.py
    when soft bounces suppress an address       bounces/soft_bounce_score.py
    how often a bounce counts                   bounces/recording.py
    how a relay's replies are understood        delivery/smtp/responses/reply_outcomes.py, reason_phrases.py
    words that ask a sender to slow down        delivery/smtp/responses/throttling_phrases.py
    how long links to subscribers work          settings.py, links.py (LIFETIMES)
    how long an operator's sign-in link works   storage/sign_in_links.py
    how long an operator is signed in           settings.py, web/admin/sign_in.py
    how many emails can be requested            subscribers/mailbox_limits.py
    how many forms a network may send           settings.py, web/form_throttle.py
    the events that webhooks get                subscribers/event_log.py, bounces/recording.py
    when we resend an event or give up on it    storage/webhook_outbox.py
    rate limits of the web app                  settings.py, web/rate_limits.py, web/connection_limits.py
    how many expensive responses run at once    web/capacity.py
    when each job runs                          jobs/schedule.py
    when a process counts as lost               storage/worker_registry.py
    when another process takes over its jobs    jobs/worker.py
    how long a statement waits for a lock       storage/database.py
    how long rows are kept                      settings.py, maintenance/, delivery/ledger/retention.py
"""

import os

# One BLAS thread: our matrix products are too small to gain from a second one. On a busy machine, a second
# thread makes them several times slower, because threads spin while waiting. numpy reads this variable at its
# first import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
