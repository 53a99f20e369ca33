"""A proxy between a teacher client and a real teacher that misbehaves on purpose, by a script drawn from a seed.

Latency, latency spikes, connection resets, half-sent bodies, storms of 429 with Retry-After, 503, garbage under status
200, and an endpoint that dies (refuses connections) and comes back. GETs (readiness, metadata) pass untouched; faults
befall POSTs. Only the standard library. Runs in a thread of its own, or by hand:

    python chaos_proxy.py http://127.0.0.1:8600 --seed 1 --spike 0.03 --reset 0.05
"""

import argparse
import asyncio
import collections
import dataclasses
import random
import socket
import struct
import threading
import time
import urllib.parse

HTML = b"<!doctype html><title>502</title><h1>It works!</h1>"


@dataclasses.dataclass
class Script:
    """What goes wrong, and how often. Rates are probabilities of one POST."""

    seed: int = 1
    calm: int = 4  # first POSTs that nothing befalls: the client's probe
    delay: float = 0.0  # seconds added to every answer
    lanes: int = 0  # POSTs that are with the teacher at once, `delay` included; the others wait. 0: all
    jitter: float = 0.0  # sigma of a lognormal factor on `delay`
    spike: float = 0.0
    spike_seconds: float = 0.5
    reset: float = 0.0  # connection reset in place of an answer
    half_body: float = 0.0  # head with the full length, half of the body, then the end
    unavailable: float = 0.0  # 503
    garbage: float = 0.0  # 200 with something else
    storm: float = 0.0  # a storm begins: the next `storm_length` POSTs get 429
    storm_length: int = 6
    retry_after: str = "1"
    deaths: tuple = ()  # (number of the POST, seconds away)


class ChaosProxy:
    """Listens on an ephemeral port of the loopback interface until stop(). Attributes may be changed meanwhile."""

    def __init__(self, upstream, script=None):
        parts = urllib.parse.urlsplit(upstream)
        self._upstream = (parts.hostname, parts.port)
        self.script = script or Script()
        self.posts = 0  # that came in
        self.answered = 0  # real answers that were sent on
        self.in_flight = 0  # POSTs whose answers are waited for, also those whose client has gone
        self.max_in_flight = 0  # POSTs whose answers were waited for at once
        self.answer_times = []  # of time.monotonic(), one each
        self.counts = collections.Counter()  # of faults, by name
        self.gets = collections.Counter()  # by target
        self.hold_after = None  # POSTs from this number on (counted from 0) are never answered
        self.answer_with = None  # (status, headers, body) in place of the teacher's answer, from `answer_from` on
        self.answer_from = 0
        self._random = random.Random(self.script.seed)
        self._storm_left = 0
        self._connections = set()
        self._server = None
        self._dying = None
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-proxy", daemon=True)
        self._thread.start()
        assert self._started.wait(30), "the chaos proxy did not start"
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self):
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # --- the thread ---

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())
        self._loop.close()

    async def _main(self):
        self._ending = asyncio.Event()
        self._lanes = asyncio.Semaphore(self.script.lanes or 1 << 20)
        self.port = 0
        await self._listen()
        self._started.set()
        await self._ending.wait()
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self):
        # The same port again after a death.
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _die(self, seconds):
        self.counts["death"] += 1
        self._server.close()
        for writer in list(self._connections):
            _reset(writer)
        await asyncio.sleep(seconds)
        await self._listen()
        self.counts["return"] += 1

    async def _serve(self, reader, writer):
        self._connections.add(writer)
        upstream = _Upstream(self._upstream)
        try:
            while await self._exchange(reader, writer, upstream):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass  # the client has gone, or the teacher has: either way the connection ends
        except asyncio.CancelledError:
            pass  # stop()
        finally:
            self._connections.discard(writer)
            upstream.close()
            writer.close()

    async def _exchange(self, reader, writer, upstream):
        """One request and its answer; False when the connection is to end."""
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(_content_length(head))
        if not head.startswith(b"POST "):
            self.gets[head.split(b" ", 2)[1].decode()] += 1
            writer.write(b"".join(await upstream.exchange(head, body)))
            await writer.drain()
            return True
        number = self.posts
        self.posts += 1
        if self.hold_after is not None and number >= self.hold_after:
            self.counts["held"] += 1
            await asyncio.Event().wait()  # until the client or the test ends
        if self.answer_with is not None and number >= self.answer_from:
            writer.write(_answer(*self.answer_with))
            await writer.drain()
            return True
        return await self._answer_post(number, head, body, writer, upstream)

    async def _answer_post(self, number, head, body, writer, upstream):
        fault, delay = self._draw(number)
        for when, seconds in self.script.deaths:
            if number == when:
                self._dying = asyncio.ensure_future(self._die(seconds))  # the loop itself keeps no task
                return False
        if fault:
            self.counts[fault] += 1
        if fault == "reset":
            _reset(writer)
            return False
        if fault == "storm":
            headers = {"Retry-After": self.script.retry_after}
            writer.write(_answer(429, headers, b'{"error":"too many requests"}'))
        elif fault == "unavailable":
            writer.write(_answer(503, {}, b'{"error":"no healthy upstream"}'))
        elif fault == "garbage":
            answer_head, answer_body = await upstream.exchange(head, body)
            writer.write(self._garbage(answer_head, answer_body))
        else:
            async with self._lanes:
                begun = time.monotonic()
                self.in_flight += 1
                self.max_in_flight = max(self.max_in_flight, self.in_flight)
                try:
                    answer_head, answer_body = await upstream.exchange(head, body)
                    await asyncio.sleep(max(0.0, begun + delay - time.monotonic()))
                finally:
                    self.in_flight -= 1
            if fault == "half_body":
                writer.write(answer_head + answer_body[: len(answer_body) // 2])
                await writer.drain()
                return False
            writer.write(answer_head + answer_body)
            self.answered += 1
            self.answer_times.append(time.monotonic())
        await writer.drain()
        return True

    def _draw(self, number):
        """The fault of a POST (None mostly) and the seconds until its answer."""
        script = self.script
        delay = script.delay * self._random.lognormvariate(0, script.jitter) if script.delay else 0.0
        if number < script.calm:
            return None, delay
        if self._storm_left > 0:
            self._storm_left -= 1
            return "storm", 0.0
        dice = self._random.random()
        for fault in ("reset", "half_body", "unavailable", "garbage", "storm", "spike"):
            dice -= getattr(script, fault)
            if dice < 0:
                if fault == "storm":
                    self._storm_left = script.storm_length - 1
                return fault, delay + (script.spike_seconds if fault == "spike" else 0.0)
        return None, delay

    def _garbage(self, head, body):
        kind = self._random.randrange(5)
        if kind == 0:
            return _answer(200, {"Content-Type": "text/html"}, HTML)
        if kind == 1:
            return _answer(200, {}, b'{"outputs":[],"logits":[]}')
        if kind == 2:
            return _answer(200, {}, b"")
        if kind == 3:  # well-formed HTTP, the last bytes of the tensors missing
            short = body[:-7]
            return head.replace(b"%d\r\n" % len(body), b"%d\r\n" % len(short)) + short
        noise = self._random.randbytes(len(body))
        headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "100"}
        return _answer(200, headers, noise)


class _Upstream:
    """A kept connection to the teacher."""

    def __init__(self, address):
        self._address = address
        self._streams = None

    async def exchange(self, head, body):
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address, limit=1 << 20)
        reader, writer = self._streams
        writer.write(head + body)
        try:
            answer_head = await reader.readuntil(b"\r\n\r\n")
            return answer_head, await reader.readexactly(_content_length(answer_head))
        except BaseException:
            self.close()
            raise

    def close(self):
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _content_length(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
        if name.lower() == b"transfer-encoding":
            raise ConnectionError("the proxy does not speak chunked")
    return 0


def _answer(status, headers, body):
    lines = [f"HTTP/1.1 {status} Chaos", f"Content-Length: {len(body)}"]
    headers = {"Content-Type": "application/json", **headers}
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _reset(writer):
    """Closes with RST, which is what a process that dies leaves behind."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("upstream")
    for field in dataclasses.fields(Script):
        if field.name != "deaths":
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    arguments = vars(parser.parse_args())
    with ChaosProxy(arguments.pop("upstream"), Script(**arguments)) as proxy:
        print(f"listening on {proxy.url}", flush=True)
        try:
            while True:
                time.sleep(10)
                print(f"{proxy.posts} requests, {dict(proxy.counts)}", flush=True)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
