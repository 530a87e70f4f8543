"""Paperboy: trending research papers in your inbox, picked for you.

Read `pipeline.py` first: one function for each thing the service does. The packages, in the order in which
data passes through them:

    papers         upstream responses → records → one row per paper
    relevance      how well papers fit interests and likes; search over the archive
    subscribers    people: sign-up, preferences, feedback, privacy, when a digest is due
    digests        who gets which papers, and why
    mail           from a digest to signed bytes
    delivery       the ledger of every mail, the sender and SMTP
    bounces        bounce and complaint notices: read, apply, suppress

What they stand on:

    storage        tables, sessions, locks and the service's own records
    text           PURE: functions on text
    runtime        the process itself: garbage collection, memory, parsers in a child process

How people and machines reach it:

    web            pages, feeds, webhooks and the admin API
    cli            the commands, the demo and its sample
    doctor         checks of this installation, each with its remedy

Modules:

    pipeline       one function for each thing the service does
    application    the application context: what is built once at startup
    main           composition root: `build(settings)`, `create_app(application)`
    scheduler      the only APScheduler file: when each pipeline function runs
    settings       settings from the environment; .env.example explains them
    types          PURE: the values that cross packages, in flow order
    links          PURE: signed links, their lifetimes, and VERP return paths
    errors         every exception that is raised on purpose, as a tree
    clock          the one clock
    logs           log configuration and redaction

Where a number stands that one looks for:

    how often a source is polled                papers/source_registry.py
    how long a source may take to answer        papers/sources/http_client.py, papers/polling.py
    how relevant a paper must be (FLOOR)        digests/ranking.py
    what words, phrases and meaning weigh       relevance/matching.py
    when the model is trained again             relevance/model_store.py
    how varied a digest is                      digests/compose.py
    how long we wait for the relay (Timeouts)   delivery/smtp/connection.py
    connections and mails per connection        settings.py, delivery/smtp/connection_pool.py
    when and how often a mail is tried again    delivery/ledger/outcomes.py
    how long a lease lasts                      delivery/ledger/claims.py
    when soft bounces suppress an address       bounces/scoring.py
    how long links work (LIFETIMES)             links.py
    how many mails a mailbox may ask for        subscribers/form_submissions.py
    rate and work limits of the web             web/work_limits.py, web/connection_limits.py
    how long rows are kept                      settings.py, delivery/ledger/retention.py
"""

import os

# One thread of BLAS: products as small as these gain nothing from a second. On a busy machine it made them
# several times slower: threads spin while they wait for each other. numpy reads this when first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
