"""The one truth: records, the log and who leads, in SQLite or PostgreSQL."""
