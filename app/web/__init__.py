"""The web application. Routes turn requests into calls of the pipeline, and results into pages.

pages              what people see in a browser
api                the admin API
webhooks           where providers report bounces
monitoring         health and metrics
security           headers, size limits, where a request comes from
proof_of_work      limits of the forms that ask for mail, and the ALTCHA challenge past them
work_limits        places for expensive answers; rate limits per key and visitor
connection_limits  deadlines for slow peers, file descriptors kept for the sender
request_bodies     parse large forms in a thread
forms              what people typed, kept as it was typed
pasted_papers      parse pasted references, in a child process if they are long
preview            today's digest for some interests, and how many papers a day they bring
paper_cards        papers as pages show them
templating         the one template environment of the pages
signed_links       what a signed link grants to a route
http_cache         conditional responses, and responses kept for some minutes
feed_formats       PURE: entries → Atom and JSON Feed
errors             exceptions → status and page
telemetry          spans for an OpenTelemetry collector, if one is set
"""
