"""Run the jobs of the service at their scheduled times.

schedule      the list of jobs, each with its times
scheduler     run the jobs in one process, on SQLite
worker        share the jobs among all processes, on PostgreSQL

Every job reads what is due from our own tables, so it may run late, twice, or in several processes at once.
Jobs that must run once a night on only one machine are marked `once_a_day`.
"""
