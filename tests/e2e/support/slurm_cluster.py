"""A Slurm cluster of virtual nodes on this machine: munged, slurmctld and a slurmd per node, in a folder.

Needs root, and Debian's packages slurmctld, slurmd, slurm-client and munge. Every node is this machine under another
name and port.
"""

import contextlib
import os
import pathlib
import secrets
import shutil
import subprocess
import time

from support.rest import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo")


def missing():
    """Why there can be no cluster; empty: there can."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"Slurm is not installed: {', '.join(absent)}"
    return "" if os.geteuid() == 0 else "slurmd needs root"


class SlurmCluster:
    """Started by the constructor, ended by stop()."""

    def __init__(self, folder, nodes=("n1", "n2"), cores=2, **settings):
        """`settings`: lines of slurm.conf."""
        self.folder = pathlib.Path(folder)
        self.nodes = list(nodes)
        self.daemons = {}
        self.config = self.folder / "slurm.conf"
        controller, *ports = free_ports(1 + len(self.nodes))
        for name in ("state", "spool", "log", "munge"):
            (self.folder / name).mkdir(mode=0o755, parents=True)
        self.write_config(controller, ports, cores, settings)
        try:
            self.start_munge()
            self.start_controller()
            for node in self.nodes:
                self.start_node(node)
            self.wait_for("idle", *self.nodes)
        except BaseException:
            self.stop()
            raise

    def write_config(self, controller, ports, cores, settings):
        lines = {
            "ClusterName": "virtual",
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": controller,
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.folder / 'munge' / 'socket'}",
            "CredType": "cred/munge",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": self.folder / "spool" / "%n",
            "SlurmctldPidFile": self.folder / "slurmctld.pid",
            "SlurmdPidFile": self.folder / "slurmd.%n.pid",
            "SlurmctldLogFile": self.folder / "log" / "slurmctld",
            "SlurmdLogFile": self.folder / "log" / "slurmd.%n",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SlurmdParameters": "config_overrides",
            "SchedulerParameters": "sched_interval=1,batch_sched_delay=0",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "KillWait": 10,
            **settings,
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        for node, port in zip(self.nodes, ports, strict=True):
            text += (
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={cores} State=UNKNOWN\n"
            )
        text += f"PartitionName=main Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP\n"
        self.config.write_text(text)

    def start_munge(self):
        place = self.folder / "munge"
        key = place / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = [f"--{name}-file={place / name}" for name in ("pid", "log", "seed")]
        # --force: the folder of a test may be below one that others can write to.
        self.start(
            "munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place / 'socket'}", *files
        )
        self.wait_until(lambda: (place / "socket").exists(), "munged's socket")

    def start_controller(self):
        self.start("slurmctld", "slurmctld", "-D", "-f", self.config)

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-N", node, "-f", self.config)

    def start(self, name, *command):
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen([*map(str, command)], stdout=out, stderr=out)

    def kill(self, name):
        """A daemon, and nothing of what it has started."""
        self.daemons[name].kill()
        self.daemons[name].wait()

    def environment(self):
        return {**os.environ, "SLURM_CONF": str(self.config)}

    def run(self, *command, seconds=60, env=None):
        """One of Slurm's commands; its output, and an error if it fails."""
        done = subprocess.run(
            [*map(str, command)], env={**self.environment(), **(env or {})}, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def states(self):
        listed = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
        return dict(line.split() for line in listed.splitlines())

    def wait_for(self, state, *nodes):
        self.wait_until(lambda: all(self.states().get(node) == state for node in nodes), f"{nodes} to be {state}")

    def wait_until(self, condition, what, seconds=60):
        give_up = time.monotonic() + seconds
        while True:
            try:
                if condition():
                    return
            except (AssertionError, subprocess.TimeoutExpired):  # the controller is not up yet
                pass
            assert time.monotonic() < give_up, f"waited for {what}\n{self.logs()}"
            time.sleep(0.1)

    def logs(self):
        files = sorted((self.folder / "log").iterdir())
        ends = ["\n".join(file.read_text(errors="replace").splitlines()[-15:]) for file in files]
        return "\n".join(f"--- {file.name}\n{end}" for file, end in zip(files, ends, strict=True))

    def clear(self):
        """Ends all jobs: a relay whose last words no service has acknowledged waits for ten minutes."""
        self.run("scancel", "--signal=KILL", "--full", "--user=root")

    def stop(self):
        with contextlib.suppress(AssertionError, OSError, subprocess.TimeoutExpired):  # there may be no controller
            self.clear()
        for daemon in reversed(self.daemons.values()):
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
