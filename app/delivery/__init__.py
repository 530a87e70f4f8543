"""The ledger of every mail, the sender and SMTP.

sender       claim → compose → sign → send → record
presigning   sign digests before their hour
journal      the write-ahead journal of one sender process
suppression  addresses that get no mail, by hash
ledger       one row per mail, in exactly one state
smtp         connections to the relay, and what its answers mean
"""
