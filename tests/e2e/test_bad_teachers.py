"""A teacher that fails in any way is named by the one error of the job; the service goes on."""

import pytest
import torch
from chaos_proxy import HTML, ChaosProxy, Script
from support import jobs
from support.processes import Programs
from support.rest import Rest, closed_port
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(scope="module")
def good_spec(teacher, text_data, tmp_path_factory):
    return jobs.distil_spec(text_data, tmp_path_factory.mktemp("bad") / "student", teacher.url, steps=2)


ERROR_500 = (500, {}, b'{"error": "the teacher has a headache"}')
GARBAGE = (200, {"Content-Type": "text/html"}, HTML)


@pytest.fixture(scope="module")
def bad_teachers(distilld_session, teacher, tmp_path_factory):
    """{name: (endpoint, changes to the spec, what the message must say)}."""
    proxies = []

    def proxy(answer=None, answer_from=0, hold_after=None, **script):
        made = ChaosProxy(teacher.url, Script(**script))
        made.answer_with, made.answer_from, made.hold_after = answer, answer_from, hold_after
        proxies.append(made)
        return made.url

    torch.manual_seed(1)
    wide = tmp_path_factory.mktemp("wide")
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=300,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
        )
    ).save_pretrained(wide)
    wide_url = distilld_session.teacher(wide, "--dtype", "fp32").url
    few = {"/teacher/max_retries": 1, "/teacher/timeout_secs": 1, "/teacher/patience_secs": 4}
    seed = {"/teacher/protocol": "seed", "/teacher/top_k": 0}
    after_probe = 2 + 9  # two steps and the first micro-batch of a third
    yield {
        "refuses connections": (f"http://127.0.0.1:{closed_port()}", few, ["refused"]),
        "never answers": (proxy(hold_after=0), few, ["no answer within 1 s"]),
        "answers 500": (proxy(ERROR_500), few, ["HTTP 500", "headache"]),
        "answers 500 to the seed protocol": (proxy(ERROR_500), {**few, **seed}, ["HTTP 500", "headache"]),
        "answers garbage": (proxy(GARBAGE), few, []),
        "answers garbage to the seed protocol": (proxy(GARBAGE), {**few, **seed}, []),
        "answers 500 after a while": (proxy(ERROR_500, after_probe), few, ["HTTP 500", "server_error", "2 attempts"]),
        "answers garbage after a while": (proxy(GARBAGE, after_probe), few, ["bad_response", "2 attempts"]),
        "goes away after a while": (
            proxy(deaths=((after_probe, 3600),)),
            few,
            ["Connection refused", "no endpoint has answered for 4 s", "/teacher/patience_secs"],
        ),
        "falls silent after a while": (
            proxy(hold_after=after_probe),
            # One request at a time: of several, those of a later step may arrive first on a busy machine.
            {**few, "/teacher/max_concurrent": 1, "/teacher/timeout_secs": 3},
            ["no answer within 3 s", "/teacher/patience_secs"],
        ),
        "has another vocabulary, full logits": (wide_url, {**few, "/teacher/top_k": 0}, ["300", "257"]),
        "has another vocabulary, top-k": (
            wide_url,
            few,
            ["knows 300 tokens and the student 257"],
        ),
        "has another vocabulary, seed": (wide_url, {**few, **seed}, ["300", "257"]),
        "has no such model": (teacher.url, {**few, "/teacher/model": "somebody"}, ["HTTP 404", "somebody"]),
        "is not asked for its key": (
            teacher.url,
            {**few, "/teacher/api_key_env": "DISTILLD_KEY_THAT_IS_NOT_SET"},
            ["DISTILLD_KEY_THAT_IS_NOT_SET"],
        ),
    }
    for made in proxies:
        made.stop()


@pytest.fixture(scope="module", autouse=True)
def hopeless_jobs(programs, bad_teachers, good_spec, tmp_path_factory):
    """All at once, and before all other tests of this file: some of them wait for an endpoint that may still come up.
    (Rest, {name: id})"""
    started = Programs(programs, tmp_path_factory.mktemp("logs"))
    root = tmp_path_factory.mktemp("bad-teachers")
    process = started.service(root / "service", "--slots", "16", "--slots-by", "none")
    rest = Rest(process.url)
    ids = {}
    for number, (name, (url, changes, _)) in enumerate(bad_teachers.items()):
        ids[name] = rest.submit(
            jobs.changed(
                good_spec,
                {"/teacher/endpoints": [url], "/output": str(root / str(number)), "/training/max_steps": 8, **changes},
            )
        )
    yield rest, ids
    started.stop_all()


@pytest.fixture(scope="module")
def failed_jobs(hopeless_jobs):
    """(Rest, {name: job at its end})"""
    rest, ids = hopeless_jobs
    return rest, {name: rest.wait_job(job_id, seconds=180) for name, job_id in ids.items()}


TEACHER_NAMES = [
    "refuses connections",
    "never answers",
    "answers 500",
    "answers 500 to the seed protocol",
    "answers garbage",
    "answers garbage to the seed protocol",
    "answers 500 after a while",
    "answers garbage after a while",
    "goes away after a while",
    "falls silent after a while",
    "has another vocabulary, full logits",
    "has another vocabulary, top-k",
    "has another vocabulary, seed",
    "has no such model",
    "is not asked for its key",
]


@pytest.mark.parametrize("name", TEACHER_NAMES)
def test_a_teacher_that_fails_is_named(failed_jobs, bad_teachers, name):
    url, changes, words = bad_teachers[name]
    job = failed_jobs[1][name]
    assert job["state"] == "failed", job
    message = job["status_reason"]["message"]
    if "/teacher/api_key_env" not in changes:
        assert job["status_reason"]["code"] == "teacher", job["status_reason"]
        assert url in message, message
    for word in words:
        assert word in message, message
    # What was trained before the teacher failed is kept.
    done = (job["progress"] or {}).get("step", 0)
    assert [checkpoint["step"] for checkpoint in job["checkpoints"]] == ([done] if done else [])
    assert done == 2 or name != "falls silent after a while"


def test_every_teacher_of_the_table_is_tested(bad_teachers):
    assert sorted(bad_teachers) == sorted(TEACHER_NAMES)


def test_the_service_takes_the_next_job(failed_jobs, module_service, good_spec, tmp_path):
    for number, rest in enumerate((failed_jobs[0], module_service.rest)):
        assert rest.get("/readyz").status == 200
        job_id = rest.submit(jobs.changed(good_spec, {"/output": str(tmp_path / str(number))}))
        rest.wait_job(job_id, ["succeeded"])


@pytest.mark.parametrize("name", ["answers 500", "answers garbage", "has another vocabulary, top-k"])
def test_run_exits_with_1_and_names_the_teacher(distilld, bad_teachers, good_spec, tmp_path, name):
    url, changes, words = bad_teachers[name]
    spec = jobs.changed(good_spec, {"/teacher/endpoints": [url], "/output": str(tmp_path / "out"), **changes})
    ended = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), "--report", tmp_path / "report", code=1)
    assert url in ended.err
    for word in words:
        assert word in ended.err
    assert not (tmp_path / "report").exists()
