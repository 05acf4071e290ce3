"""From a tenant as people write it to its rights in a cluster."""

from __future__ import annotations

from modelyard.schedule.borg import PRODUCTION_BAND
from modelyard.schedule.view import TenantView
from modelyard.spec.band import Band
from modelyard.spec.tenant import TenantSpec


def tenant_view(spec: TenantSpec, total_devices: int) -> TenantView:
    """A tenant's rights in devices of a cluster with so many."""
    return TenantView(
        name=spec.name,
        guaranteed=spec.guaranteed.of(total_devices),
        maximum=spec.maximum.of(total_devices) if spec.maximum else None,
        weight=spec.weight,
        band=PRODUCTION_BAND if spec.band is Band.PRODUCTION else 0,
    )
