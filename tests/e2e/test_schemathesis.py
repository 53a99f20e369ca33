"""Schemathesis (PyPI) makes requests of api/openapi.yaml, right and wrong ones, with all of its checks on."""

import pathlib
import subprocess
import sys

import openai
import pytest
from support import jobs
from support.rest import Rest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "tests" / "e2e" / "support" / "schemathesis.toml"


@pytest.fixture(scope="module")
def keyed(distilld_session, tmp_path_factory):
    """A service that wants a key, with a job that has succeeded and one that was cancelled."""
    folder = tmp_path_factory.mktemp("service")
    added = distilld_session.run("keys", "add", "tester", "--role", "admin", "--data-dir", folder)
    process = distilld_session.service(folder, "--root", folder.parent)
    process.key = added.out.split()[-1]
    process.rest = Rest(process.url, key=process.key)
    return process


def run(service, folder, *flags, settings=""):
    """Schemathesis over the whole contract; what it printed."""
    file = folder / "schemathesis.toml"
    file.write_text(f'{SETTINGS.read_text()}\n[auth.openapi.key]\nbearer = "{service.key}"\n{settings}')
    program = pathlib.Path(sys.executable).parent / "schemathesis"
    contract = ["run", ROOT / "api" / "openapi.yaml", "--url", service.url]
    done = subprocess.run(
        [program, "--config-file", file, *contract, "--no-color", "--seed", "20261123", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    return done.stdout


def test_finds_nothing_in_any_operation(keyed, tmp_path):
    run(keyed, tmp_path, "--max-examples", "20")
    assert keyed.rest.get("/readyz").status == 200


@pytest.fixture(scope="module")
def there(keyed, text_data):
    """Ids of a file, of a job made of it that has succeeded, and of its model."""
    client = openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=keyed.key, max_retries=0, timeout=120)
    file = client.files.create(file=text_data.open("rb"), purpose="fine-tune")
    spec = jobs.base_spec("", "", 20)
    del spec["dataset"]["train"], spec["output"]
    spec["checkpoint"] = {"every_steps": 5}
    spec["dataset"]["eval"] = str(text_data)
    spec["training"]["eval_steps"] = 5
    method = {"type": "distillation", "distillation": spec}
    job = client.fine_tuning.jobs.create(model="scratch", training_file=file.id, extra_body={"method": method})
    keyed.rest.wait_job(job.id, ["succeeded"])
    return {"job": job.id, "file": file.id, "model": client.fine_tuning.jobs.retrieve(job.id).fine_tuned_model}


def test_finds_nothing_in_what_is_told_of_things_that_are_there(keyed, there, tmp_path):
    bound = "".join(
        f"""
[[operations]]
include-path-regex = "^{path}"
parameters = {{ "path.{name}" = "{there[kind]}" }}
"""
        for path, name, kind in [
            ("/v1/jobs/[{]id[}]", "id", "job"),
            ("/v1/fine_tuning/jobs/[{]id[}]", "id", "job"),
            ("/v1/files/[{]id[}]", "id", "file"),
            ("/v1/models/[{]model[}]", "model", "model"),
        ]
    )
    printed = run(
        keyed, tmp_path, "--include-method", "GET", "--phases", "coverage,fuzzing", "-n", "20", settings=bound
    )
    assert "Missing test data" not in printed, printed
