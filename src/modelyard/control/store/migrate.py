"""Bring a database to the tables of this version."""

from __future__ import annotations

from sqlalchemy import Engine, inspect, text

from modelyard.errors import YardError

SCRIPTS = "modelyard.control.store:migrations"
#: the last of the files in `migrations/versions`
NEWEST = "0003"


class NewerDatabase(YardError):
    """The database was made by a newer version of Modelyard."""


def upgrade(database: Engine, *, to: str = NEWEST) -> None:
    """Make or change tables where that is needed; nothing is lost."""
    if revision(database) == to:
        return
    # A server that is started again needs none of this, and starts faster without.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
    unknown = {revision(database), to} - known - {None}
    if unknown:
        what = f"the database is at revision '{unknown.pop()}', which this version does not know"
        raise NewerDatabase(what, fix="install the version that made it, or a newer one")
    with database.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, to)


def revision(database: Engine) -> str | None:
    """The last change that was made to the tables; None for an empty database."""
    with database.connect().execution_options(reads=True) as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return str(found) if found is not None else None
