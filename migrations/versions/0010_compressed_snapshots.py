"""compressed snapshots: their JSON as compressed bytes, half the size"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.storage import compressed_json

revision = '0010'
down_revision = '0009'
branch_labels = None
depends_on = None

BATCH = 1000


def upgrade() -> None:
    """Change the type to bytes. Existing snapshots remain plain JSON, which can still be read."""
    if op.get_bind().dialect.name == 'sqlite':
        _change_type_in_sqlite(sa.JSON(), sa.LargeBinary())  # Alembic casts the values
    else:
        op.execute("ALTER TABLE paper_snapshot ALTER fields TYPE bytea USING convert_to(fields::text, 'UTF8')")


def downgrade() -> None:
    _decompress_snapshots()
    if op.get_bind().dialect.name == 'sqlite':
        _change_type_in_sqlite(sa.LargeBinary(), sa.JSON())
        op.execute('UPDATE paper_snapshot SET fields = CAST(fields AS TEXT)')
    else:
        op.execute("ALTER TABLE paper_snapshot ALTER fields TYPE json USING convert_from(fields, 'UTF8')::json")


def _change_type_in_sqlite(old: sa.types.TypeEngine, new: sa.types.TypeEngine) -> None:
    """Change the type by copying the table. The copy must not reuse the ids of deleted snapshots."""
    last = op.get_bind().scalar(sa.text("SELECT seq FROM sqlite_sequence WHERE name = 'paper_snapshot'"))
    options = {'sqlite_autoincrement': True}
    with op.batch_alter_table('paper_snapshot', schema=None, table_kwargs=options) as batch_op:
        batch_op.alter_column('fields', existing_type=old, type_=new, existing_nullable=False)
    op.execute("DELETE FROM sqlite_sequence WHERE name = 'paper_snapshot'")
    op.execute(f"INSERT INTO sqlite_sequence (name, seq) VALUES ('paper_snapshot', {int(last or 0)})")


def _decompress_snapshots() -> None:
    connection, last = op.get_bind(), 0
    snapshots = sa.table('paper_snapshot', sa.column('id'), sa.column('fields', sa.LargeBinary))
    following = sa.select(snapshots).where(snapshots.c.id > sa.bindparam('last'))
    batch = following.order_by(snapshots.c.id).limit(BATCH)
    own = snapshots.c.id == sa.bindparam('of_snapshot')
    plain = sa.update(snapshots).where(own).values(fields=sa.bindparam('plain'))
    while rows := connection.execute(batch, {'last': last}).all():
        texts = [(number, compressed_json.text_of(fields)) for number, fields in rows]
        connection.execute(plain, [{'of_snapshot': number, 'plain': text} for number, text in texts])
        last = rows[-1].id
