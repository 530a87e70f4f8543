"""Turn mail requests into signed messages.

render               render the subject, text and HTML of a message from templates
template_folders     the folders with the templates of emails and pages, the operator's own first
card_facts           PURE: the line of facts on a card (votes, organization, authors, …) and its links
section_headings     PURE: the headings of the sections without an interest, capitals in the text part
text_limits          PURE: clean and shorten a paper's texts, so that Gmail does not clip the digest
marked_words         PURE: mark the words of a title and a summary that match
subject_and_preview  PURE: write the subject and the preview text of a digest
fragments            the parts of digests that many messages share, rendered and encoded once
bulk_headers         the headers of bulk mail, and Reply-To
message              RFC 5322 headers and quoted-printable bodies
composer             join the fragments of a message, and sign it
dkim                 DKIM signatures and keys
"""
