"""removed sources, alerts"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import sqlmodel
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.add_column(sa.Column('removed_at', sa.DateTime(timezone=True), nullable=True))
    op.create_table('operator_alert',
    sa.Column('cause', sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('mailed_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('cause', name=op.f('pk_operator_alert'))
    )


def downgrade() -> None:
    _copy_shared_reasons()
    op.drop_table('operator_alert')
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.drop_column('removed_at')


def _copy_shared_reasons() -> None:
    """Copy the reasons that several digests share into each digest, because 0.1.0 reads them only there."""
    connection = op.get_bind()
    contents = sa.table('digest_content', sa.column('delivery_id'), sa.column('digest', sa.JSON))
    snapshots = sa.table('paper_snapshot', sa.column('id'), sa.column('key'), sa.column('fields', sa.JSON))
    is_reason = snapshots.c.key.like('%-why-%')
    rows = connection.execute(sa.select(snapshots.c.id, snapshots.c.fields).where(is_reason))
    reasons = {number: fields for number, fields in rows}
    last = 0
    while batch := connection.execute(
        sa.select(contents).where(contents.c.delivery_id > last).order_by(contents.c.delivery_id).limit(1000)
    ).all():
        for delivery_id, digest in batch:
            if _copy_into(digest, reasons):
                own = contents.c.delivery_id == delivery_id
                connection.execute(sa.update(contents).where(own).values(digest=digest))
            last = delivery_id
    connection.execute(sa.delete(snapshots).where(is_reason))


def _copy_into(digest: Any, reasons: dict[int, Any]) -> bool:
    """Replace the ids of reasons in a digest by their texts. Return whether there were any."""
    changed = False
    for section in digest.get('sections', ()) if isinstance(digest, dict) else ():
        ids = section.get('reasons', ()) if isinstance(section, dict) else ()
        is_shared = [isinstance(number, int) and number in reasons for number in ids]
        shared = {place: reasons[number] for place, number in enumerate(ids) if is_shared[place]}
        for place, reason in shared.items():
            changed = True
            ids[place] = reason['reason']
            for item, why in enumerate(section['why']):
                if why == place:
                    section['marks'][item] = reason['marks']
    return changed
