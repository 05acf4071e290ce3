"""A worker's line to its conductor, whose part is played here with a plain socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

pytest.importorskip("msgspec", reason="training needs msgspec: install the extra 'train'")

from modelyard.train.conductor.messages import Dismissed, Generation, Hello, Peer, line
from modelyard.train.member import Member, Standing

SOON, PATIENCE = 0.5, 30.0


@dataclass
class Conductor:
    """Listens, and says what it is told to say."""

    listening: socket.socket
    connections: list[socket.socket] = field(default_factory=list)

    def greeted(self, seconds: float = PATIENCE) -> None:
        """Wait for a worker that introduces itself."""
        self.listening.settimeout(seconds)
        connection, _ = self.listening.accept()
        self.connections.append(connection)
        with connection.makefile("rb") as lines:
            assert b'"hello"' in lines.readline()

    def say(self, message: Generation | Dismissed) -> None:
        self.connections[-1].sendall(line(message))


@pytest.fixture
def conductor() -> Iterator[Conductor]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        conductor = Conductor(listening)
        yield conductor
        for connection in conductor.connections:
            connection.close()


@pytest.fixture
def member(conductor: Conductor) -> Iterator[Member]:
    hello = Hello("secret", "w", "node", "127.0.0.1", 1, 0, -1, 0)
    address = conductor.listening.getsockname()
    standing = Standing(applied=0, pending=-1, lineage=0)
    with Member(address, hello=hello, standing=lambda: standing, beat_seconds=60.0) as member:
        yield member


def generation(number: int) -> Generation:
    peers = (Peer("w", "127.0.0.1", 1, 0),)
    return Generation(number, 0, 0, 1, peers, source=-1, lineage=0)


def test_one_that_was_left_behind_comes_again_when_its_loop_gets_on(
    conductor: Conductor, member: Member
) -> None:
    conductor.greeted()
    conductor.say(generation(1))
    assert member.next_generation().number == 1
    # Its loop computes, or hangs, when the others go on without it.
    member.disturbed.clear()
    conductor.say(Dismissed("its step takes too long", again=True))
    assert member.disturbed.wait(PATIENCE)
    with pytest.raises(TimeoutError):
        conductor.greeted(SOON)
    found: list[int] = []
    loop = threading.Thread(target=lambda: found.append(member.next_generation().number))
    loop.start()
    conductor.greeted()
    conductor.say(generation(3))
    loop.join()
    assert found == [3]


def test_one_whose_conductor_died_comes_again_at_once(conductor: Conductor, member: Member) -> None:
    conductor.greeted()
    conductor.say(generation(1))
    assert member.next_generation().number == 1
    conductor.connections[-1].close()
    conductor.greeted()
