"""features for operators: removed sources, alerts, edited papers, updates, idempotency keys"""

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
    with op.batch_alter_table('paper', schema=None) as batch_op:
        batch_op.add_column(sa.Column('sourced', sa.JSON(), nullable=True))
        batch_op.add_column(sa.Column('edited_at', sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column('hidden_at', sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column('pinned_at', sa.DateTime(timezone=True), nullable=True))
        batch_op.add_column(sa.Column('pinned_until', sa.DateTime(timezone=True), nullable=True))
        batch_op.create_index('ix_paper_hidden_at', ['hidden_at'], unique=False)
        batch_op.create_index('ix_paper_pinned_until', ['pinned_until'], unique=False)
        batch_op.create_index('ix_paper_updated_at', ['updated_at'], unique=False)
    op.create_table('source_poll',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('source_id', sa.Integer(), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('counts', sa.JSON(), nullable=False),
    sa.Column('rejections', sa.JSON(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['source_id'], ['source.id'], name=op.f('fk_source_poll_source_id_source')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_source_poll'))
    )
    with op.batch_alter_table('source_poll', schema=None) as batch_op:
        batch_op.create_index('ix_source_poll_source_id', ['source_id', 'id'], unique=False)
        batch_op.create_index('ix_source_poll_started_at', ['started_at'], unique=False)
    op.create_table('operator_alert',
    sa.Column('cause', sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False),
    sa.Column('seen_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('mailed_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('cause', name=op.f('pk_operator_alert'))
    )
    op.add_column('paper', sa.Column('code_found_at', sa.DateTime(timezone=True), nullable=True))
    for name in ('withdrawn_at', 'code_found_at'):
        condition = sa.text(f'{name} IS NOT NULL')
        op.create_index(f'ix_paper_{name}', 'paper', [name], sqlite_where=condition, postgresql_where=condition)
    op.create_index('ix_paper_snapshot_paper_id', 'paper_snapshot', ['paper_id'])
    op.add_column('subscriber', sa.Column('paper_updates', sa.Boolean(), server_default=sa.true(), nullable=False))
    op.add_column('digest_content', sa.Column('has_updates', sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column('delivery', sa.Column('receiver', sqlmodel.sql.sqltypes.AutoString(length=255), nullable=True))
    condition = sa.text('receiver IS NOT NULL')
    op.create_index('ix_delivery_receiver', 'delivery', ['receiver', 'sent_at'], sqlite_where=condition, postgresql_where=condition)
    op.create_table('idempotency_key',
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('fingerprint', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('holder', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('until', sa.DateTime(timezone=True), nullable=False),
    sa.Column('changed', sa.Boolean(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('status', sa.Integer(), nullable=True),
    sa.Column('answer', sa.Text(), nullable=True),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_idempotency_key'))
    )
    with op.batch_alter_table('idempotency_key', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_idempotency_key_expires_at'), ['expires_at'], unique=False)


def downgrade() -> None:
    _copy_shared_reasons()
    # 0.1.0 cannot hide papers. Mark hidden papers as withdrawn, so that it does not send them.
    op.execute('UPDATE paper SET withdrawn_at = hidden_at WHERE withdrawn_at IS NULL AND hidden_at IS NOT NULL')
    with op.batch_alter_table('idempotency_key', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_idempotency_key_expires_at'))
    op.drop_table('idempotency_key')
    op.drop_index('ix_delivery_receiver', 'delivery')
    op.drop_column('delivery', 'receiver')
    op.drop_column('digest_content', 'has_updates')
    op.drop_column('subscriber', 'paper_updates')
    op.drop_index('ix_paper_snapshot_paper_id', 'paper_snapshot')
    for name in ('code_found_at', 'withdrawn_at'):
        op.drop_index(f'ix_paper_{name}', 'paper')
    op.drop_column('paper', 'code_found_at')
    op.drop_table('operator_alert')
    op.drop_table('source_poll')
    with op.batch_alter_table('paper', schema=None) as batch_op:
        batch_op.drop_index('ix_paper_updated_at')
        batch_op.drop_index('ix_paper_pinned_until')
        batch_op.drop_index('ix_paper_hidden_at')
        batch_op.drop_column('pinned_until')
        batch_op.drop_column('pinned_at')
        batch_op.drop_column('hidden_at')
        batch_op.drop_column('edited_at')
        batch_op.drop_column('sourced')
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
    """Replace the ids of reasons in a digest by their texts. Return whether there were any.

    Sections and reasons that cannot be read stay as they are: 0.1.0 skips and counts them.
    """
    changed = False
    sections = digest.get('sections') if isinstance(digest, dict) else None
    for section in sections if isinstance(sections, list) else ():
        columns = [section.get(name) for name in ('reasons', 'why', 'marks')] if isinstance(section, dict) else [None]
        if not all(isinstance(column, list) for column in columns):
            continue
        ids, places, marks = columns
        for place, number in enumerate(ids):
            reason = reasons.get(number) if isinstance(number, int) else None
            if not isinstance(reason, dict) or not {'reason', 'marks'} <= reason.keys():
                continue
            changed = True
            ids[place] = reason['reason']
            for item, why in enumerate(places[:len(marks)]):
                if why == place:
                    marks[item] = reason['marks']
    return changed
