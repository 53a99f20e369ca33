"""What the service tells systemd (sd_notify): that it is ready, that it is alive, that it stops."""

import contextlib
import os
import signal
import socket
import time

import pytest
from support.frozen_threads import frozen, threads_of
from support.processes import PATIENCE
from support.rest import Rest

INTERVAL = 3.0  # of the watchdog: the service says it is alive each half of it


class Supervisor:
    """The other end of NOTIFY_SOCKET."""

    def __init__(self, name):
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def next(self, seconds=PATIENCE):
        """The lines of the next datagram; none within the time: an empty list."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            return self._socket.recv(4096).decode().split("\n")
        except TimeoutError:
            return []

    def wait_for(self, line, seconds=PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines = self.next(deadline - time.monotonic())
            if line in lines:
                return lines
        raise AssertionError(f"no {line} within {seconds:g} s")

    def within(self, seconds):
        """All lines of a time."""
        lines, deadline = [], time.monotonic() + seconds
        while time.monotonic() < deadline:
            lines += self.next(deadline - time.monotonic())
        return lines

    def close(self):
        self._socket.close()


@pytest.fixture
def supervisor():
    made = Supervisor(f"@distilld-test-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.close()


def start(distilld, tmp_path, supervisor, **variables):
    environment = {"NOTIFY_SOCKET": supervisor.name, "WATCHDOG_USEC": str(int(INTERVAL * 1e6)), **variables}
    return distilld.start("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "service", env=environment)


def test_ready_alive_and_stopping_are_told(distilld, tmp_path, supervisor):
    service = start(distilld, tmp_path, supervisor)
    ready = supervisor.wait_for("READY=1")
    url = service.wait_for_line(r"listening on (http://\S+)", seconds=1).group(1)
    assert f"STATUS=listening on {url}" in ready
    assert Rest(url).get("/readyz").status == 200
    for _ in range(3):
        supervisor.wait_for("WATCHDOG=1")
    begin = time.monotonic()
    supervisor.wait_for("WATCHDOG=1")
    supervisor.wait_for("WATCHDOG=1")
    assert time.monotonic() - begin > INTERVAL / 2, "more often than each half of the interval"
    service.send(signal.SIGTERM)
    assert any(line.startswith("STATUS=stopping") for line in supervisor.wait_for("STOPPING=1"))
    service.expect(0)


@pytest.mark.parametrize("stuck", ["requests", "jobs"])
def test_a_service_that_is_stuck_is_not_alive(distilld, tmp_path, supervisor, stuck):
    service = start(distilld, tmp_path, supervisor)
    supervisor.wait_for("READY=1")
    supervisor.wait_for("WATCHDOG=1")
    main, *others = threads_of(service.pid)
    with frozen([main] if stuck == "requests" else others):
        supervisor.within(INTERVAL / 2 + 0.5)  # what was under way
        assert supervisor.within(2 * INTERVAL) == []
        if stuck == "jobs":
            url = service.wait_for_line(r"listening on (http://\S+)", seconds=1).group(1)
            assert Rest(url).get("/healthz").status == 200, "a timer on this thread would have gone on"
    supervisor.wait_for("WATCHDOG=1")
    service.send(signal.SIGTERM)
    service.expect(0)


def test_the_watchdog_of_another_process_is_not_ours(distilld, tmp_path, supervisor):
    service = start(distilld, tmp_path, supervisor, WATCHDOG_PID="1")
    supervisor.wait_for("READY=1")
    assert supervisor.within(INTERVAL) == []
    service.send(signal.SIGTERM)
    service.expect(0)


def test_a_socket_in_the_file_system_and_one_that_is_gone(distilld, tmp_path, tmp_path_factory):
    name = str(tmp_path / "notify")
    with contextlib.suppress(OSError):  # too long a path here
        supervisor = Supervisor(name)
        service = start(distilld, tmp_path, supervisor)
        supervisor.wait_for("READY=1")
        supervisor.close()
        os.unlink(name)
        time.sleep(INTERVAL)
        assert service.code is None, "nobody listens any more, which is no reason to end"
        service.send(signal.SIGTERM)
        service.expect(0)
