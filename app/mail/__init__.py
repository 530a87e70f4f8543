"""From a digest to signed bytes.

render     templates → subject, text and HTML
fragments  the pieces of a digest that many mails share, rendered and encoded once
message    RFC 5322 headers and quoted-printable bodies
composer   join the fragments of one mail, and sign it
dkim       DKIM signatures and keys
"""
