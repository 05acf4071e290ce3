"""Tenants' rights: those of the file that the yard was started with, and what was set since.

What somebody set wins over the file, for as long as it is not removed; then the file counts again.
The table is read for every decision: whatever server took the wish, the next decision follows it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine, delete, select
from sqlalchemy.exc import SQLAlchemyError

from modelyard.control.store.tables import tenants
from modelyard.errors import InputError, cause_of
from modelyard.schedule.borg import PRODUCTION_BAND
from modelyard.schedule.view import TenantView
from modelyard.simulate.tenants import tenant_view
from modelyard.spec.band import Band
from modelyard.spec.tenant import TenantSpec, parse_tenants

log = logging.getLogger(__name__)

#: Words of a tenant that can be set, as in the file.
WORDS = ("guaranteed", "maximum", "weight", "band")


@dataclass(frozen=True, slots=True)
class SetRights:
    """What somebody set."""

    view: TenantView
    #: as it was written
    words: Mapping[str, object]
    by: str
    at: float


@dataclass(slots=True)
class Tenancy:
    """The rights of one yard's tenants."""

    database: Engine
    total_devices: int
    #: of the file
    written: Mapping[str, TenantView]
    _last: dict[str, TenantView] = field(default_factory=dict)

    def views(self) -> dict[str, TenantView]:
        """What counts now; what counted last where the database does not answer."""
        try:
            changed = {name: one.view for name, one in self.set_rights().items()}
        except SQLAlchemyError as error:
            log.warning("tenants could not be read: %s", cause_of(error))
            return self._last or dict(self.written)
        self._last = {**self.written, **changed}
        return self._last

    def set_rights(self) -> dict[str, SetRights]:
        """What was set since, by tenant."""
        with self.database.connect().execution_options(reads=True) as connection:
            rows = connection.execute(select(tenants).order_by(tenants.c.name)).all()
        found = {}
        for row in rows:
            words = json.loads(row.record)
            view = tenant_view(_spec(row.name, words), self.total_devices)
            found[row.name] = SetRights(view, words, row.by, row.at)
        return found

    def set(self, name: str, words: Mapping[str, object], *, by: str, at: float) -> TenantView:
        """Give a tenant these rights; what is left out stays. `InputError` when they cannot be."""
        unknown = sorted(set(words) - set(WORDS))
        if unknown:
            what = f"'{unknown[0][:40]}' is no right of a tenant"
            raise InputError(what, fix=f"send {', '.join(WORDS)}")
        before = self.set_rights().get(name)
        kept = dict(before.words) if before else _words(self.written.get(name))
        merged = {word: value for word, value in {**kept, **words}.items() if value is not None}
        view = tenant_view(_spec(name, merged), self.total_devices)
        self._check_promises(view)
        values = {"record": json.dumps(merged), "by": by, "at": at}
        with self.database.begin() as connection:
            connection.execute(delete(tenants).where(tenants.c.name == name))
            connection.execute(tenants.insert().values(name=name, **values))
        return view

    def remove(self, name: str) -> bool:
        """Forget what was set; whether there was something."""
        with self.database.begin() as connection:
            return connection.execute(delete(tenants).where(tenants.c.name == name)).rowcount > 0

    def _check_promises(self, new: TenantView) -> None:
        others = [view for view in self.views().values() if view.name != new.name]
        promised = sum(view.guaranteed for view in (*others, new))
        if promised > self.total_devices:
            what = f"the guarantees would add up to {promised} of {self.total_devices} devices"
            raise InputError(what, fix="lower this one, or another tenant's first")


def _spec(name: str, words: Mapping[str, object]) -> TenantSpec:
    written = json.dumps({"tenants": [{"name": name, **words}]})
    (spec,) = parse_tenants(written, f"tenant '{name}'")
    return spec


def _words(view: TenantView | None) -> dict[str, object]:
    """Rights of the file in the file's words, for what is not set anew."""
    if view is None:
        return {}
    band = Band.PRODUCTION if view.band == PRODUCTION_BAND else Band.BATCH
    return {
        "guaranteed": view.guaranteed,
        "maximum": view.maximum,
        "weight": view.weight,
        "band": band.value,
    }
