"""Moments at which a kill is worth something: a process is stopped, looked at, and goes on if it is not there yet."""

import os
import pathlib
import re
import signal
import time

# What tensor operations are done by: libtorch itself and what it may call.
ARITHMETIC = re.compile(r"lib(torch_cpu|mkl|dnnl|openblas|blas)[\w.-]*\.so")
PAUSE = 0.001


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def alive(pid):
    try:
        return _state(pathlib.Path(f"/proc/{pid}/stat")) != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before and after it was opened
        return False


def _state(stat):
    # The name in parentheses may hold anything, so count from its end.
    return stat.read_text().rpartition(")")[2].split()[0]


def _tasks(pid):
    return list(pathlib.Path(f"/proc/{pid}/task").iterdir())


def is_computing(pid):
    """Whether the program counter of a thread of the stopped process is in the code of tensor operations."""
    ranges = []
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if ARITHMETIC.search(line):
            first, last = line.split()[0].split("-")
            ranges.append((int(first, 16), int(last, 16)))
    for task in _tasks(pid):
        fields = (task / "syscall").read_text().split()
        if fields[0] == "-1":  # not in a system call; the last field is the program counter
            counter = int(fields[-1], 16)
            if any(first <= counter < last for first, last in ranges):
                return True
    return False


def is_committing(folder):
    """Whether a checkpoint is being written: its folder has its temporary name."""
    return any(folder.glob(".tmp-step-*"))


def kill_when(pid, look, stop_for=lambda: True):
    """Kills the process at an instant at which look() is true of it while it stands still. False: it ended before.

    stop_for() is asked while the process runs, and has to be cheap: only where it is true is the process stopped.
    """
    try:
        while alive(pid):
            if stop_for():
                os.kill(pid, signal.SIGSTOP)
                while alive(pid) and any(_state(task / "stat") != "T" for task in _tasks(pid)):
                    time.sleep(PAUSE / 10)
                if look():
                    kill(pid)
                    return True
                os.kill(pid, signal.SIGCONT)
                time.sleep(PAUSE)
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended while it was looked at
    return False
