"""compressed digests: their JSON as compressed bytes, a third of the size"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from app.storage import compressed_json

revision = '0006'
down_revision = '0005'
branch_labels = None
depends_on = None

BATCH = 1000


def upgrade() -> None:
    """Change the type to bytes. Existing digests remain plain JSON, which can still be read."""
    if op.get_bind().dialect.name == 'sqlite':
        with op.batch_alter_table('digest_content', schema=None) as batch_op:
            batch_op.alter_column('digest', existing_type=sa.JSON(), type_=sa.LargeBinary(), existing_nullable=False)
        op.execute('UPDATE digest_content SET digest = CAST(digest AS BLOB)')
    else:
        op.execute("ALTER TABLE digest_content ALTER digest TYPE bytea USING convert_to(digest::text, 'UTF8')")


def downgrade() -> None:
    _decompress_digests()
    if op.get_bind().dialect.name == 'sqlite':
        with op.batch_alter_table('digest_content', schema=None) as batch_op:
            batch_op.alter_column('digest', existing_type=sa.LargeBinary(), type_=sa.JSON(), existing_nullable=False)
        op.execute('UPDATE digest_content SET digest = CAST(digest AS TEXT)')
    else:
        op.execute("ALTER TABLE digest_content ALTER digest TYPE json USING convert_from(digest, 'UTF8')::json")


def _decompress_digests() -> None:
    connection, last = op.get_bind(), 0
    contents = sa.table('digest_content', sa.column('delivery_id'), sa.column('digest', sa.LargeBinary))
    following = sa.select(contents).where(contents.c.delivery_id > sa.bindparam('last'))
    batch = following.order_by(contents.c.delivery_id).limit(BATCH)
    own = contents.c.delivery_id == sa.bindparam('of_delivery')
    plain = sa.update(contents).where(own).values(digest=sa.bindparam('plain'))
    while rows := connection.execute(batch, {'last': last}).all():
        texts = [(number, compressed_json.text_of(digest)) for number, digest in rows]
        connection.execute(plain, [{'of_delivery': number, 'plain': text} for number, text in texts])
        last = rows[-1].delivery_id
