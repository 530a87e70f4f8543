"""The operators' pages, below /admin. They call the same functions as the API.

sign_in         sign in with a key or an emailed link; sessions, scopes and form tokens
overview        findings that need attention, recent editions, growth
remedies        the buttons of the overview
subscriber_files  import subscribers after a preview; export them
next_digests    the digests that all active subscribers would get now
subscriber_preferences  change the preferences of one subscriber
subscribers     find subscribers; one subscriber's digests, events and explanations
editions        the editions: reconcile, pause, resume, cancel, resend
delivery        one email: its digest as it is sent; resend or confirm it
papers          search papers; one paper: edit, hide, reinstate, pin, merge, split
sources         the sources: try, add, pause, resume, poll, remove
deliverability  rates by receiver; look up, suppress and list addresses
runs            runs of jobs, with their errors and rejected rows
audit_log       changes by operators
settings        the settings in effect, grouped
setting_descriptions  explain the settings
double_clicks   carry out a form once, even if it is submitted twice
pagination      pages of long lists, with links to the newer and the older page
timing          phrases that say when requested work will be done
keys            create, rotate and revoke keys
webhooks        add, change, test and remove webhooks; their events
"""

from fastapi import FastAPI

from app.web.admin import (
    audit_log,
    deliverability,
    delivery,
    editions,
    keys,
    next_digests,
    overview,
    papers,
    runs,
    settings,
    sign_in,
    sources,
    subscriber_files,
    subscriber_preferences,
    subscribers,
    webhooks,
)
from app.web.admin.double_clicks import Submissions

# `subscriber_files` and `next_digests` must precede `subscribers`, whose paths match any name.
PAGES = (
    sign_in,
    overview,
    subscriber_files,
    next_digests,
    subscriber_preferences,
    subscribers,
    editions,
    delivery,
    papers,
    sources,
    deliverability,
    runs,
    audit_log,
    settings,
    keys,
    webhooks,
)


def install(site: FastAPI) -> None:
    """Add the pages to the web app."""
    for module in PAGES:
        site.router.routes.extend(module.router.routes)
    site.state.submissions = Submissions(sign_in.is_signed_in)
    sign_in.install(site)
