"""Turn mail requests into signed messages.

render               templates → subject, text and HTML
card_facts           PURE: the line of facts on a card: votes, organisation, authors, …
text_limits          PURE: a paper's texts → short and safe enough for its card and for Gmail
marked_words         PURE: an item → marked words, and the words that the marks cannot show
subject_and_preview  PURE: titles → the subject of a digest and its preview text
fragments            the parts of digests that many messages share, rendered and encoded once
bulk_headers         the headers of bulk mail, and Reply-To
message              RFC 5322 headers and quoted-printable bodies
composer             join the fragments of a message, and sign it
dkim                 DKIM signatures and keys
"""
