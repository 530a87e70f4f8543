"""Delivery: the ledger of all emails, the sender and the SMTP client.

sender         claim → compose → sign → send → record
send_result    PURE: the result of an attempt to send an email
presigning     sign digests before they are due
result_log     log the results of sending
journal        the write-ahead journal of a sender process
receivers      PURE: the receiver of each address (a provider or a domain), and its limits on connections
warm_up        PURE: the daily limits for a new sending domain, and a description of its progress
suppression    the list of addresses that must not receive mail, stored as hashes
ledger         one row per email, in exactly one state
smtp           connections to the relay, and the meaning of its replies
"""
