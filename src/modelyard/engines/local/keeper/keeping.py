"""The keeper's life: begin, watch, finish."""

from __future__ import annotations

import errno
import os
import select
import signal
import time

from modelyard.engines.local.keeper import facts, kernel
from modelyard.engines.local.keeper.ending import kill_all, signal_session
from modelyard.engines.local.keeper.groups import Groups, Place, make
from modelyard.engines.local.keeper.log_writer import LogWriter
from modelyard.engines.local.keeper.order import Order
from modelyard.engines.local.keeper.program import NOT_FOUND, NOT_RUNNABLE, fork_program

#: how long a request to end can go unnoticed when whoever made it died before ringing the bell
TICK_SECONDS = 2.0
#: how often memory is looked at where no control group limits it
MEMORY_TICK_SECONDS = 0.5

#: what a program gets when its keeper is told to end, as at the shutdown of a machine
DEFAULT_GRACE_SECONDS = 10.0

#: a disk that stays full this long takes the exit facts with it
EXIT_RETRIES = 60
EXIT_RETRY_SECONDS = 1.0

READ_BYTES = 1 << 16


class Keeper:
    """Keeps one program. Its folder is the current one."""

    def __init__(
        self,
        order: Order,
        groups: Groups,
        places: dict[str, Place],
        unlimited: list[str],
        bell: int,
    ) -> None:
        self._order = order
        self._groups = groups
        self._places = places
        self._unlimited = unlimited
        self._bell = bell
        self._log = LogWriter(facts.LOG, piece_bytes=order.piece_bytes, pieces=order.pieces)
        self._program = 0
        self._output = -1
        self._wakeups = -1
        self._told_to_end = False
        #: when whatever is left is killed; None until somebody asks for the end
        self._deadline: float | None = None
        self._seen_requests: set[str] = set()
        self._killed_for_memory = False
        self._killed = False
        #: at the last look and the one before: the last may have come after the program was killed
        self._machine_kills = (kernel.machine_memory_kills(),) * 2
        self._next_look = 0.0
        self._watched_bytes = 0.0
        self._failure: OSError | None = None

    # -- begin ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the program, or know why it cannot be run."""
        kernel.become_subreaper()
        self._listen_to_signals()
        order = self._order
        self._limit()
        self._output, output = os.pipe()
        os.set_blocking(self._output, False)
        program = fork_program(order.argv, order.environment, order.folder, output, order.umask)
        os.close(output)
        self._program = program.pid
        self._enter_groups()
        facts.write(
            facts.RUNNING,
            {
                "pid": [str(program.pid)],
                "keeper": [str(os.getpid())],
                "started": [repr(time.time())],
                "unlimited": self._unlimited,
            },
        )
        self._failure = program.let_go()
        # Secrets stay in memory no longer than they are needed.
        order.environment.clear()

    def _limit(self) -> None:
        wanted = self._order.wanted
        self._unlimited += make(self._groups, wanted, self._places)
        for index, reason in enumerate(self._unlimited):
            if reason.startswith("memory:"):
                self._watched_bytes = wanted["memory"]
                self._unlimited[index] += f"; looked at every {MEMORY_TICK_SECONDS:g} s instead"

    def _enter_groups(self) -> None:
        try:
            self._groups.enter(self._program)
        except OSError as error:
            self._watched_bytes = self._order.wanted.get("memory", 0.0)
            self._unlimited.append(f"all limits: control groups: {error.strerror}")

    def _listen_to_signals(self) -> None:
        self._wakeups, wakeups = os.pipe()
        os.set_blocking(self._wakeups, False)
        os.set_blocking(wakeups, False)
        signal.set_wakeup_fd(wakeups, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._hear_term)

    def _hear_term(self, *_: object) -> None:
        self._told_to_end = True

    # -- watch ------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Return when the program has ended, or has to."""
        poll = select.poll()
        for handle in (self._output, self._wakeups, self._bell):
            poll.register(handle, select.POLLIN)
        while not self._program_has_ended():
            ready = {handle for handle, _ in poll.poll(1000 * self._pause())}
            if self._output in ready and self._pump() == 0:
                poll.unregister(self._output)
            for handle in {self._wakeups, self._bell} & ready:
                _empty(handle)
            if self._bell in ready or time.monotonic() >= self._next_look:
                self._look()
            if self._told_to_end:
                self._told_to_end = False
                self._end_within(DEFAULT_GRACE_SECONDS)
            if self._has_to_end():
                self._killed = True
                return

    def _pause(self) -> float:
        times = [self._next_look] if self._deadline is None else [self._next_look, self._deadline]
        return max(0.0, min(times) - time.monotonic())

    def _has_to_end(self) -> bool:
        return self._killed_for_memory or (
            self._deadline is not None and time.monotonic() >= self._deadline
        )

    def _program_has_ended(self) -> bool:
        """Reap strangers' children that became ours; leave the program's remains.

        Its number stays its own until everything of its group has been killed.
        """
        while True:
            gone = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if gone is None:
                return False
            if gone.si_pid == self._program:
                return True
            os.waitpid(gone.si_pid, 0)

    def _look(self) -> None:
        """Look for requests to end, and at the use of memory."""
        if not os.path.exists(facts.CLAIM):
            # Somebody removed the yard's folder: nobody could see or stop this task any more.
            self._end_within(DEFAULT_GRACE_SECONDS)
        requests = {name for name in os.listdir(".") if name.startswith(facts.STOP)}
        for name in requests - self._seen_requests:
            self._end_within(int(name.removeprefix(facts.STOP)) / 1000)
        self._seen_requests |= requests
        self._machine_kills = (self._machine_kills[1], kernel.machine_memory_kills())
        if self._watched_bytes:
            family = kernel.descendants(self._program)
            self._killed_for_memory = kernel.memory_is_above(family, self._watched_bytes)
        tick = MEMORY_TICK_SECONDS if self._watched_bytes else TICK_SECONDS
        self._next_look = time.monotonic() + tick

    def _end_within(self, grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        if self._deadline is None:
            self._deadline = deadline
            signal_session(self._program, signal.SIGTERM)
            # One that was paused could not hear it.
            signal_session(self._program, signal.SIGCONT)
        self._deadline = min(self._deadline, deadline)

    def _pump(self) -> int | None:
        """Move what the task has printed to its log: how much, None if there is nothing now."""
        try:
            data = os.read(self._output, READ_BYTES)
        except BlockingIOError:
            return None
        self._log.write(data)
        return len(data)

    # -- finish -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Kill what is left, and then write down how it was; raises when that cannot be."""
        status = kill_all(self._program, self._groups)
        while self._pump():
            pass
        how = self._how(status)
        self._log.close()
        self._groups.remove()
        for _ in range(EXIT_RETRIES):
            try:
                facts.write(facts.EXIT, how)
            except FileNotFoundError:
                raise
            except OSError:
                self._log.drop_oldest()
                time.sleep(EXIT_RETRY_SECONDS)
            else:
                return
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _how(self, status: int | None) -> facts.Facts:
        how = {"at": [repr(time.time())], "asked": [str(int(self._deadline is not None))]}
        code: int | None = None
        number: int | None = None
        if self._failure is not None:
            code = NOT_FOUND if self._failure.errno == errno.ENOENT else NOT_RUNNABLE
            name = os.fsdecode(self._order.argv[0])
            self._log.write(f"yard: cannot run '{name}': {self._failure.strerror}\n".encode())
        elif status is not None and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
        elif status is not None:
            code = os.waitstatus_to_exitcode(status)
        if code is not None:
            how["code"] = [str(code)]
        if number is not None:
            how["signal"] = [str(number)]
        how["memory"] = [str(int(code != 0 and self._ran_out_of_memory(number)))]
        return how

    def _ran_out_of_memory(self, number: int | None) -> bool:
        kills = self._groups.memory_kills()
        if self._killed_for_memory or kills:
            return True
        # Without a group of its own: it was killed, by none of us, about when the machine killed
        # somebody for want of memory.
        somebody = kernel.machine_memory_kills() != self._machine_kills[0]
        return kills is None and number == signal.SIGKILL and not self._killed and somebody


def _empty(handle: int) -> None:
    try:
        while os.read(handle, 512):
            pass
    except BlockingIOError:
        return
