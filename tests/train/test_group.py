"""Groups of members: one that cannot be built never holds up the next."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

from modelyard.train import group
from modelyard.train.conductor.messages import Generation, Peer
from modelyard.train.group import Disturbed, connect, open_store


def generation(number: int, port: int, *workers: str) -> Generation:
    peers = tuple(Peer(name, "127.0.0.1", port, 0) for name in workers)
    return Generation(number, 0, 0, 1, peers, source=-1, lineage=0)


def test_a_survivor_goes_on_while_it_still_waits_for_the_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two of three die at once, and the conductor hears of one death after the other: between them
    # there is a generation whose second member never comes.
    monkeypatch.setattr(group, "ABANDONED_SECONDS", 20.0)
    store, disturbed = open_store("127.0.0.1"), threading.Event()
    watching = store.clone()
    keys = watching.num_keys()

    def join_the_dead() -> None:
        with pytest.raises(Disturbed):
            connect(generation(1, store.port, "a", "dead"), "a", store, disturbed)

    first = threading.Thread(target=join_the_dead)
    first.start()
    while watching.num_keys() == keys:
        pass  # until it has told its address, and asks for that of the other
    (building,) = [one for one in threading.enumerate() if one.name == "connect"]
    disturbed.set()
    first.join()
    alone = connect(generation(2, store.port, "a"), "a", store, threading.Event())
    assert alone.size == 1
    assert building.is_alive()
