"""Tables, sessions, locks and the service's own records.

models          SQLModel tables, in flow order
database        engine, sessions, column types, bulk helpers
compressed_json  JSON as few bytes
schema          migrations; is the database that of this release?
backup          all tables and journals in a file, and back
locks           locks with a lease: one process at a time runs a job
demo_clock      the clock of the demo, which a file beside its database records
live_processes  detect which processes are alive, from locks that are released when they die
worker_registry the processes that run jobs, with heartbeats, and the jobs that wait, run or have failed
hit_counters    rate-limit counters that all processes share
job_runs        the record of each run of a job
audit_log       changes that operators made
idempotency_keys  requests that are carried out once, with their answers
webhook_endpoints  the URLs to which events are sent, and the events that wait
api_keys        keys of the admin API: scoped, hashed, revocable
uploads         uploaded files that wait for a confirmation
admin_sessions  operators who are signed in to the admin pages
"""
