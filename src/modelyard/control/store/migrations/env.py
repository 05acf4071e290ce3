"""Run by alembic: changes go through the connection that asked for them."""

from __future__ import annotations

from alembic import context

from modelyard.control.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
