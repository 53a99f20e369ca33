"""A network of its own for a command, with nothing but loopback: it may use the ports that people would."""

import shutil
import subprocess
import sys

LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
os.execvp(sys.argv[1], sys.argv[1:])
"""


def own_network():
    """The words in front of a command that gives it such a network; none where the system permits none."""
    for words in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        command = [*words, sys.executable, "-c", LOOPBACK_UP]
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            return command
    return []
