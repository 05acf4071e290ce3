"""The tables. A record is kept whole as JSON beside the columns that are searched."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

metadata = MetaData()

# SQLite numbers rows by itself only in a column that is exactly INTEGER.
_NUMBER = BigInteger().with_variant(Integer, "sqlite")

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("tenant", String(200), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("state", String(32), nullable=False),
    Column("reason", String(32), nullable=False),
    Column("submitted", Double, nullable=False),
    #: when it was over; none before
    Column("ended", Double),
    Column("record", Text, nullable=False),
    #: what people wrote, as JSON
    Column("spec", Text, nullable=False),
)
Index("jobs_by_state", jobs.c.state)
Index("jobs_by_submission", jobs.c.submitted, jobs.c.id)
Index("jobs_by_tenant", jobs.c.tenant, jobs.c.submitted, jobs.c.id)
# Few of all jobs there ever were are not over.
Index(
    "jobs_not_over",
    jobs.c.submitted,
    jobs.c.id,
    sqlite_where=jobs.c.ended.is_(None),
    postgresql_where=jobs.c.ended.is_(None),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("record", Text, nullable=False),
)

entries = Table(
    "entries",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("job", String(32), nullable=False, server_default=text("''")),
    #: of the job, so that a tenant's log is read without looking at anybody else's
    Column("tenant", String(200), nullable=False, server_default=text("''")),
    Column("node", String(200), nullable=False, server_default=text("''")),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("state", String(32)),
    Column("reason", String(32)),
    #: devices of the job afterwards, as JSON
    Column("held", Text, nullable=False, server_default=text("'[]'")),
    Column("what", Text, nullable=False),
    Column("who", String(200), nullable=False, server_default=text("''")),
)
Index("entries_by_job", entries.c.job, entries.c.number)
Index("entries_by_tenant", entries.c.tenant, entries.c.number)
Index("entries_by_time", entries.c.at)

#: one row: who leads, since which term, and until when unless it is renewed
lease = Table(
    "lease",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("term", _NUMBER, nullable=False),
    Column("holder", String(200), nullable=False),
    Column("address", String(400), nullable=False),
    Column("until", Double, nullable=False),
)

#: who may call, by the hash of what they show
tokens = Table(
    "tokens",
    metadata,
    Column("digest", String(64), primary_key=True),
    #: the first letters, by which people tell tokens apart
    Column("hint", String(16), nullable=False),
    Column("user", String(200), nullable=False),
    Column("tenant", String(200), nullable=False),
    Column("role", String(32), nullable=False),
    Column("made", Double, nullable=False),
)

#: every call that changed something or was refused
audit = Table(
    "audit",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("user", String(200), nullable=False),
    Column("tenant", String(200), nullable=False),
    Column("call", String(400), nullable=False),
    Column("status", Integer, nullable=False),
    Column("detail", Text, nullable=False, server_default=text("''")),
)

#: rights that somebody set while the yard was up; they win over the file of `yard up --tenants`
tenants = Table(
    "tenants",
    metadata,
    Column("name", String(200), primary_key=True),
    #: as JSON, in the words of the file
    Column("record", Text, nullable=False),
    Column("by", String(200), nullable=False),
    Column("at", Double, nullable=False),
)
