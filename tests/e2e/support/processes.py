"""Programs under test: started in process groups of their own, with deadlines, and gone when the tests are."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

# Generous, because builds may share the machine: a deadline is there to end a hang, not to measure.
PATIENCE = 120.0


def wait_until(condition, what, seconds=PATIENCE, pause=0.02):
    """The first true value of condition(); an AssertionError that says what was waited for after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(pause)


def children_of(pid):
    """Process ids of the direct children."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # ended meanwhile
        # The name in parentheses may hold anything, so count from its end.
        if int(stat[stat.rindex(")") + 2 :].split()[1]) == pid:
            found.append(int(entry.name))
    return found


# A test run that is killed takes its programs along. The main thread starts all of them, and this signal depends on the
# thread. setpriv does it in place of a preexec_fn, for which Python would fork: in a process that has loaded libtorch,
# that takes longer than to start distilld. Its path is absolute because a test may give the program another PATH.
_WITH_PARENT = (shutil.which("setpriv"), "--pdeathsig", "KILL", "--")


class Process:
    """A program, its exit code, and what it wrote (to files: a full pipe would stop it). `limits` is called in the new
    process: what it sets there the program's children inherit."""

    def __init__(
        self, command, log_stem, cwd=None, env=None, stdin=subprocess.DEVNULL, stdout=None, limits=None, pass_fds=()
    ):
        self.command = [str(part) for part in command]
        self.out_file = pathlib.Path(f"{log_stem}.out")
        self.err_file = pathlib.Path(f"{log_stem}.err")
        environment = {**os.environ, **(env or {})}
        with open(self.out_file, "wb") as out, open(self.err_file, "wb") as err:
            self._popen = subprocess.Popen(
                [*_WITH_PARENT, *self.command],
                stdin=stdin,
                stdout=stdout if stdout is not None else out,
                stderr=err,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                pass_fds=pass_fds,
                preexec_fn=limits,
            )
        self.pid = self._popen.pid

    @property
    def out(self):
        return self.out_file.read_text(errors="replace")

    @property
    def err(self):
        return self.err_file.read_text(errors="replace")

    @property
    def code(self):
        """Exit code, None while it runs."""
        return self._popen.poll()

    def send(self, number):
        self._popen.send_signal(number)

    def wait(self, seconds=PATIENCE):
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.destroy()
            raise AssertionError(f"did not end within {seconds:g} s: {self.describe()}") from None

    def expect(self, code, seconds=PATIENCE):
        """Waits for the end and checks the exit code."""
        self.wait(seconds)
        assert self.code == code, f"exit code {self.code}, {code} was expected: {self.describe()}"
        return self

    def wait_for_line(self, pattern, seconds=PATIENCE):
        """The first match in stdout."""

        def look():
            found = re.search(pattern, self.out)
            assert found or self.code is None, f"ended with {self.code} before it said '{pattern}': {self.describe()}"
            return found

        return wait_until(look, f"'{pattern}' in the output of {' '.join(self.command)}", seconds)

    def workers(self, count, seconds=PATIENCE):
        """Process ids of the children, once they are so many and run another program: before that they have our
        environment and our cores."""

        def started():
            with contextlib.suppress(OSError):  # ended meanwhile
                ours = os.readlink(f"/proc/{self.pid}/exe")
                found = [child for child in children_of(self.pid) if os.readlink(f"/proc/{child}/exe") != ours]
                return found if len(found) == count else None

        return wait_until(started, f"{count} children of {self.pid}", seconds)

    def worker(self, seconds=PATIENCE):
        """Process id of the only child."""
        return self.workers(1, seconds)[0]

    def destroy(self):
        """Kills the program and what it started."""
        for child in children_of(self.pid):  # workers lead groups of their own
            _kill_group(child)
        _kill_group(self.pid)
        self._popen.wait()

    def describe(self):
        return f"{' '.join(self.command)}\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


def _kill_group(pid):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class Programs:
    """Starts distilld. stop_all() ends whatever is still there."""

    def __init__(self, folder, logs):
        self.folder = pathlib.Path(folder)
        self._logs = pathlib.Path(logs)
        self._started = []

    def start(self, *arguments, program="distilld", **options):
        serves = arguments[:1] == ("serve",) and "--data-dir" in arguments
        assert not serves or "--listen" in arguments, "a test's service listens where nobody else does: --listen"
        stem = self._logs / f"{len(self._started):03d}-{pathlib.Path(program).name}-{arguments[0] if arguments else ''}"
        process = Process([self.folder / program, *arguments], stem, **options)
        self._started.append(process)
        return process

    def run(self, *arguments, code=0, seconds=PATIENCE, **options):
        """Runs to the end and checks the exit code."""
        return self.start(*arguments, **options).expect(code, seconds)

    def teacher(self, folder, *flags, listen="127.0.0.1:0"):
        """A `distilld teacher` that is ready; its `url` is the endpoint."""
        # Chat templates are rendered by the Python that has the packages of the tests.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        process = self.start("teacher", folder, "--listen", listen, "--threads", "1", *flags, env={"PATH": path})
        process.url = process.wait_for_line(r"ready on (http://\S+)").group(1)
        return process

    def service(self, data_dir, *flags, listen="127.0.0.1:0", **options):
        """A `distilld serve` that is ready; its `url` is the base of the REST API."""
        process = self.start("serve", "--listen", listen, "--data-dir", data_dir, *flags, **options)
        process.url = process.wait_for_line(r"listening on (http://\S+)").group(1)
        process.data_dir = pathlib.Path(data_dir)
        return process

    def stop_all(self):
        for process in reversed(self._started):
            if process.code is None:
                process.destroy()
            elif process.code == -signal.SIGKILL:
                print(f"killed, perhaps by the kernel: {process.describe()}")  # shown if the test failed
