"""Backups of a yard: what its database says, and its runs' checkpoints, in any folder or bucket."""
