"""Build a ledger of a million emails with raw SQL. Slow queries show only at this size."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, text

READERS, DAYS = 100_000, 10
LAST_HOUR = datetime(2026, 11, 20, 8, tzinfo=UTC)
DAY = timedelta(days=1)

# In the newest edition, some emails wait and some are claimed; all others have ended. One subscriber
# in a hundred is paused, one in a hundred is due now, and each has two events. One digest in a
# hundred is to be signed ahead.
_STATE = """CASE WHEN day < :days - 1
    THEN CASE n % 20 WHEN 0 THEN 'skipped' WHEN 1 THEN 'failed' ELSE 'sent' END
    ELSE CASE WHEN n <= 300 THEN 'claimed' WHEN n % 10 = 0 THEN 'pending' WHEN n % 100 = 1 THEN 'deferred'
        WHEN n % 1000 = 3 THEN 'uncertain' ELSE 'sent' END END"""
_STATEMENTS = (
    """INSERT INTO subscriber (id, email, state, cadence, weekday, hour, zone, min_papers, max_papers,
        when_empty, max_trending, muted, ignored_authors, next_due_at, due_since, link_epoch, consent_version,
        consent_ip, created_at)
    SELECT n, 'reader.' || n || '@example.org', CASE n % 100 WHEN 50 THEN 'paused' ELSE 'active' END,
        'daily', 0, 8, 'UTC', 1, 10, 'skip', 0, '[]', '[]', CASE n % 100 WHEN 7 THEN {due} ELSE {next} END,
        {first}, 0, '', '', {first}
    FROM {readers}""",
    """INSERT INTO delivery (id, subscriber_id, kind, edition, state, reason, subject, message_id, attempts,
        next_attempt_at, give_up_at, possibly_delivered, lease_owner, lease_until, smtp_text, due_at,
        created_at, sent_at)
    SELECT day * :readers + n, n, 'digest', edition, state, '', '', '', 1,
        CASE WHEN state IN ('pending', 'claimed', 'deferred', 'uncertain') THEN at END,
        give_up, {false}, CASE state WHEN 'claimed' THEN 'sender' ELSE '' END,
        CASE state WHEN 'claimed' THEN {lease} END, '', at, at, CASE state WHEN 'sent' THEN at END
    FROM (SELECT n, day, edition, at, give_up, {state} AS state FROM {days} CROSS JOIN {readers}) AS mails
    {order}""",
    """INSERT INTO digest_content (delivery_id, digest, signature, signature_fingerprint)
    SELECT day * :readers + n, CAST('{{}}' AS {bytes}), '', CASE n % 100 WHEN 0 THEN '' ELSE '-' END
    FROM {days} CROSS JOIN {readers}""",
    """INSERT INTO event (at, kind, subscriber_id, delivery_id, detail)
    SELECT {first}, CASE n % 2 WHEN 0 THEN 'confirmed' ELSE 'bounce' END, n,
        CASE n % 2 WHEN 1 THEN n END, ''
    FROM {readers}""",
)


def fill(engine: Engine, readers: int = READERS, days: int = DAYS) -> None:
    """Insert readers and one digest per reader and day up to `LAST_HOUR`, and update the planner's
    statistics.
    """
    postgres = engine.dialect.name == "postgresql"
    fragments = _postgres_fragments() if postgres else _sqlite_fragments()
    first = LAST_HOUR - DAY * (days - 1)
    moments: dict[str, Any] = {
        "first": first, "due": LAST_HOUR, "next": LAST_HOUR + DAY, "lease": LAST_HOUR + DAY / 72
    }  # fmt: skip
    parameters = {name: at if postgres else f"{at:%Y-%m-%d %H:%M:%S.%f}" for name, at in moments.items()}
    values = {"readers": readers, "days": days, **parameters}
    with engine.connect() as connection:
        for setting in _FAST_POSTGRES if postgres else _FAST_SQLITE:
            connection.connection.cursor().execute(setting)  # before a transaction begins
        indexes = _drop_indexes(connection)
        for statement in _STATEMENTS:
            query = text(statement.format(**fragments))
            names = query.compile().params.keys()
            connection.execute(query, {name: values[name] for name in names})
        for create in indexes:
            connection.exec_driver_sql(create)
        for statement in _AFTER_POSTGRES if postgres else ("ANALYZE",):
            connection.exec_driver_sql(statement)
        connection.commit()
    if postgres:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (ANALYZE) delivery, digest_content, event, subscriber")
    engine.dispose()  # close the pooled connections, which still have the settings above


# Do not check foreign keys or wait for the disk, which would take most of the time.
_FAST_POSTGRES = (
    "SET session_replication_role = replica",
    "SET synchronous_commit = off",
    "SET maintenance_work_mem = '256MB'",
)
_AFTER_POSTGRES = tuple(
    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"  # noqa: S608 - our own words
    for table in ("subscriber", "delivery", "event")
)
_FAST_SQLITE = (
    "PRAGMA synchronous = OFF",
    "PRAGMA journal_mode = OFF",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA ignore_check_constraints = ON",
    "PRAGMA cache_size = -400000",
)


def _drop_indexes(connection: Connection) -> list[str]:
    """Drop the indexes of the large tables, and return the statements that recreate them.

    Creating an index after the rows is much faster than updating it with every row.
    """
    postgres = connection.dialect.name == "postgresql"
    listed = connection.exec_driver_sql(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN ('delivery', 'event', 'subscriber')"
        if postgres
        else "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        " AND tbl_name IN ('delivery', 'event', 'subscriber')"
    )
    indexes = [(name, create) for name, create in listed if name.startswith("ix_")]
    for name, _ in indexes:
        connection.exec_driver_sql(f"DROP INDEX {name}")
    if not postgres:
        return [create for _, create in indexes]
    unique = "delivery ADD CONSTRAINT uq_delivery_subscriber_id_edition UNIQUE (subscriber_id, edition)"
    connection.exec_driver_sql("ALTER TABLE delivery DROP CONSTRAINT uq_delivery_subscriber_id_edition")
    return [f"ALTER TABLE {unique}", *(create for _, create in indexes)]


def _postgres_fragments() -> dict[str, str]:
    moments = {name: f"CAST(:{name} AS timestamptz)" for name in ("first", "due", "next", "lease")}
    at = f"{moments['first']} + day * interval '1 day'"
    days = f"""(SELECT day, to_char(({at}) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS edition, {at} AS at,
        {at} + interval '1 day' AS give_up FROM generate_series(0, :days - 1) AS s(day) OFFSET 0) AS d"""  # noqa: S608 - our own words
    readers = "generate_series(1, :readers) AS r(n)"
    return moments | {
        "readers": readers, "days": days, "false": "false", "bytes": "bytea", "state": _STATE,
        "order": "ORDER BY day, n",  # as the service inserts them
    }  # fmt: skip


def _sqlite_fragments() -> dict[str, str]:
    moments = {name: f":{name}" for name in ("first", "due", "next", "lease")}
    at = "strftime('%Y-%m-%d %H:%M:%S.000000', :first, '+' || {} || ' days')"
    days = f"""(WITH RECURSIVE s(day) AS (SELECT 0 UNION ALL SELECT day + 1 FROM s WHERE day < :days - 1),
        d AS MATERIALIZED (SELECT day, date(:first, '+' || day || ' days') AS edition,
            {at.format("day")} AS at, {at.format("(day + 1)")} AS give_up FROM s) SELECT * FROM d)"""  # noqa: S608 - our own words
    readers = """(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < :readers)
        SELECT n FROM r)"""
    return moments | {
        "readers": readers,
        "days": days,
        "false": "0",
        "bytes": "BLOB",
        "state": _STATE,
        "order": "",
    }
