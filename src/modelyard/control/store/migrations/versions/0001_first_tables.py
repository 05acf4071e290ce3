"""Jobs, nodes, the log, the lease, tokens and the audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("tenant", sa.String(200), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("submitted", sa.Double, nullable=False),
        sa.Column("ended", sa.Double),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
    )
    op.create_index("jobs_by_state", "jobs", ["state"])
    op.create_index("jobs_by_submission", "jobs", ["submitted", "id"])
    op.create_index("jobs_by_tenant", "jobs", ["tenant", "submitted", "id"])
    unfinished = sa.text("ended IS NULL")
    op.create_index(
        "jobs_not_over",
        "jobs",
        ["submitted", "id"],
        sqlite_where=unfinished,
        postgresql_where=unfinished,
    )
    op.create_table(
        "nodes",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("job", sa.String(32), nullable=False, server_default=sa.text("''")),
        sa.Column("node", sa.String(200), nullable=False, server_default=sa.text("''")),
        sa.Column("attempt", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("state", sa.String(32)),
        sa.Column("reason", sa.String(32)),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("who", sa.String(200), nullable=False, server_default=sa.text("''")),
    )
    op.create_index("entries_by_job", "entries", ["job", "number"])
    op.create_table(
        "lease",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("term", NUMBER, nullable=False),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("address", sa.String(400), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("tenant", sa.String(200), nullable=False),
        sa.Column("role", sa.String(32), nullable=False),
        sa.Column("made", sa.Double, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("number", NUMBER, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("tenant", sa.String(200), nullable=False),
        sa.Column("call", sa.String(400), nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False, server_default=sa.text("''")),
    )
