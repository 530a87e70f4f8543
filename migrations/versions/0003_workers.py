"""workers: the registry of processes that run jobs; on PostgreSQL, procrastinate's tables"""

from __future__ import annotations

from importlib import resources

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = '0003'
down_revision = '0002'
branch_labels = None
depends_on = None

# Jobs may be lost, because the ledger determines which emails are left to send. A release with another schema of
# procrastinate can therefore drop these objects and create them again, in a revision of its own.
_DROP = """
DO $$
DECLARE
    object record;
BEGIN
    DROP TABLE procrastinate_events, procrastinate_periodic_defers, procrastinate_jobs, procrastinate_workers
        CASCADE;
    FOR object IN
        SELECT oid::regprocedure AS name FROM pg_proc
        WHERE proname LIKE 'procrastinate\\_%' AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('DROP FUNCTION %s', object.name);
    END LOOP;
    DROP TYPE procrastinate_job_to_defer_v1, procrastinate_job_event_type, procrastinate_job_status;
END
$$
"""


def upgrade() -> None:
    op.create_table('worker',
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_worker'))
    )
    if op.get_bind().dialect.name == 'postgresql':
        _execute(resources.files('procrastinate.sql').joinpath('schema.sql').read_text(encoding='utf-8'))


def downgrade() -> None:
    if op.get_bind().dialect.name == 'postgresql':
        _execute(_DROP)
    op.drop_table('worker')


def _execute(statements: str) -> None:
    """Execute statements unchanged: a colon or a percent sign would be interpreted as a parameter."""
    op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})
