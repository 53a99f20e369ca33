"""Lines of files that may be packed by gzip or zstd, the latter by its program."""

import contextlib
import gzip
import subprocess


@contextlib.contextmanager
def piped(command, **ends):
    process = subprocess.Popen(command, **ends)
    stream = process.stdout or process.stdin
    try:
        yield stream
        with contextlib.suppress(BrokenPipeError):
            stream.close()
        if process.wait() != 0:
            raise OSError(f"{' '.join(map(str, command))}: failed")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def opened(path):
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(path, "rb")
    if magic == b"\x28\xb5\x2f\xfd":
        return piped(["zstd", "-dcq", path], stdout=subprocess.PIPE)
    return open(path, "rb")


def created(path, packed_as):
    if packed_as.endswith(".gz"):
        return gzip.open(path, "wb", compresslevel=6)
    if packed_as.endswith(".zst"):
        return piped(["zstd", "-q", "-f", "-o", path], stdin=subprocess.PIPE)
    return open(path, "wb")


def lines_of(files):
    """(file:line, text) of each line that is not blank."""
    for path in files:
        with opened(path) as file:
            for number, raw in enumerate(file, 1):
                where = f"{path}:{number}"
                try:
                    text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    yield where, None
                    continue
                if text:
                    yield where, text
