"""the first tables"""

from __future__ import annotations

import sqlalchemy as sa
import sqlmodel
from alembic import op


revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('api_key',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('key_hash', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('scopes', sa.JSON(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('last_used_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('revoked_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_key')),
    sa.UniqueConstraint('key_hash', name=op.f('uq_api_key_key_hash'))
    )
    op.create_table('admin_session',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('token_hash', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('key_id', sa.Integer(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('used_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['key_id'], ['api_key.id'], name=op.f('fk_admin_session_key_id_api_key'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_admin_session')),
    sa.UniqueConstraint('token_hash', name=op.f('uq_admin_session_token_hash'))
    )
    op.create_table('audit_entry',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('actor', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('action', sqlmodel.sql.sqltypes.AutoString(length=60), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('detail', sa.JSON(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_audit_entry'))
    )
    with op.batch_alter_table('audit_entry', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_audit_entry_at'), ['at'], unique=False)
        batch_op.create_index(batch_op.f('ix_audit_entry_subject'), ['subject'], unique=False)

    op.create_table('paper_snapshot',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('key', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('fields', sa.JSON(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_paper_snapshot')),
    sa.UniqueConstraint('key', name=op.f('uq_paper_snapshot_key')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('paper_snapshot', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_paper_snapshot_created_at'), ['created_at'], unique=False)

    op.create_table('lock',
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('holder', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('until', sa.DateTime(timezone=True), nullable=False),
    sa.Column('edition', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_lock'))
    )
    op.create_table('rate_limit',
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('hits', sa.Integer(), nullable=False),
    sa.Column('expires_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_rate_limit'))
    )
    with op.batch_alter_table('rate_limit', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_rate_limit_expires_at'), ['expires_at'], unique=False)

    op.create_table('trained_model',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('trained_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('papers', sa.Integer(), nullable=False),
    sa.Column('newest_id', sa.Integer(), nullable=False),
    sa.Column('changed_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('sha256', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('size', sa.Integer(), nullable=False),
    sa.Column('data', sa.LargeBinary(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_trained_model'))
    )
    op.create_table('paper',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('arxiv_id', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=True),
    sa.Column('doi', sqlmodel.sql.sqltypes.AutoString(length=300), nullable=True),
    sa.Column('title', sa.Text(), nullable=False),
    sa.Column('title_key', sqlmodel.sql.sqltypes.AutoString(length=1000), nullable=False),
    sa.Column('abstract', sa.Text(), nullable=False),
    sa.Column('authors', sa.JSON(), nullable=False),
    sa.Column('author_count', sa.Integer(), nullable=False),
    sa.Column('organization_names', sa.JSON(), nullable=False),
    sa.Column('categories', sa.JSON(), nullable=False),
    sa.Column('keywords', sa.JSON(), nullable=False),
    sa.Column('tldr', sa.Text(), nullable=False),
    sa.Column('published_on', sa.Date(), nullable=True),
    sa.Column('url', sa.Text(), nullable=False),
    sa.Column('pdf_url', sa.Text(), nullable=False),
    sa.Column('code_url', sa.Text(), nullable=False),
    sa.Column('project_url', sa.Text(), nullable=False),
    sa.Column('thumbnail_url', sa.Text(), nullable=False),
    sa.Column('withdrawn_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('content_hash', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('versions', sa.JSON(), nullable=False),
    sa.Column('merged_into_id', sa.Integer(), nullable=True),
    sa.Column('first_listed_on', sa.Date(), nullable=True),
    sa.Column('last_listed_on', sa.Date(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('updated_at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['merged_into_id'], ['paper.id'], name=op.f('fk_paper_merged_into_id_paper')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_paper')),
    sa.UniqueConstraint('arxiv_id', name=op.f('uq_paper_arxiv_id')),
    sa.UniqueConstraint('doi', name=op.f('uq_paper_doi'))
    )
    with op.batch_alter_table('paper', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_paper_first_listed_on'), ['first_listed_on'], unique=False)
        batch_op.create_index(batch_op.f('ix_paper_last_listed_on'), ['last_listed_on'], unique=False)
        batch_op.create_index(batch_op.f('ix_paper_merged_into_id'), ['merged_into_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_paper_title_key'), ['title_key'], unique=False)

    op.create_table('interest_query',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('text', sqlmodel.sql.sqltypes.AutoString(length=300), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_interest_query')),
    sa.UniqueConstraint('text', name=op.f('uq_interest_query_text'))
    )
    op.create_table('job_run',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('job', sqlmodel.sql.sqltypes.AutoString(length=30), nullable=False),
    sa.Column('started_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('counts', sa.JSON(), nullable=False),
    sa.Column('rejections', sa.JSON(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_job_run'))
    )
    with op.batch_alter_table('job_run', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_job_run_job'), ['job'], unique=False)

    op.create_table('receiver_backoff',
    sa.Column('receiver', sqlmodel.sql.sqltypes.AutoString(length=255), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('count', sa.Integer(), nullable=False),
    sa.Column('until', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('receiver', name=op.f('pk_receiver_backoff'))
    )
    op.create_table('sending_pause',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('edition', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_sending_pause')),
    sa.UniqueConstraint('edition', name=op.f('uq_sending_pause_edition'))
    )
    op.create_table('source',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('name', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('kind', sa.Enum('huggingface', 'arxiv', 'arxiv_feed', 'feed', 'page', 'jsonl', name='sourcekind', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('config', sa.JSON(), nullable=False),
    sa.Column('paused', sa.Boolean(), nullable=False),
    sa.Column('etag', sqlmodel.sql.sqltypes.AutoString(), nullable=True),
    sa.Column('last_modified', sqlmodel.sql.sqltypes.AutoString(), nullable=True),
    sa.Column('watermark', sa.Date(), nullable=True),
    sa.Column('next_poll_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('polled_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('failures', sa.Integer(), nullable=False),
    sa.Column('last_error', sa.Text(), nullable=True),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_source')),
    sa.UniqueConstraint('name', name=op.f('uq_source_name'))
    )
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_source_next_poll_at'), ['next_poll_at'], unique=False)

    op.create_table('subscriber',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('email', sqlmodel.sql.sqltypes.AutoString(length=320), nullable=False),
    sa.Column('state', sa.Enum('pending', 'active', 'paused', 'unsubscribed', 'bouncing', 'erased', name='subscriberstate', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('cadence', sa.Enum('daily', 'weekdays', 'weekly', name='cadence', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('weekday', sa.Integer(), nullable=False),
    sa.Column('hour', sa.Integer(), nullable=False),
    sa.Column('zone', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('min_papers', sa.Integer(), nullable=False),
    sa.Column('max_papers', sa.Integer(), nullable=False),
    sa.Column('when_empty', sa.Enum('skip', 'trending', name='whenempty', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('max_trending', sa.Integer(), nullable=False),
    sa.Column('muted', sa.JSON(), nullable=False),
    sa.Column('ignored_authors', sa.JSON(), nullable=False),
    sa.Column('next_due_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('due_since', sa.DateTime(timezone=True), nullable=True),
    sa.Column('paused_until', sa.DateTime(timezone=True), nullable=True),
    sa.Column('link_epoch', sa.Integer(), nullable=False),
    sa.Column('consent_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('consent_version', sqlmodel.sql.sqltypes.AutoString(), nullable=False),
    sa.Column('consent_ip', sqlmodel.sql.sqltypes.AutoString(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('confirmed_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('ended_at', sa.DateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_subscriber')),
    sa.UniqueConstraint('email', name=op.f('uq_subscriber_email'))
    )
    with op.batch_alter_table('subscriber', schema=None) as batch_op:
        batch_op.create_index('ix_subscriber_due', ['state', 'next_due_at', 'id'], unique=False)
        batch_op.create_index('ix_subscriber_paused_until', ['paused_until'], unique=False, sqlite_where=sa.text('paused_until IS NOT NULL'), postgresql_where=sa.text('paused_until IS NOT NULL'))

    op.create_table('suppression',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('address_hash', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('since', sa.DateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_suppression')),
    sa.UniqueConstraint('address_hash', name=op.f('uq_suppression_address_hash'))
    )
    op.create_table('form_submission',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('kind', sa.Enum('sign_up', 'link', 'address', name='requestkind', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('mailbox', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('email', sqlmodel.sql.sqltypes.AutoString(length=320), nullable=False),
    sa.Column('visitor', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=True),
    sa.Column('delivery_id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.Column('preferences', sa.JSON(), nullable=False),
    sa.Column('liked', sa.JSON(), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('processed_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('declined_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_form_submission_subscriber_id_subscriber')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_form_submission'))
    )
    with op.batch_alter_table('form_submission', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_form_submission_created_at'), ['created_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_form_submission_delivery_id'), ['delivery_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_form_submission_mailbox'), ['mailbox'], unique=False)
        batch_op.create_index(batch_op.f('ix_form_submission_processed_at'), ['processed_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_form_submission_subscriber_id'), ['subscriber_id'], unique=False)

    op.create_table('address_change',
    sa.Column('subscriber_id', sa.Integer(), nullable=False),
    sa.Column('email', sqlmodel.sql.sqltypes.AutoString(length=320), nullable=False),
    sa.Column('requested_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('approved_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('delivery_id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_address_change_subscriber_id_subscriber'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('subscriber_id', name=op.f('pk_address_change'))
    )
    with op.batch_alter_table('address_change', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_address_change_email'), ['email'], unique=False)

    op.create_table('delivery',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=False),
    sa.Column('kind', sa.Enum('digest', 'confirm', 'manage', 'export', 'erase', 'new_links', 'address', name='mailkind', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('edition', sqlmodel.sql.sqltypes.AutoString(length=40), nullable=False),
    sa.Column('state', sa.Enum('pending', 'claimed', 'committing', 'sent', 'deferred', 'failed', 'suppressed', 'uncertain', 'skipped', name='deliverystate', native_enum=False, create_constraint=True, length=20), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('subject', sa.Text(), nullable=False),
    sa.Column('message_id', sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('next_attempt_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('give_up_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('possibly_delivered', sa.Boolean(), nullable=False),
    sa.Column('lease_owner', sqlmodel.sql.sqltypes.AutoString(length=100), nullable=False),
    sa.Column('lease_until', sa.DateTime(timezone=True), nullable=True),
    sa.Column('smtp_code', sa.Integer(), nullable=True),
    sa.Column('smtp_text', sa.Text(), nullable=False),
    sa.Column('due_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('created_at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('sent_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_delivery_subscriber_id_subscriber')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_delivery')),
    sa.UniqueConstraint('subscriber_id', 'edition', name=op.f('uq_delivery_subscriber_id_edition')),
    sqlite_autoincrement=True
    )
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.create_index('ix_delivery_due', ['state', 'next_attempt_at'], unique=False)
        batch_op.create_index('ix_delivery_edition', ['edition'], unique=False)
        batch_op.create_index('ix_delivery_created_at', ['created_at'], unique=False)
        batch_op.create_index('ix_delivery_give_up_at', ['give_up_at'], unique=False, sqlite_where=sa.text('next_attempt_at IS NOT NULL'), postgresql_where=sa.text('next_attempt_at IS NOT NULL'))

    op.create_table('digest_content',
    sa.Column('delivery_id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('digest', sa.JSON(), nullable=False),
    sa.Column('signature', sa.Text(), nullable=False),
    sa.Column('signature_fingerprint', sqlmodel.sql.sqltypes.AutoString(length=64), nullable=False),
    sa.ForeignKeyConstraint(['delivery_id'], ['delivery.id'], name=op.f('fk_digest_content_delivery_id_delivery'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('delivery_id', name=op.f('pk_digest_content'))
    )
    with op.batch_alter_table('digest_content', schema=None) as batch_op:
        batch_op.create_index('ix_digest_content_unsigned', ['signature_fingerprint', 'delivery_id'], unique=False, sqlite_where=sa.text("signature_fingerprint = ''"), postgresql_where=sa.text("signature_fingerprint = ''"))

    op.create_table('feedback',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=False),
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('liked', sa.Boolean(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['paper_id'], ['paper.id'], name=op.f('fk_feedback_paper_id_paper')),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_feedback_subscriber_id_subscriber'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_feedback')),
    sa.UniqueConstraint('subscriber_id', 'paper_id', name=op.f('uq_feedback_subscriber_id_paper_id'))
    )
    op.create_table('interest',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=False),
    sa.Column('query_id', sa.Integer(), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('weight', sa.Float(), nullable=False),
    sa.Column('quota', sa.Integer(), nullable=True),
    sa.ForeignKeyConstraint(['query_id'], ['interest_query.id'], name=op.f('fk_interest_query_id_interest_query')),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_interest_subscriber_id_subscriber'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_interest')),
    sa.UniqueConstraint('subscriber_id', 'query_id', name=op.f('uq_interest_subscriber_id_query_id'))
    )
    with op.batch_alter_table('interest', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_interest_query_id'), ['query_id'], unique=False)

    op.create_table('listing',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('original_paper_id', sa.Integer(), nullable=False),
    sa.Column('source_id', sa.Integer(), nullable=False),
    sa.Column('listed_on', sa.Date(), nullable=False),
    sa.Column('rank', sa.Integer(), nullable=True),
    sa.Column('submitted_by', sqlmodel.sql.sqltypes.AutoString(), nullable=False),
    sa.ForeignKeyConstraint(['paper_id'], ['paper.id'], name=op.f('fk_listing_paper_id_paper')),
    sa.ForeignKeyConstraint(['original_paper_id'], ['paper.id'], name=op.f('fk_listing_original_paper_id_paper')),
    sa.ForeignKeyConstraint(['source_id'], ['source.id'], name=op.f('fk_listing_source_id_source')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_listing')),
    sa.UniqueConstraint('original_paper_id', 'source_id', 'listed_on', name=op.f('uq_listing_original_paper_id_source_id_listed_on'))
    )
    with op.batch_alter_table('listing', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_listing_listed_on'), ['listed_on'], unique=False)
        batch_op.create_index(batch_op.f('ix_listing_paper_id'), ['paper_id'], unique=False)

    op.create_table('merge',
    sa.Column('id', sa.Integer(), nullable=False),
    sa.Column('survivor_id', sa.Integer(), nullable=False),
    sa.Column('absorbed_id', sa.Integer(), nullable=False),
    sa.Column('reason', sqlmodel.sql.sqltypes.AutoString(), nullable=False),
    sa.Column('before', sa.JSON(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('undone_at', sa.DateTime(timezone=True), nullable=True),
    sa.ForeignKeyConstraint(['absorbed_id'], ['paper.id'], name=op.f('fk_merge_absorbed_id_paper')),
    sa.ForeignKeyConstraint(['survivor_id'], ['paper.id'], name=op.f('fk_merge_kept_id_paper')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_merge'))
    )
    with op.batch_alter_table('merge', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_merge_absorbed_id'), ['absorbed_id'], unique=False)
        batch_op.create_index(batch_op.f('ix_merge_survivor_id'), ['survivor_id'], unique=False)

    op.create_table('private_paper',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=False),
    sa.Column('title_key', sqlmodel.sql.sqltypes.AutoString(length=200), nullable=False),
    sa.Column('title', sa.Text(), nullable=False),
    sa.Column('abstract', sa.Text(), nullable=False),
    sa.Column('authors', sa.JSON(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_private_paper_subscriber_id_subscriber'), ondelete='CASCADE'),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_private_paper')),
    sa.UniqueConstraint('subscriber_id', 'title_key', name=op.f('uq_private_paper_subscriber_id_title_key'))
    )
    op.create_table('vote_count',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('original_paper_id', sa.Integer(), nullable=False),
    sa.Column('source_id', sa.Integer(), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('upvotes', sa.Integer(), nullable=False),
    sa.Column('comments', sa.Integer(), nullable=False),
    sa.Column('stars', sa.Integer(), nullable=False),
    sa.ForeignKeyConstraint(['paper_id'], ['paper.id'], name=op.f('fk_vote_count_paper_id_paper')),
    sa.ForeignKeyConstraint(['original_paper_id'], ['paper.id'], name=op.f('fk_vote_count_original_paper_id_paper')),
    sa.ForeignKeyConstraint(['source_id'], ['source.id'], name=op.f('fk_vote_count_source_id_source')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_vote_count')),
    sa.UniqueConstraint('original_paper_id', 'source_id', 'at', name=op.f('uq_vote_count_original_paper_id_source_id_at'))
    )
    with op.batch_alter_table('vote_count', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_vote_count_paper_id'), ['paper_id'], unique=False)

    op.create_table('generated_summary',
    sa.Column('paper_id', sa.Integer(), nullable=False),
    sa.Column('text', sa.Text(), nullable=False),
    sa.Column('model', sqlmodel.sql.sqltypes.AutoString(), nullable=False),
    sa.Column('failures', sa.Integer(), nullable=False),
    sa.Column('next_attempt_at', sa.DateTime(timezone=True), nullable=True),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['paper_id'], ['paper.id'], name=op.f('fk_generated_summary_paper_id_paper')),
    sa.PrimaryKeyConstraint('paper_id', name=op.f('pk_generated_summary'))
    )
    op.create_table('event',
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
    sa.Column('at', sa.DateTime(timezone=True), nullable=False),
    sa.Column('kind', sqlmodel.sql.sqltypes.AutoString(length=30), nullable=False),
    sa.Column('subscriber_id', sa.Integer(), nullable=True),
    sa.Column('delivery_id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=True),
    sa.Column('detail', sa.Text(), nullable=False),
    sa.Column('key', sqlmodel.sql.sqltypes.AutoString(length=60), nullable=True),
    sa.ForeignKeyConstraint(['delivery_id'], ['delivery.id'], name=op.f('fk_event_delivery_id_delivery')),
    sa.ForeignKeyConstraint(['subscriber_id'], ['subscriber.id'], name=op.f('fk_event_subscriber_id_subscriber')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_event')),
    sa.UniqueConstraint('key', name=op.f('uq_event_key'))
    )
    with op.batch_alter_table('event', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_event_at'), ['at'], unique=False)
        batch_op.create_index('ix_event_delivery_id', ['delivery_id'], unique=False, sqlite_where=sa.text('delivery_id IS NOT NULL'), postgresql_where=sa.text('delivery_id IS NOT NULL'))
        batch_op.create_index('ix_event_kind_at', ['kind', 'at'], unique=False)
        batch_op.create_index(batch_op.f('ix_event_subscriber_id'), ['subscriber_id'], unique=False)



def downgrade() -> None:
    with op.batch_alter_table('event', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_event_subscriber_id'))
        batch_op.drop_index('ix_event_kind_at')
        batch_op.drop_index('ix_event_delivery_id')
        batch_op.drop_index(batch_op.f('ix_event_at'))

    op.drop_table('event')
    op.drop_table('generated_summary')
    with op.batch_alter_table('vote_count', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_vote_count_paper_id'))

    op.drop_table('vote_count')
    op.drop_table('private_paper')
    with op.batch_alter_table('merge', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_merge_survivor_id'))
        batch_op.drop_index(batch_op.f('ix_merge_absorbed_id'))

    op.drop_table('merge')
    with op.batch_alter_table('listing', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_listing_paper_id'))
        batch_op.drop_index(batch_op.f('ix_listing_listed_on'))

    op.drop_table('listing')
    with op.batch_alter_table('interest', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_interest_query_id'))

    op.drop_table('interest')
    op.drop_table('feedback')
    with op.batch_alter_table('digest_content', schema=None) as batch_op:
        batch_op.drop_index('ix_digest_content_unsigned')

    op.drop_table('digest_content')
    with op.batch_alter_table('delivery', schema=None) as batch_op:
        batch_op.drop_index('ix_delivery_give_up_at')
        batch_op.drop_index('ix_delivery_created_at')
        batch_op.drop_index('ix_delivery_edition')
        batch_op.drop_index('ix_delivery_due')

    op.drop_table('delivery')
    with op.batch_alter_table('form_submission', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_form_submission_subscriber_id'))
        batch_op.drop_index(batch_op.f('ix_form_submission_processed_at'))
        batch_op.drop_index(batch_op.f('ix_form_submission_mailbox'))
        batch_op.drop_index(batch_op.f('ix_form_submission_delivery_id'))
        batch_op.drop_index(batch_op.f('ix_form_submission_created_at'))

    op.drop_table('form_submission')
    with op.batch_alter_table('address_change', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_address_change_email'))

    op.drop_table('address_change')
    op.drop_table('suppression')
    with op.batch_alter_table('subscriber', schema=None) as batch_op:
        batch_op.drop_index('ix_subscriber_paused_until')
        batch_op.drop_index('ix_subscriber_due')

    op.drop_table('subscriber')
    with op.batch_alter_table('source', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_source_next_poll_at'))

    op.drop_table('source')
    op.drop_table('sending_pause')
    op.drop_table('receiver_backoff')
    with op.batch_alter_table('job_run', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_job_run_job'))

    op.drop_table('job_run')
    op.drop_table('interest_query')
    with op.batch_alter_table('paper', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_paper_title_key'))
        batch_op.drop_index(batch_op.f('ix_paper_merged_into_id'))
        batch_op.drop_index(batch_op.f('ix_paper_last_listed_on'))
        batch_op.drop_index(batch_op.f('ix_paper_first_listed_on'))

    op.drop_table('paper')
    op.drop_table('trained_model')
    with op.batch_alter_table('rate_limit', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_rate_limit_expires_at'))

    op.drop_table('rate_limit')
    op.drop_table('lock')
    with op.batch_alter_table('paper_snapshot', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_paper_snapshot_created_at'))

    op.drop_table('paper_snapshot')
    with op.batch_alter_table('audit_entry', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_audit_entry_subject'))
        batch_op.drop_index(batch_op.f('ix_audit_entry_at'))

    op.drop_table('audit_entry')
    op.drop_table('admin_session')
    op.drop_table('api_key')
