"""Threads of a program under test that are held up, as by a disk or a bug, while its other threads go on."""

import contextlib
import ctypes
import errno
import os
import pathlib

import pytest

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000

_PTRACE = ctypes.CDLL(None, use_errno=True).ptrace
_PTRACE.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_PTRACE.restype = ctypes.c_long


def threads_of(pid):
    """The main thread first."""
    return sorted(
        (int(entry.name) for entry in pathlib.Path(f"/proc/{pid}/task").iterdir()), key=lambda tid: tid != pid
    )


@contextlib.contextmanager
def frozen(threads):
    """Holds them up. When the program ends meanwhile, leaving the block lets the system take note of it."""
    seized = []
    try:
        for thread in threads:
            if _PTRACE(_SEIZE, thread, None, None) != 0:
                number = ctypes.get_errno()
                if number == errno.ESRCH:
                    continue  # it ended after it was listed
                if number == errno.EPERM:
                    pytest.skip("threads of other processes cannot be held up here (ptrace)")
                raise OSError(number, os.strerror(number))
            seized.append(thread)
            _PTRACE(_INTERRUPT, thread, None, None)
            os.waitpid(thread, _WALL)
        yield
    finally:
        for thread in seized:
            if _PTRACE(_DETACH, thread, None, None) != 0:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(thread, _WALL)  # it ended
