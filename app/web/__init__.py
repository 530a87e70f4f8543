"""The web door, thin: it turns requests into calls of the stages, and what they say into pages.

security      headers, sizes, and where a request comes from
capacity      places for expensive answers, and rate limits of keys and visitors
pages         the one template environment of the web pages
errors        what went wrong, as a status and a page
bodies        parses large forms in a thread
forms         what people typed, kept as it was typed
shelf         papers as pages show them: of a day, of a week, one alone; and words to begin an interest with
preview       what interests would bring: today's digest, and how many papers a day
public        the front page, signing up
papers        each paper's own page, search over the archive, the papers of a day, the most voted of a week
reader        what a signed link lets a reader do
feeds         Atom and JSON Feed: of the last days, a day, an interest, a reader's own digests
syndication   PURE: entries → Atom and JSON Feed
crawlers      the sitemap and robots.txt
connections   deadlines for slow peers, and descriptors left over for the sender
conditional   answers that are sent again only when they have changed, and kept for some minutes
api           the admin API
hooks         where relays tell of bounces
ops           health and metrics, for machines that watch
tracing       spans for an OpenTelemetry collector, where one is set
"""
