"""The web application. Routes translate requests into pipeline calls, and the results into pages.

site               combine the modules below into one application
pages              the pages for visitors and subscribers; no page module imports another
api                the admin API
admin              the operator's pages
bounce_webhooks    receive bounce and complaint notices from providers
monitoring         health and metrics
security           response headers, size limits, the check of a form's origin
site_state         typed access to what all requests share
visitors           the address of a client, and the network that identifies a visitor
form_throttle      limits for forms that send email
proof_of_work      ALTCHA challenges for forms that exceed the limits of form_throttle
background         send mail and run jobs after the response
rate_limits        limits on how often a key or a visitor may send requests
capacity           slots for expensive responses
connection_limits  deadlines for slow peers; file descriptors reserved for the sender
request_bodies     parse large forms in a thread
forms              form values, as typed
form_versions      find out what has changed since a form was shown
preferences_merge  store a preferences form, merged with changes made elsewhere
pasted_papers      parse pasted references, in a child process if they are long
preview            today's digest for some interests, and the number of papers a day that match them
digest_history     a subscriber's latest digests as the preferences page shows them
feedback_overview  a subscriber's feedback as the preferences pages show it
paper_cards        papers as pages show them
vote_chart         the chart of votes on a paper's page
templating         Jinja environment, filters and static files
link_access        verify the signed link in a path; responses that must not be cached
http_cache         conditional responses, and a cache that keeps responses for a few minutes
feed_formats       serialize feeds as Atom and JSON Feed
errors             map exceptions to a status and an error page
request_traces     spans for an OpenTelemetry collector, if one is configured
"""
