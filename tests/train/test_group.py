"""Groups of members: one that cannot be built never holds up the next."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")

import torch

from modelyard.train import group
from modelyard.train.conductor.machine import OTHER_STALLS
from modelyard.train.conductor.messages import Generation, Peer
from modelyard.train.conductor.progress import Settings
from modelyard.train.group import Disturbed, Group, connect, open_store

#: In which whatever waits for nobody has ended.
PATIENCE_SECONDS = 15.0


def generation(number: int, port: int, *workers: str) -> Generation:
    peers = tuple(Peer(name, "127.0.0.1", port, 0) for name in workers)
    return Generation(number, 0, 0, 1, peers, source=-1, lineage=0)


def test_a_survivor_goes_on_while_it_still_waits_for_the_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two of three die at once, and the conductor hears of one death after the other: between them
    # there is a generation whose second member never comes.
    monkeypatch.setattr(group, "LONGEST_SECONDS", 20.0)
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


def test_whoever_lets_go_of_a_failed_group_waits_for_nobody() -> None:
    # One of three dies, and what waits for it fails. Something else is in flight meanwhile that
    # waits for the other survivor only, who has left as well: nothing ends that but its time.
    store, names = open_store("127.0.0.1"), ("survivor", "other", "dies")
    made = generation(1, store.port, *names)

    def join(name: str) -> Group:
        return connect(made, name, store, threading.Event())

    with ThreadPoolExecutor() as pool:
        groups = dict(zip(names, pool.map(join, names), strict=True))
    survivor = groups["survivor"]
    works = [survivor.broadcast_begin(torch.ones(9), root=names.index(one)) for one in names[:0:-1]]
    del groups["dies"]
    with pytest.raises(Disturbed):
        survivor.finish(works)
    del survivor, works
    leaving = threading.Thread(target=groups.clear, daemon=True)
    leaving.start()
    leaving.join(PATIENCE_SECONDS)
    assert not leaving.is_alive()


def test_groups_that_were_left_behind_are_let_go_when_their_work_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group, "_left_behind", [])
    store = open_store("127.0.0.1")
    works: list[Future[None]] = [Future() for _ in range(3)]
    groups = [
        connect(generation(number, store.port, "a"), "a", store, threading.Event())._backend
        for number in range(1, 4)
    ]
    for one, work in zip(groups, works, strict=True):
        group._leave_behind(one, [work])
        group._leave_behind(one, [work])
    assert [one for one, _ in group._left_behind] == groups
    works[0].set_result(None)
    group._leave_behind(groups[2], works[2:])
    assert [one for one, _ in group._left_behind] == groups[1:]


def test_members_may_come_to_a_sum_long_after_each_other() -> None:
    # Who is too late is for the conductor to judge: a constant here would overrule it.
    assert OTHER_STALLS * Settings(batch=1, steps=1).stall_seconds < group.LONGEST_SECONDS
