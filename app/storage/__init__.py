"""Tables, sessions, locks and the service's own records.

models          SQLModel tables, in flow order
database        engine, sessions, column types, bulk helpers, migrations
locks           locks with a lease: one process at a time runs a job
live_processes  which processes are alive, shown by locks that end with them
rate_limits     counters that all processes share
job_runs        the record of each job's run
audit_log       what operators changed
api_keys        keys of the admin API: scoped, hashed, revocable
"""
