"""A search that looks at the front of a long queue only finds what a search of all finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelyard.control.knowledge import Estimate, LiveKnowledge
from modelyard.schedule.jobs import JobBook, JobCard, JobTable
from modelyard.schedule.view import TenantView, View
from modelyard.schedule.yard import elastic as searching
from modelyard.schedule.yard.elastic import Sizing, Standing, elastic
from modelyard.spec.allocation import Allocation
from modelyard.spec.cluster import uniform_cluster

CURVES = (((1, 1.0), (2, 1.9), (4, 3.0)), ((1, 2.0), (2, 3.0)), ())


@st.composite
def crowds(draw: st.DrawFn) -> tuple[View, Standing]:
    """Far more waiting jobs than devices, in few kinds, some of limited tenants."""
    cluster = uniform_cluster(draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    book = JobBook(cluster.kinds)
    count = draw(st.integers(8, 40))
    for number in range(count):
        smallest = draw(st.integers(1, 2))
        card = JobCard(
            id=f"j{number:02d}",
            submitted=float(number),
            devices=4,
            min_devices=smallest,
            max_devices=draw(st.sampled_from([smallest, 4])),
            tenant=draw(st.sampled_from(["red", "blue"])),
            priority=draw(st.sampled_from([0, 0, 0, 1])),
        )
        book.add(card, LiveKnowledge(Estimate(curve=draw(st.sampled_from(CURVES))), smallest))
    limits = {"red": TenantView("red", maximum=1)} if draw(st.booleans()) else {}
    available = cluster.capacity.copy()
    view = View(
        now=1000.0,
        cluster=cluster,
        jobs=JobTable(book, np.arange(count), 1000.0),
        available=available,
        free=available.copy(),
        tenants=limits,
        round_seconds=draw(st.sampled_from([0.0, 60.0])),
        restart_seconds=draw(st.sampled_from([0.0, 30.0])),
    )
    # No two are worth the same: of equals any may be chosen.
    worth = np.array(draw(st.permutations(range(1, count + 1))), dtype=float)
    lengths = st.lists(st.floats(1.0, 1e5), min_size=count, max_size=count)
    known = st.lists(st.booleans(), min_size=count, max_size=count)
    return view, Standing(
        worth, np.zeros(count), np.array(draw(lengths)), told=np.array(draw(known))
    )


@given(crowds())
def test_nobody_behind_the_front_of_the_queue_matters(crowd: tuple[View, Standing]) -> None:
    view, standing = crowd
    assert elastic(view, standing, Sizing()) == _search_of_all(view, standing)


def _search_of_all(view: View, standing: Standing) -> dict[int, Allocation]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "_contenders", lambda view, *_: range(len(view.jobs)))
        return elastic(view, standing, Sizing())
