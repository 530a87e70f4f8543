"""Maintain the service as a whole: nightly, or on an operator's request.

subscriber_import   a CSV file → subscribers, with sending paused
pruning             delete rows whose retention period has passed
killed_runs         end the runs of jobs whose process was killed
backup_and_restore  the database and the journals → a file → an empty database, with all sending paused
after_restore       hold the emails that may have been sent since the backup, and disable webhooks
database_move       the database → another database, SQLite or PostgreSQL, while no other process runs
"""

from app.maintenance.backup_and_restore import back_up, readable_url, restore
from app.maintenance.database_move import move
from app.maintenance.killed_runs import close_killed_runs
from app.maintenance.pruning import prune
from app.maintenance.subscriber_import import import_subscribers
