"""`docker` without an engine: what docs/docker.md says to type, with the programs in the place of the image.

A container is a process here. Its root is the folder root/ of DISTILLD_STAND_IN: who uses this writes that folder in
front of the paths in containers (`contained`), and volumes are links there. Ports are those of the machine, so that a
network of its own is wanted. Nothing is confined, and what is no program of ours is the machine's.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
TAKES_VALUE = {"--name", "--tmpfs", "-p", "-e", "-v", "--entrypoint", "-f", "-t", "--target", "--user"}
SECONDS = 60
# What the images of compose.yaml run that say it themselves.
PROGRAMS = {"teacher-model": "sh", "teacher": "distilld", "distilld": "distilld", "prometheus": "prometheus"}


def contained(text, root):
    """With the paths in containers below `root`, and this machine for the names of containers."""
    paths = "data|models|artifacts|demo|from|job.json|prometheus|etc/prometheus"
    text = re.sub(rf"(?<![\w.}}*]){'/'}(?=(?:{paths})\b)", f"{root}/", text)
    return re.sub(r"\b(?:teacher|distilld)(?=:\d{4})", "127.0.0.1", text)


def interpolated(text):
    """A compose file with its variables, or what stands behind :- where they are not set."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: os.environ.get(*found.groups()), text)


def image_command():
    text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    return json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE).group(1))


class Engine:
    def __init__(self, home):
        self.home = pathlib.Path(home)
        self.root = self.home / "root"
        self.root.mkdir(exist_ok=True)

    def words(self, words):
        return [contained(str(word), self.root) for word in words]

    def mount(self, volume, folder="."):
        source, target = volume.split(":")[:2]
        if "/" in source:
            source = pathlib.Path(folder, source).resolve()
            assert source.exists(), f"docker: there is no {source}"
        else:
            source = self.home / "volumes" / source
            source.mkdir(parents=True, exist_ok=True)
        target = pathlib.Path(contained(target, self.root))
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_symlink() or target.readlink() != source:  # others may be looking through it
            target.unlink(missing_ok=True)
            target.symlink_to(source)

    def container(self, name, command, environment, detach=False):
        """Exit code of what has ended, 0 of what goes on in the background."""
        # A container has its own variables alone.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DISTILLD_")}
        log = open(self.home / f"{name}.log", "wb") if detach else None  # noqa: SIM115 the process's own
        process = subprocess.Popen(
            command,
            cwd=self.root / "artifacts" if (self.root / "artifacts").exists() else self.root,
            env={**kept, **environment},
            stdout=log,
            stderr=log,
            start_new_session=detach,
        )
        if not detach:
            return process.wait()
        (self.home / f"{name}.pid").write_text(f"{process.pid}")
        return 0

    def stop(self, name):
        pid = int((self.home / f"{name}.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        for _ in range(SECONDS * 20):
            state = pathlib.Path(f"/proc/{pid}/stat")
            if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
                return 0
            time.sleep(0.05)
        raise SystemExit(f"docker: {name} does not end")

    def service(self, file, name, words=None, detach=False):
        """A service of a compose file, with other words than its own perhaps."""
        whole = yaml.safe_load(interpolated(pathlib.Path(file).read_text(encoding="utf-8")))
        service = whole["services"][name]
        for volume in service["volumes"]:
            known = volume.split(":")[0] in whole["volumes"]
            self.mount(f"{whole['name']}_{volume}" if known else volume, pathlib.Path(file).parent)
        entry = service.get("entrypoint", ["tini", "--", PROGRAMS[name]])
        command = [*entry[2:], *(words or service.get("command", []))]
        return self.container(name, self.words(command), {}, detach)


def options_of(arguments):
    """([(flag, value or None)], what stands behind the flags)"""
    flags = []
    while arguments and arguments[0].startswith("-"):
        flag = arguments.pop(0)
        flags.append((flag, arguments.pop(0) if flag in TAKES_VALUE else None))
    return flags, arguments


def variables(flags):
    given = [value for flag, value in flags if flag == "-e"]
    return dict(one.split("=", 1) if "=" in one else (one, os.environ[one]) for one in given)


def run(engine, arguments):
    flags, (image, *words) = options_of(arguments)
    assert image.startswith("distilld:")
    for flag, value in flags:
        if flag == "-v":
            engine.mount(value)
    given = dict(flags)
    command = [given.get("--entrypoint", "distilld"), *(words or engine.words(image_command()))]
    return engine.container(given.get("--name", "nameless"), command, variables(flags), "--detach" in given)


def copy(source, target):
    """`docker cp`: into a folder that is there, or as it is called."""
    target = pathlib.Path(target)
    shutil.copytree(source, target / pathlib.Path(source).name if target.is_dir() else target)
    return 0


def compose(engine, arguments):
    flags, (verb, *rest) = options_of(arguments)
    file = dict(flags)["-f"]
    flags, rest = options_of(rest)
    if verb == "run":
        return engine.service(file, rest[0], rest[1:])
    if verb == "up":
        for name in ("prometheus", "distilld", "teacher"):
            if (engine.home / f"{name}.pid").exists():
                engine.stop(name)
        failed = engine.service(file, "teacher-model")
        for name in ("teacher", "distilld", "prometheus"):
            failed = failed or engine.service(file, name, detach=True)
        return failed
    if verb == "cp":
        return copy(rest[0].partition(":")[2], rest[1])
    raise SystemExit(f"docker: no compose {verb} here")


def main():
    engine = Engine(os.environ["DISTILLD_STAND_IN"])
    verb, *arguments = sys.argv[1:]
    if verb == "build":
        assert pathlib.Path(dict(options_of(arguments)[0])["-f"]).is_file()
        return 0
    if verb == "run":
        return run(engine, arguments)
    if verb == "exec":
        flags, (_, *words) = options_of(arguments)
        return engine.container("exec", words, variables(flags))
    if verb == "cp":
        return copy(arguments[0].partition(":")[2], arguments[1])
    if verb == "stop":
        return engine.stop(options_of(arguments)[1][0])
    if verb == "compose":
        return compose(engine, arguments)
    raise SystemExit(f"docker: no {verb} here")


if __name__ == "__main__":
    sys.exit(main())
