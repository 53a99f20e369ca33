"""What stands between a service and its workers in other places: their relays, and a cable that can be cut."""

import contextlib
import pathlib
import signal
import socket
import threading

from support.processes import wait_until
from support.rest import Rest, free_port


class Cable:
    """A TCP proxy of loopback connections, which cut() breaks. None gets through while it is `severed`."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.connections = 0
        self.open = []
        self.severed = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                if self.severed:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self.target, timeout=10)
                except OSError:  # the service is away
                    near.close()
                    continue
                far.settimeout(None)
                self.connections += 1
                self.open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(source, sink), daemon=True).start()

    @staticmethod
    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self):
        for end in self.open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open = []

    def close(self):
        self.listener.close()
        self.cut()


def relays(folder):
    """Process ids of the relays that this folder's services have started, and still run."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if b"attempt" in words and any(str(folder).encode() in word for word in words):
                found.append(int(entry.parent.name))
    return found


class OnSlurm:
    """A service on the cluster, at a port that stays. `cable`: its relays are at the other end of one."""

    def __init__(self, distilld, cluster, folder, cable=False, **variables):
        self.distilld = distilld
        self.cluster = cluster
        self.environment = {**cluster.environment(), **variables}
        self.folder = folder
        port = free_port()
        self.listen = f"127.0.0.1:{port}"
        self.cable = Cable(port) if cable else None
        self.start()

    def start(self):
        flags = ("--launcher", "slurm", "--launcher-url", self.cable.url if self.cable else f"http://{self.listen}")
        self.process = self.distilld.service(self.folder / "service", *flags, listen=self.listen, env=self.environment)
        self.rest = Rest(self.process.url)

    def kill(self):
        self.process.send(signal.SIGKILL)
        self.process.wait()

    def wait_step(self, job, step):
        return wait_until(lambda: (self.rest.job(job)["progress"] or {"step": 0})["step"] >= step, f"step {step}")
