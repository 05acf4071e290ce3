"""Entries of the log know their job's tenant, and the devices that it had afterwards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column(
        "entries",
        sa.Column("tenant", sa.String(200), nullable=False, server_default=sa.text("''")),
    )
    op.add_column(
        "entries", sa.Column("held", sa.Text, nullable=False, server_default=sa.text("'[]'"))
    )
    op.execute(
        "UPDATE entries SET tenant = coalesce("
        "(SELECT jobs.tenant FROM jobs WHERE jobs.id = entries.job), '')"
    )
    op.create_index("entries_by_tenant", "entries", ["tenant", "number"])
    op.create_index("entries_by_time", "entries", ["at"])
