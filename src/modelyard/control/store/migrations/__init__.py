"""Changes of the tables, one file each; `versions/` is read by alembic."""
