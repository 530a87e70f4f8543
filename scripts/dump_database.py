"""Write the rows of a database to a file in tests/data/releases, once for each release.

Usage: python -m scripts.dump_database DATABASE_URL tests/data/releases/0.1.0.jsonl.gz

Each line is a JSON array: the table's name, and an object with the row's columns. Tables come in the order in
which foreign keys allow inserting them. `tests/storage/test_releases.py` upgrades these databases.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from sqlalchemy import MetaData, create_engine, select


def main(url: str, target: str) -> None:
    """Write all rows, ordered by primary key."""
    engine = create_engine(url)
    tables = MetaData()
    tables.reflect(engine)
    lines = []
    with engine.connect() as connection:
        for table in tables.sorted_tables:
            if table.name == "alembic_version":
                continue
            rows = connection.execute(select(table).order_by(*table.primary_key)).mappings()
            lines += [json.dumps([table.name, dict(row)], default=str) for row in rows]
    with Path(target).open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    print(f"{len(lines)} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
