"""Change the settings of a PostgreSQL database, as an operator or a hosting provider does."""

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool


def set_for_database(url: str, setting: str, value: str) -> None:
    """Set a setting for new connections to a database. Open connections keep the old value."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("SET default_transaction_read_only = off")
        connection.exec_driver_sql(f"ALTER DATABASE {make_url(url).database} SET {setting} = {value}")
