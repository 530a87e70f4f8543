"""Tables, sessions, locks and the service's own records.

models          SQLModel tables, in the order of the data flow
column_types    column types that store the same values on both databases
database        engine, sessions, parts of queries
database_errors  classify errors: outages, limits, read-only databases, full disks
inserts         insert rows, one or many at a time, and reserve their ids
compressed_json  compressed JSON
schema          migrations, and a check that the database belongs to this release
backup_file     write the tables and journals to a file, and restore them
figure_cache    figures of large installations, kept for minutes, with the time at which they were counted
locks           locks with a lease, so that only one process runs a job at a time
demo_clock      the demo's clock, which is stored in a file beside its database
live_processes  detect which processes are alive, from locks that are released when they die
worker_registry the processes that run jobs, with heartbeats, and the waiting, running and failed jobs
hit_counters    rate-limit counters that all processes share
job_runs        the record of each run of a job
audit_log       changes that operators made
idempotency_keys  requests that are carried out only once, with their responses
growing_delays  PURE: delays between attempts that grow with each attempt
webhook_endpoints  the URLs to which events are sent, and the secrets that sign them
webhook_outbox  the events that wait to be sent to webhooks, and the delays between attempts
api_keys        keys of the admin API: scoped, hashed, revocable
sign_in_links   links that sign an operator in once
uploads         uploaded files that await confirmation
admin_sessions  operators who are signed in to the admin pages
"""
