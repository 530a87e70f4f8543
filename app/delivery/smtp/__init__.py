"""SMTP as a client: one round trip per mail where the relay offers PIPELINING.

protocol         PURE: commands, bodies and replies as bytes
connection       one connection to the relay; `Timeouts`
connection_pool  open, keep and renew connections as mails wait
fair_queue       PURE: mails of one provider never hold up those of others
responses        PURE: what a refusal means
"""
