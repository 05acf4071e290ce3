"""Trees of numbers, texts and tensors over a connection whose both ends know the job's secret.

Descriptions are JSON and tensors bytes, as in `train/state.py`: nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import os
import socket
from multiprocessing import ProcessError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any, TypeAlias

import torch

from modelyard.train.compress.feedback import size_of
from modelyard.train.state import pack, skeleton

#: A description lists names and shapes; a longer one is not ours.
LONGEST_DESCRIPTION = 1 << 28

Line: TypeAlias = "Connection[bytes, bytes]"


def reach(address: tuple[str, int], token: str) -> Line:
    """A connection to a server; `OSError` where there is none, or where it is not ours."""
    line: Line = Client(address)
    _prove(line, token, first=False)
    return line


def admit(line: Line, token: str) -> None:
    """Let somebody in who knows the secret; `OSError` for anybody else."""
    _prove(line, token, first=True)


def hang_up(line: Line) -> None:
    """End a connection that another thread may be waiting on; that thread closes it."""
    with contextlib.suppress(OSError), _socket(line) as same:
        same.shutdown(socket.SHUT_RDWR)


def _socket(line: Line) -> socket.socket:
    return socket.socket(fileno=os.dup(line.fileno()))


def _prove(line: Line, token: str, *, first: bool) -> None:
    # A tree is several writes: without this each would wait for the other side to acknowledge.
    with _socket(line) as same:
        same.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for turn in (first, not first):
            (deliver_challenge if turn else answer_challenge)(line, token.encode())
    except (EOFError, AssertionError, ValueError, ProcessError) as error:
        line.close()
        raise OSError(f"the other side does not know the job's secret: {error}") from error


def send(line: Line, tree: object) -> int:
    """Send a tree; its bytes."""
    description, tensors = pack(tree)
    line.send_bytes(description)
    for tensor in tensors:
        if tensor.numel():
            line.send_bytes(_bytes(tensor))
    return len(description) + size_of(tuple(tensors))


def receive(line: Line) -> Any:
    """The tree that the other side sent; `EOFError` when it is gone."""
    return receive_counted(line)[0]


def receive_counted(line: Line) -> tuple[Any, int]:
    """The tree that the other side sent, and its bytes."""
    description = line.recv_bytes(LONGEST_DESCRIPTION)
    tree, tensors = skeleton(description)
    for tensor in tensors:
        if tensor.numel():
            line.recv_bytes_into(_bytes(tensor))
    return tree, len(description) + size_of(tuple(tensors))


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
