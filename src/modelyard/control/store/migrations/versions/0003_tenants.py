"""Tenants whose rights were set while the yard was up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("by", sa.String(200), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
