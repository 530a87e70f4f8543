"""Paperboy: trending research papers in your inbox, picked for you.

Read `pipeline.py` first: one function for each task of the service. The packages, in the order in which data
passes through them:

    papers         upstream responses → records → one row per paper
    relevance      how well papers fit interests and likes; search over the archive
    subscribers    readers: sign-up, preferences, feedback, privacy, schedule
    digests        who gets which papers, and why
    mail           from a digest to signed bytes
    delivery       the ledger of every mail, the sender and SMTP
    bounces        bounce and complaint notices: read, apply, suppress

The packages that these use:

    storage        tables, sessions, locks and the service's own records
    text           PURE: functions on text
    runtime        the process: garbage collection, memory, parsers in a child process

The interfaces:

    web            pages, feeds, webhooks and the admin API
    cli            the commands, the demo and its sample
    doctor         checks of the installation, each with a remedy

Modules:

    pipeline       one function for each task of the service
    application    the application context, built once at startup
    main           composition root: `build(settings)`, `create_app(application)`
    scheduler      the only APScheduler file: when each pipeline function runs
    settings       settings from the environment; .env.example explains them
    types          PURE: the values that packages pass to each other
    links          PURE: signed links, their lifetimes, and VERP return paths
    errors         the tree of our exceptions
    clock          the one clock
    logs           log configuration and redaction

templates/README.md lists the templates of pages and mails.

Where to find limits, weights and intervals:

    how often a source is polled                papers/poll_schedule.py
    how long a source may take to answer        papers/sources/http_client.py, papers/polling.py
    how relevant a paper must be (FLOOR)        digests/ranking.py
    weights of words, phrases and meaning       relevance/matching.py
    when the model is trained again             relevance/model_store.py
    the reason on a card                        relevance/reasons.py
    how varied a digest is                      digests/selection.py
    notes and headings of a digest              digests/wording.py
    how long we wait for the relay (Timeouts)   delivery/smtp/connection.py
    connections and mails per connection        settings.py, delivery/smtp/connection_pool.py
    when and how often a mail is tried again    delivery/ledger/outcomes.py
    when sending pauses by itself               delivery/ledger/circuit_breaker.py
    how long a lease lasts                      delivery/ledger/claims.py
    when soft bounces suppress an address       bounces/scoring.py
    how long links work (LIFETIMES)             links.py
    how many mails a mailbox may request        subscribers/form_submissions.py
    rate and work limits of the web             web/rate_limits.py, web/connection_limits.py
    how long rows are kept                      settings.py, delivery/ledger/retention.py
"""

import os

# One BLAS thread: our matrix products are too small to gain from a second one. On a busy machine a second one
# made them several times slower, because threads spin while they wait. numpy reads this at its first import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
