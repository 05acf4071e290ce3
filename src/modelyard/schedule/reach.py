"""How many devices a job could ever have: one that may be smaller asks for no more than that.

Policies that do not size jobs give each what it asks for. An elastic job whose largest size is
beyond the cluster, or beyond what its tenant may hold, would wait for ever with them.
"""

from __future__ import annotations

from dataclasses import replace

from modelyard.schedule.jobs import JobCard
from modelyard.schedule.view import TenantView
from modelyard.spec.cluster import Cluster


def within_reach(card: JobCard, cluster: Cluster, tenant: TenantView | None) -> JobCard:
    """The same job, asking for what it could have at most; rigid ones ask for what they need."""
    kinds = [kind for kind in cluster.kinds if not card.kinds or kind in card.kinds]
    most = max((cluster.largest_gang(kind, card.worker_devices) for kind in kinds), default=0)
    if tenant is not None and tenant.maximum is not None:
        most = min(most, tenant.maximum)
    most -= most % card.worker_devices
    return replace(card, devices=most) if card.min_devices <= most < card.devices else card
