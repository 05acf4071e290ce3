"""Checkpoints and backups in object storage: written whole, verified, restored at any size."""
