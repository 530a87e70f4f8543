"""Delivery: the ledger of all mails, the sender and the SMTP client.

sender       claim → compose → sign → send → record
presigning   sign digests before they are due
journal      the write-ahead journal of a sender process
mail_providers PURE: the providers behind addresses, and how many connections they accept
warm_up      PURE: the daily limits of a new sending domain, and a sentence that describes them
suppression  the list of addresses to which nothing is sent, as hashes
ledger       one row per mail, in exactly one state
smtp         connections to the relay, and the meaning of its replies
"""
