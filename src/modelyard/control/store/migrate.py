"""Bring a database to the tables of this version."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from modelyard.errors import YardError

SCRIPTS = "modelyard.control.store:migrations"


class NewerDatabase(YardError):
    """The database was made by a newer version of Modelyard."""


def upgrade(database: Engine) -> None:
    """Make or change tables where that is needed; nothing is lost."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    with database.begin() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
        known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
        if present is not None and present not in known:
            what = f"the database is at revision '{present}', which this version does not know"
            raise NewerDatabase(what, fix="install the version that made it, or a newer one")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
