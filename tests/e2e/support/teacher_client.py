"""A `distilld-worker teacher` of the test's own, and requests to it."""

import http.client
import json
import re
import select
import signal
import subprocess

import numpy as np
import pytest

NUMPY = {"UINT32": "<u4", "FP16": "<f2", "FP32": "<f4"}
START_SECONDS = 120


class Teacher:
    def __init__(self, programs, folder, *arguments):
        self.vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        self.process = subprocess.Popen(
            [
                str(programs / "distilld-worker"),
                "teacher",
                str(folder),
                "--listen",
                "127.0.0.1:0",
                *map(str, arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        readable, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        self.line = self.process.stdout.readline() if readable else ""
        found = re.match(r"distilld teacher: (.+) ready on http://127\.0\.0\.1:(\d+) \(.+\)$", self.line)
        if not found:
            self.process.kill()
            pytest.fail(f"no ready line but {self.line!r}: {self.process.communicate()[1]}")
        assert found.group(1) == str(folder)
        self.port = int(found.group(2))

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, path, document):
        body = document if isinstance(document, (bytes, str)) else json.dumps(document)
        status, headers, raw = self.ask("POST", path, body, {"Content-Type": "application/json"})
        return status, headers, json.loads(raw)

    def infer(self, ids, parameters, outputs=(), lengths=None, datatype="INT32"):
        """Binary both ways: {output: array}, and the raw body."""
        dtype = "<i8" if datatype == "INT64" else "<i4"
        tensors = [("input_ids", datatype, np.asarray(ids).astype(dtype))]
        if lengths is not None:
            tensors.append(("seq_lens", "INT32", np.asarray(lengths).astype("<i4")))
        head = {
            "id": "test",
            "parameters": {**parameters, "binary_data_output": True},
            "inputs": [
                {
                    "name": name,
                    "datatype": kind,
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": array.nbytes},
                }
                for name, kind, array in tensors
            ],
        }
        if outputs:
            head["outputs"] = [{"name": name} for name in outputs]
        encoded = json.dumps(head).encode()
        body = encoded + b"".join(array.tobytes() for _, _, array in tensors)
        status, headers, raw = self.ask(
            "POST",
            "/v2/models/teacher/infer",
            body,
            {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(encoded))},
        )
        assert status == 200, raw[:500]
        assert headers["Content-Type"] == "application/octet-stream"
        length = int(headers["Inference-Header-Content-Length"])
        answer = json.loads(raw[:length])
        assert answer["model_name"] == "teacher" and answer["id"] == "test"
        assert answer["parameters"]["vocab_size"] == self.vocabulary
        assert answer["parameters"]["temperature"] == 1 and answer["parameters"]["row_offset"] == 0
        arrays, offset = {}, length
        for output in answer["outputs"]:
            size = output["parameters"]["binary_data_size"]
            arrays[output["name"]] = np.frombuffer(raw[offset : offset + size], NUMPY[output["datatype"]]).reshape(
                output["shape"]
            )
            offset += size
        assert offset == len(raw)
        return arrays, raw

    def stop(self, signal_number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            _, errors = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, errors
