"""The SMTP client: one round trip per email if the relay offers PIPELINING.

protocol         PURE: commands, bodies and replies as bytes
handshake        connect: EHLO with our host name, TLS, login
connection       one connection to the relay
timeouts         how long to wait for the relay
connection_pool  open connections while emails wait; reuse and renew them
fair_queue       PURE: a queue of emails for each receiver, served in turn
responses        PURE: the meaning of refusals
"""
