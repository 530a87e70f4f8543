"""The jobs of the service, and how they run.

schedule      the list of jobs, each with its times
scheduler     runs them in one process, on SQLite
worker        shares them among all processes, on PostgreSQL

Every job asks our own tables what is due now, so it may run late, twice, or in several processes at once.
Jobs that must run once a night on only one machine are marked `once_a_day`.
"""
