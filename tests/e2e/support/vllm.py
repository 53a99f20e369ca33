"""A real vLLM in a process of its own. scripts/test-vllm.sh installs it and sets DISTILLD_VLLM_PYTHON."""

import contextlib
import os
import subprocess
import urllib.request

import pytest

from support.processes import wait_until
from support.rest import free_port

PYTHON = os.environ.get("DISTILLD_VLLM_PYTHON")
needs_vllm = pytest.mark.skipif(not PYTHON, reason="scripts/test-vllm.sh runs it")


@contextlib.contextmanager
def served(folder, name, log, *options, **environment):
    """The URL of a vLLM that serves the folder as `name`, in fp32."""
    port = free_port()
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **environment}
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"]
    command += ["--enforce-eager", "--max-num-seqs", "16", *options]
    with open(log, "wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **settings})

    def ready():
        assert server.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    try:
        wait_until(ready, "vLLM is ready", seconds=600, pause=1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)
