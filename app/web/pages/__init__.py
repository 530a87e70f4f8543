"""HTML pages for visitors and subscribers, and feeds.

home                 the front page, sign-up, requests for a link
archive              a paper, search, the papers from a day, the most upvoted papers from a week
confirmation         confirm or decline a sign-up, confirm a change of address
preferences          change the preferences, pause
digest_links         pages that a digest links to: the current subscription, and the digest itself
leaving              unsubscribe, export, erase
feedback             likes, dislikes, pasted papers
mute_and_follow      mute a word, follow an author
feeds                Atom and JSON Feed
robots_and_sitemaps  robots.txt and the sitemaps
"""
